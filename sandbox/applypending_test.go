package sandbox_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"snapfs/internal/treewalk"
	"snapfs/sandbox"
)

// TestApplyToDirectoryInterrupted kills a process while a directory that it renames is in the stage, and moves the
// directory that it is applied to: what is needed to go on stays, for whatever time, until it is gone on with or given up.
func TestApplyToDirectoryInterrupted(t *testing.T) {
	ctx := t.Context()
	base := t.TempDir()
	require.NoError(t, shell(ctx, `mkdir -p "$1/dir/d" "$1/m"; echo f > "$1/dir/d/f"; echo old > "$1/dir/file"`, base))
	h := openHome(t, base+"/home", sandbox.Options{})
	_, err := h.Create(ctx, sandbox.CreateRequest{Name: "w", Source: base + "/dir"})
	require.NoError(t, err)
	if _, err := h.Mount(ctx, sandbox.MountRequest{Workspace: "w", Mountpoint: base + "/m"}); err != nil {
		t.Skip(err)
	}
	require.NoError(t, shell(ctx, `cd "$1/m"; mv d e; echo new > file; echo own > "$1/dir/d/own"`, base))
	require.NoError(t, h.Close())
	was := walk(t, base+"/dir")
	where := ""
	child(ctx, t, []string{killApply + "=" + base, killAt + "=taken from its place"}, nil, func(line []byte, _ func()) {
		where = string(line)
	})
	require.Equal(t, "killed taken from its place", where)
	journals, err := filepath.Glob(base + "/home/applying/*.json")
	require.NoError(t, err)
	require.Len(t, journals, 1)
	id := strings.TrimSuffix(filepath.Base(journals[0]), ".json")
	stage := "/.snapfs-apply-" + id
	require.FileExists(t, base+"/dir"+stage+"/m0/own")
	require.NoError(t, os.Rename(base+"/dir", base+"/moved"))
	other := base + "/home/applying/0123456789.json"
	require.NoError(t, os.WriteFile(other, []byte("{"), 0o600))
	var ahead atomic.Int64
	ahead.Store(int64(10 * 24 * time.Hour))
	clock := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	h = openHome(t, base+"/home", sandbox.WithClock(sandbox.Options{}, clock))

	_, err = h.GC(ctx, sandbox.GCRequest{})
	require.NoError(t, err)
	ahead.Store(0)
	all, err := h.Snapshots(ctx, sandbox.ListRequest{})
	require.NoError(t, err)
	needed := 0
	for _, s := range all.Snapshots {
		err := h.Delete(ctx, sandbox.RefRequest{Ref: s.ID})
		if strings.Contains(s.Description, "applied to "+base+"/dir") && s.ID == id || strings.Contains(s.Description, "before") {
			require.ErrorIs(t, err, sandbox.ErrConflict, s.Description)
			needed++
		}
	}
	require.Equal(t, 2, needed)
	problems := func() (found []string) {
		got, err := h.Check(ctx, sandbox.CheckRequest{})
		require.NoError(t, err)
		for _, p := range got.Problems {
			found = append(found, p.Where+": "+p.What)
		}
		return found
	}
	text := strings.Join(problems(), "\n")
	require.Contains(t, text, "apply "+id+" to "+base+"/dir")
	require.Contains(t, text, "apply 0123456789")

	apply := func(r sandbox.ApplyRequest) error {
		_, err := h.Apply(ctx, r)
		return err
	}
	require.NoError(t, os.Mkdir(base+"/dir", 0o755)) // another one
	err = apply(sandbox.ApplyRequest{From: "w", To: base + "/dir"})
	require.ErrorIs(t, err, sandbox.ErrConflict)
	require.ErrorContains(t, err, "another directory")
	require.ErrorContains(t, err, "--drop "+id)
	err = apply(sandbox.ApplyRequest{From: "w", To: base + "/moved", DryRun: true})
	require.ErrorIs(t, err, sandbox.ErrConflict)
	require.FileExists(t, base+"/moved"+stage+"/m0/own")
	copied := base + "/copied"
	require.NoError(t, shell(ctx, `cp -a "$1" "$2"`, base+"/moved", copied))

	// Where the directory is now, it is completed, and can be taken back.
	require.NoError(t, apply(sandbox.ApplyRequest{From: "w", To: base + "/moved"}))
	require.FileExists(t, base+"/moved/e/own")
	require.NoDirExists(t, base+"/moved"+stage)
	require.Len(t, problems(), 1)
	require.NoError(t, apply(sandbox.ApplyRequest{To: base + "/moved", Undo: true}))
	require.Empty(t, treewalk.Diff(was, walk(t, base+"/moved"), treewalk.Options{}))

	// Elsewhere the stage is not to be removed.
	err = apply(sandbox.ApplyRequest{From: "w", To: copied})
	require.ErrorIs(t, err, sandbox.ErrConflict)
	require.ErrorContains(t, err, "apply "+id)
	require.ErrorContains(t, err, "only when it is empty")
}

