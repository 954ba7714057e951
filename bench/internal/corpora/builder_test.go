package corpora

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"snapfs/bench/internal/progress"
	"snapfs/bench/internal/tree"
)

// TestFreezeKeeps: owners, set-user-id, hard links and links that come and go.
func TestFreezeKeeps(t *testing.T) {
	dir := t.TempDir()
	b, err := NewBuilder("f", dir, progress.New(os.Stderr))
	require.NoError(t, err)
	in := func(name string) string { return filepath.Join(b.Workspace, name) }
	for _, name := range []string{"a", "c", "d"} {
		require.NoError(t, b.Write(name, "same"))
	}
	require.NoError(t, os.Link(in("a"), in("b")))
	require.NoError(t, os.Lchown(in("c"), 7, 8))
	require.NoError(t, unix.Chmod(in("c"), 0o4755))
	require.NoError(t, b.Freeze(t.Context()))
	first := b.Prev
	// What was linked comes apart, what was apart is linked.
	require.NoError(t, os.Remove(in("b")))
	require.NoError(t, b.Write("b", "same"))
	require.NoError(t, os.Chtimes(in("b"), time.Unix(1_700_000_000, 0), time.Unix(1_700_000_000, 0)))
	require.NoError(t, os.Remove(in("d")))
	require.NoError(t, os.Link(in("c"), in("d")))
	require.NoError(t, b.Freeze(t.Context()))
	for _, state := range []string{first, b.Prev} {
		var st unix.Stat_t
		require.NoError(t, unix.Lstat(filepath.Join(state, "c"), &st))
		require.Equal(t, []uint32{7, 8, 0o4755}, []uint32{st.Uid, st.Gid, st.Mode & 0o7777})
	}
	require.True(t, sameInode(t, first, "a", "b"))
	require.False(t, sameInode(t, first, "c", "d"))
	require.False(t, sameInode(t, b.Prev, "a", "b"))
	require.True(t, sameInode(t, b.Prev, "c", "d"))
	want, err := tree.Inspect(t.Context(), b.Workspace)
	require.NoError(t, err)
	got, err := tree.Inspect(t.Context(), b.Prev)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

func sameInode(t *testing.T, dir, a, b string) bool {
	t.Helper()
	x, err := os.Lstat(filepath.Join(dir, a))
	require.NoError(t, err)
	y, err := os.Lstat(filepath.Join(dir, b))
	require.NoError(t, err)
	return os.SameFile(x, y)
}

// TestCorpusDeterministic: two builds of random data from nothing, at different times, are the same to the nanosecond.
func TestCorpusDeterministic(t *testing.T) {
	var digests []string
	for range 2 {
		b, err := NewBuilder("n", t.TempDir(), progress.New(os.Stderr))
		require.NoError(t, err)
		g := noise{b: b, bytes: 12_000_000, src: rand.NewChaCha8([32]byte{1})}
		g.r = rand.New(g.src)
		require.NoError(t, g.create())
		var infos []tree.Info
		for range 3 {
			require.NoError(t, b.Freeze(t.Context()))
			info, err := tree.Inspect(t.Context(), b.Prev)
			require.NoError(t, err)
			infos = append(infos, info)
			require.NoError(t, g.rewrite())
		}
		digests = append(digests, tree.Digest(infos))
		time.Sleep(1100 * time.Millisecond) // another second
	}
	require.Equal(t, digests[0], digests[1])
}
