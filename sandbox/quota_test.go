package sandbox

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"snapfs/layers"
	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/threeway"
)

// TestQuotaOfTheDead describes a workspace that has just been destroyed, as a list does that has begun before: another one
// of its name does not get its limits.
func TestQuotaOfTheDead(t *testing.T) {
	h := openTest(t, t.TempDir())
	_, err := h.Create(t.Context(), CreateRequest{Name: "w", Quota: api.Quota{Size: 1 << 20}})
	require.NoError(t, err)
	w := h.catalog.Workspace("w")
	_, err = h.Destroy(t.Context(), DestroyRequest{Ref: "w", Now: true})
	require.NoError(t, err)
	require.NotNil(t, h.describeQuota(w))
	_, err = h.Create(t.Context(), CreateRequest{Name: "w"})
	require.NoError(t, err)
	w = h.catalog.Workspace("w")
	require.Equal(t, layers.Usage{}, h.accounts.of(w, h.uppers.Work(w.Upper)).Limit())
}

// TestQuotaAndApply holds that the upper which an apply writes does not count as that of the target.
func TestQuotaAndApply(t *testing.T) {
	h := openTest(t, t.TempDir())
	_, err := h.Create(t.Context(), CreateRequest{Name: "w", Quota: api.Quota{Size: 1 << 30}})
	require.NoError(t, err)
	w := h.catalog.Workspace("w")
	acct := h.accounts.of(w, h.uppers.Work(w.Upper))
	acct.Remember(layers.Usage{Bytes: 1 << 29, Inodes: 1000})
	upper, err := h.uppers.CreateDurable(t.Context())
	require.NoError(t, err)
	a := &application{h: h, to: w}
	require.NoError(t, a.write(t.Context(), &threeway.Plan{}, w.Base, upper))
	used, known := acct.Used()
	require.GreaterOrEqual(t, used.Bytes, int64(1<<29))
	require.True(t, known)
	h.uppers.Discard(upper)
}

// TestApplyWithinLimits holds that nothing is applied to a workspace that has no room for it.
func TestApplyWithinLimits(t *testing.T) {
	h := openTest(t, t.TempDir())
	ctx := t.Context()
	_, err := h.Create(ctx, CreateRequest{Name: "to"})
	require.NoError(t, err)
	put(t, h, "to", "base")
	_, err = h.Fork(ctx, ForkRequest{Workspace: "to", Name: "from"})
	require.NoError(t, err)
	dir := h.uppers.Path(h.catalog.Workspace("from").Upper)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "big"), bytes.Repeat([]byte("text"), 1<<19), 0o644))
	for i := range 20 {
		require.NoError(t, os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), []byte("text"), 0o644))
	}
	put(t, h, "from", "last")
	limit := func(size, inodes int64) {
		t.Helper()
		_, err := h.SetQuota(ctx, QuotaRequest{Workspace: "to", Size: &size, Inodes: &inodes})
		require.NoError(t, err)
	}
	for _, l := range []struct{ size, inodes int64 }{{1 << 20, 0}, {0, 10}, {1, 1}} {
		limit(l.size, l.inodes)
		before := h.catalog.Workspace("to").Base
		_, err = h.Apply(ctx, ApplyRequest{From: "from", To: "to"})
		require.ErrorIs(t, err, unix.ENOSPC, "%+v", l)
		require.Equal(t, before, h.catalog.Workspace("to").Base)
	}
	limit(8<<20, 100)
	res, err := h.Apply(ctx, ApplyRequest{From: "from", To: "to"})
	require.NoError(t, err)
	require.Len(t, res.Changes, 22)
}