// TestApplyToDirectoryDropped gives an interrupted apply up.
func TestApplyToDirectoryDropped(t *testing.T) {
	ctx := t.Context()
	base := t.TempDir()
	require.NoError(t, shell(ctx, `mkdir -p "$1/dir/d" "$1/m"; echo f > "$1/dir/d/f"`, base))
	h := openHome(t, base+"/home", sandbox.Options{})
	_, err := h.Create(ctx, sandbox.CreateRequest{Name: "w", Source: base + "/dir"})
	require.NoError(t, err)
	if _, err := h.Mount(ctx, sandbox.MountRequest{Workspace: "w", Mountpoint: base + "/m"}); err != nil {
		t.Skip(err)
	}
	require.NoError(t, os.Rename(base+"/m/d", base+"/m/e"))
	require.NoError(t, h.Close())
	child(ctx, t, []string{killApply + "=" + base, killAt + "=taken from its place"}, nil, func([]byte, func()) {})
	require.NoError(t, os.Rename(base+"/dir", base+"/moved"))
	h = openHome(t, base+"/home", sandbox.Options{})
	require.NoError(t, os.Rename(base+"/moved", base+"/dir"))
	journals, err := filepath.Glob(base + "/home/applying/*.json")
	require.NoError(t, err)
	require.Len(t, journals, 1)
	id := strings.TrimSuffix(filepath.Base(journals[0]), ".json")
	_, err = h.Apply(ctx, sandbox.ApplyRequest{Drop: "../" + id})
	require.ErrorIs(t, err, sandbox.ErrNotFound)
	_, err = h.Apply(ctx, sandbox.ApplyRequest{Drop: id, Access: sandbox.Access{Session: "another"}})
	require.ErrorIs(t, err, sandbox.ErrNotFound)
	got, err := h.Apply(ctx, sandbox.ApplyRequest{Drop: id})
	require.NoError(t, err)
	require.Equal(t, base+"/dir", got.Directory)
	require.Equal(t, []sandbox.ApplyLeft{
		{Path: ".snapfs-apply-" + id + "/m0", Detail: `was "d", and was to become "e"`},
	}, got.Left)
	require.FileExists(t, base+"/dir/.snapfs-apply-"+id+"/m0/f")
	checked, err := h.Check(ctx, sandbox.CheckRequest{})
	require.NoError(t, err)
	require.Empty(t, checked.Problems)
	require.NoError(t, h.Delete(ctx, sandbox.RefRequest{Ref: got.Before}))
	require.NoError(t, h.Delete(ctx, sandbox.RefRequest{Ref: got.After}))
	_, err = h.Apply(ctx, sandbox.ApplyRequest{Drop: id})
	require.ErrorIs(t, err, sandbox.ErrNotFound)
	require.NoError(t, shell(ctx, `cd "$1/dir"; mv .snapfs-*/m0 d; rmdir .snapfs-*`, base))
	_, err = h.Apply(ctx, sandbox.ApplyRequest{From: "w", To: base + "/dir"})
	require.NoError(t, err)
	require.FileExists(t, base+"/dir/e/f")
}
