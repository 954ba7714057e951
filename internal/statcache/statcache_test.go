package statcache

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func write(t *testing.T, dir string, k Key, files ...File) {
	t.Helper()
	w, err := Create(dir, k)
	require.NoError(t, err)
	for i, f := range files {
		w.Note(f, fmt.Appendf(nil, "note %d", i))
	}
	require.NoError(t, w.Commit())
}

func read(t *testing.T, dir string, k Key) *Reader {
	t.Helper()
	r, err := Open(dir, k)
	require.NoError(t, err)
	return r
}

func TestFind(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "seen")
	k := Key{UID: 1, Dev: 2, Ino: 3, Path: "/a"}
	require.Zero(t, read(t, dir, k).Len())
	f := File{Ino: 7, Ctime: -5, Mtime: 1 << 60, Btime: 3, Size: 300}
	write(t, dir, k, File{Ino: 1 << 50}, f, File{Ino: 2}, File{Ino: 2, Size: 1})
	r := read(t, dir, k)
	require.Equal(t, 3, r.Len())
	note, ok := r.Find(f)
	require.True(t, ok)
	require.Equal(t, "note 1", string(note))
	_, ok = r.Find(File{Ino: 2})
	require.False(t, ok, "of two notes the last counts")
	_, ok = r.Find(File{Ino: 2, Size: 1})
	require.True(t, ok)
	for _, g := range []File{
		{Ino: 8, Ctime: -5, Mtime: 1 << 60, Btime: 3, Size: 300},
		{Ino: 7, Ctime: -4, Mtime: 1 << 60, Btime: 3, Size: 300},
		{Ino: 7, Ctime: -5, Mtime: 1<<60 + 1, Btime: 3, Size: 300},
		{Ino: 7, Ctime: -5, Mtime: 1 << 60, Size: 300},
		{Ino: 7, Ctime: -5, Mtime: 1 << 60, Btime: 3, Size: 301},
		{},
	} {
		_, ok := r.Find(g)
		require.False(t, ok, "%+v", g)
	}
	for _, other := range []Key{
		{UID: 2, Dev: 2, Ino: 3, Path: "/a"},
		{UID: 1, Dev: 1, Ino: 3, Path: "/a"},
		{UID: 1, Dev: 2, Ino: 3, Path: "/b"},
		{UID: 1, Dev: 2, Ino: 3, Path: "/a", Part: "x"},
	} {
		require.Zero(t, read(t, dir, other).Len())
		require.NoError(t, os.WriteFile(other.path(dir), mustRead(t, k.path(dir)), 0o600))
		require.Zero(t, read(t, dir, other).Len(), "a file of another key")
		require.NoFileExists(t, other.path(dir))
	}
}

func mustRead(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	return b
}

// TestDamage changes and cuts off each byte of a file.
func TestDamage(t *testing.T) {
	dir := t.TempDir()
	k := Key{Path: "/"}
	write(t, dir, k, File{Ino: 1}, File{Ino: 2, Size: 10})
	all := mustRead(t, k.path(dir))
	for i := range all {
		bad := bytes.Clone(all)
		bad[i]++
		for _, b := range [][]byte{bad, all[:i]} {
			require.NoError(t, os.WriteFile(k.path(dir), b, 0o600))
			require.Zero(t, read(t, dir, k).Len())
			require.NoFileExists(t, k.path(dir))
		}
	}
}

func TestBounds(t *testing.T) {
	defer func(one, all int64) { MaxBytes, MaxTotal = one, all }(MaxBytes, MaxTotal)
	MaxBytes, MaxTotal = 1000, 7000
	dir := t.TempDir()
	var files []File
	for i := range 100 {
		files = append(files, File{Ino: uint64(i)})
	}
	at := time.Now().Add(-time.Hour)
	for i := range 4 {
		k := Key{Ino: uint64(i)}
		write(t, dir, k, files...)
		require.Less(t, read(t, dir, k).Len(), 100)
		require.Greater(t, read(t, dir, k).Len(), 10)
		at = at.Add(time.Minute)
		require.NoError(t, os.Chtimes(k.path(dir), at, at))
	}
	require.NotZero(t, read(t, dir, Key{}).Len(), "is used, and not the oldest any more")
	write(t, dir, Key{Ino: 4}, files...)
	require.NotZero(t, read(t, dir, Key{}).Len())
	require.Zero(t, read(t, dir, Key{Ino: 1}).Len())
	require.NotZero(t, read(t, dir, Key{Ino: 4}).Len())

	w, err := Create(dir, Key{Ino: 5})
	require.NoError(t, err)
	require.NoError(t, w.Abort())
	_, err = Create(dir, Key{Ino: 6}) // and is killed
	require.NoError(t, err)
	require.NoError(t, Sweep(dir))
	left, err := filepath.Glob(filepath.Join(dir, "*"+newSuffix))
	require.NoError(t, err)
	require.Empty(t, left)
}