// TestQuotaAfterEarlierVersion holds that what is noted of an upper is not taken for true once a version had the home that
// keeps no notes. While versions that keep them take turns, it is, though nobody opens the workspace.
func TestQuotaAfterEarlierVersion(t *testing.T) {
	dir := t.TempDir()
	h := openTest(t, dir)
	_, err := h.Create(t.Context(), CreateRequest{Name: "w", Quota: api.Quota{Size: 1 << 30}})
	require.NoError(t, err)
	_, _, done, err := h.overlayOf(t.Context(), h.catalog.Workspace("w"), false)
	require.NoError(t, err)
	done()
	noted := func() bool {
		w, recalled := h.catalog.Workspace("w"), newAccounts()
		recalled.since = h.accounts.since
		_, known := recalled.look(w, h.uppers.Work(w.Upper)).Used()
		return known
	}
	for range 3 {
		require.NoError(t, h.Close())
		h = openTest(t, dir)
		require.True(t, noted())
	}
	require.NoError(t, h.Close())
	closed := time.Now()                // what it takes was noted before
	require.Eventually(t, func() bool { // the clock of a file system goes in steps
		require.NoError(t, os.Chmod(filepath.Join(dir, emptyDir), 0o755)) // as every version that opens the home
		var st unix.Stat_t
		require.NoError(t, unix.Stat(filepath.Join(dir, emptyDir), &st))
		return st.Ctim.Nano() > closed.UnixNano()
	}, time.Minute, time.Millisecond)
	h = openTest(t, dir)
	require.False(t, noted())
}

// TestQuotaAndRollback holds that what a rollback gives up does not count any more, also while nothing is mounted.
func TestQuotaAndRollback(t *testing.T) {
	h := openTest(t, t.TempDir())
	_, err := h.Create(t.Context(), CreateRequest{Name: "w", Quota: api.Quota{Size: 1 << 30}})
	require.NoError(t, err)
	s, err := h.Snapshot(t.Context(), SnapshotRequest{Workspace: "w", Name: "s"})
	require.NoError(t, err)
	w := h.catalog.Workspace("w")
	acct := h.accounts.of(w, h.uppers.Work(w.Upper))
	w, unlock, err := h.lockWorkspace(t.Context(), w.ID)
	require.NoError(t, err)
	acct.Remember(layers.Usage{Bytes: 1 << 29, Inodes: 1000})
	to := move{to: h.catalog.Snapshot(s.ID), event: h.event(EventRolledBack, w.ID, w.Session, s.ID, "test")}
	err = h.rollbackLocked(t.Context(), w.ID, to)
	unlock()
	require.NoError(t, err)
	used, known := acct.Used()
	require.Less(t, used.Bytes, int64(1<<20))
	require.True(t, known)
}

// TestQuotaWhileRenamed holds that what is measured by a name that a workspace no longer has does not count as its.
func TestQuotaWhileRenamed(t *testing.T) {
	h := openTest(t, t.TempDir())
	_, err := h.Create(t.Context(), CreateRequest{Name: "w", Quota: api.Quota{Size: 1 << 30}})
	require.NoError(t, err)
	_, err = h.Snapshot(t.Context(), SnapshotRequest{Workspace: "w", Name: "s"})
	require.NoError(t, err)
	w := h.catalog.Workspace("w")
	acct := h.accounts.of(w, h.uppers.Work(w.Upper))
	_, unlock, err := h.lockWorkspace(t.Context(), "w")
	require.NoError(t, err)
	_, err = h.recountLocked(t.Context(), "w", acct)
	unlock()
	require.NoError(t, err)
	require.NoError(t, h.tallyKept(t.Context(), "w", acct, map[uint64]layers.Usage{}))
	has, _ := acct.Used()
	require.GreaterOrEqual(t, has.Inodes, int64(2)) // the root of the upper, and that of the snapshot

	_, err = h.Rename(t.Context(), RenameRequest{Ref: "w", Name: "v"})
	require.NoError(t, err)
	require.NoError(t, h.tallyKept(t.Context(), "w", acct, map[uint64]layers.Usage{}))
	used, _ := acct.Used()
	require.Equal(t, has.Inodes, used.Inodes)
	_, err = h.Create(t.Context(), CreateRequest{Name: "w", Quota: api.Quota{Size: 1 << 20}})
	require.NoError(t, err)
	require.NoError(t, h.tally("w", acct, map[string]bool{"w": true}, nil, map[uint64]layers.Usage{}))
	used, _ = acct.Used()
	require.Equal(t, has.Inodes, used.Inodes)
}
