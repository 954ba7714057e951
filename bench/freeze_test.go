package main

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestFreezeKeeps: owners, set-user-id, hard links and links that come and go.
func TestFreezeKeeps(t *testing.T) {
	dir := t.TempDir()
	b := &builder{name: "f", ws: filepath.Join(dir, "ws"), dir: dir, bar: newProgress(os.Stderr), since: time.Now().Add(-time.Minute)}
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "states"), 0o755))
	in := func(name string) string { return filepath.Join(b.ws, name) }
	for _, name := range []string{"a", "c", "d"} {
		require.NoError(t, b.write(name, "same"))
	}
	require.NoError(t, os.Link(in("a"), in("b")))
	require.NoError(t, os.Lchown(in("c"), 7, 8))
	require.NoError(t, unix.Chmod(in("c"), 0o4755))
	require.NoError(t, b.freeze(t.Context()))
	first := b.prev
	// What was linked comes apart, what was apart is linked.
	require.NoError(t, os.Remove(in("b")))
	require.NoError(t, b.write("b", "same"))
	require.NoError(t, setTime(in("b"), time.Unix(1_700_000_000, 0)))
	require.NoError(t, os.Remove(in("d")))
	require.NoError(t, os.Link(in("c"), in("d")))
	require.NoError(t, b.freeze(t.Context()))
	for _, state := range []string{first, b.prev} {
		var st unix.Stat_t
		require.NoError(t, unix.Lstat(filepath.Join(state, "c"), &st))
		require.Equal(t, []uint32{7, 8, 0o4755}, []uint32{st.Uid, st.Gid, st.Mode & 0o7777})
	}
	require.True(t, sameInode(t, first, "a", "b"))
	require.False(t, sameInode(t, first, "c", "d"))
	require.False(t, sameInode(t, b.prev, "a", "b"))
	require.True(t, sameInode(t, b.prev, "c", "d"))
	want, err := inspect(t.Context(), b.ws)
	require.NoError(t, err)
	got, err := inspect(t.Context(), b.prev)
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
		dir := t.TempDir()
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "states"), 0o755))
		b := &builder{name: "n", ws: filepath.Join(dir, "ws"), dir: dir, bar: newProgress(os.Stderr), since: time.Now().Add(-time.Minute)}
		g := noise{b: b, bytes: 12_000_000, src: rand.NewChaCha8([32]byte{1})}
		g.r = rand.New(g.src)
		require.NoError(t, g.create())
		var infos []treeInfo
		for range 3 {
			require.NoError(t, b.freeze(t.Context()))
			info, err := inspect(t.Context(), b.prev)
			require.NoError(t, err)
			infos = append(infos, info)
			require.NoError(t, g.rewrite())
		}
		digests = append(digests, digestOf(infos))
		time.Sleep(1100 * time.Millisecond) // another second
	}
	require.Equal(t, digests[0], digests[1])
}
