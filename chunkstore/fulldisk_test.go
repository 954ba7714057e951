package chunkstore

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"snapfs/chunkstore/internal/disk"
	"snapfs/chunkstore/internal/sample"
)

// fillDisk takes all the free space of a file system.
func fillDisk(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if errors.Is(err, unix.ENOSPC) {
		return // not even a name
	}
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	b := make([]byte, 1<<20)
	size := int64(0)
	for ; unix.Fallocate(int(f.Fd()), 0, size, int64(len(b))) == nil; size += int64(len(b)) {
		require.Less(t, size, int64(1<<30))
	}
	_, err = f.Seek(0, io.SeekEnd)
	require.NoError(t, err)
	for len(b) > 0 {
		if _, err := f.Write(b); err != nil {
			require.ErrorIs(t, err, unix.ENOSPC)
			b = b[:len(b)/2]
		}
	}
	_ = f.Sync() // may say that the disk is full, once more
}

// TestFullDisk fills the disk by the store itself, and then by something else, at several steps. Each time the error
// is that of a full disk, what was stored stays readable, and deleting makes room again.
func TestFullDisk(t *testing.T) {
	ctx := context.Background()
	mnt := sample.Disk(t, 200, "0")
	dir := filepath.Join(mnt, "store")
	r := rand.New(rand.NewPCG(10, 11))
	s, err := Open(dir, Options{})
	require.NoError(t, err)
	defer func() { _ = s.Close() }()

	// The store fills the disk.
	var ids []ID
	var want [][]byte
	for {
		data := noise(r, 8<<20)
		m, err := tryPut(s, nil, part{"a", data, nil})
		if err != nil {
			require.ErrorIs(t, err, unix.ENOSPC)
			break
		}
		ids, want = append(ids, m.ID), append(want, data)
		require.Less(t, len(ids), 50)
	}
	require.NotEmpty(t, ids)
	requireClean(t, s)

	// Something else takes what is left.
	ballast := filepath.Join(mnt, "ballast")
	fillDisk(t, ballast)
	for i, id := range ids {
		require.True(t, bytes.Equal(want[i], readAll(t, s, id)))
	}
	_, err = tryPut(s, nil, part{"a", noise(r, 1<<20), nil})
	require.ErrorIs(t, err, unix.ENOSPC)
	deleteManifest(t, s, ids[:len(ids)-1]...)
	st, err := s.GC(ctx, nil)
	require.NoError(t, err)
	require.NotZero(t, st.Bytes)
	m := put(t, s, nil, part{"a", noise(r, 1<<20), nil})
	fillDisk(t, ballast+"2")
	require.NoError(t, s.Close())

	// It kept the space that opening needs, so that a user who finds the disk full can read, delete and collect.
	fillDisk(t, ballast+"3")
	s, err = Open(dir, Options{})
	require.NoError(t, err)
	require.True(t, bytes.Equal(want[len(want)-1], readAll(t, s, ids[len(ids)-1])))
	deleteManifest(t, s, m.ID)
	_, err = s.GC(ctx, nil)
	require.True(t, err == nil || errors.Is(err, unix.ENOSPC), err) // of one pack, a part is dead
	require.NoError(t, s.Close())

	// Without that room a store is not opened on a full disk, and not harmed.
	require.NoError(t, os.Remove(filepath.Join(dir, "index", reserveName)))
	fillDisk(t, ballast+"4")
	s2, err := Open(dir, Options{})
	require.ErrorIs(t, err, unix.ENOSPC)
	require.Nil(t, s2)
	for _, n := range []string{"", "2", "3", "4"} {
		require.NoError(t, os.Remove(ballast+n))
	}
	s, err = Open(dir, Options{})
	require.NoError(t, err)
	require.True(t, bytes.Equal(want[len(want)-1], readAll(t, s, ids[len(ids)-1])))
	requireClean(t, s)
	require.NoError(t, s.Close())
}

// TestFullDiskOfRoot opens a store on a disk that root filled into the blocks reserved for it, where the reserve that
// was given up shows as no free space.
func TestFullDiskOfRoot(t *testing.T) {
	mnt := sample.Disk(t, 400, "20")
	dir, ballast := filepath.Join(mnt, "store"), filepath.Join(mnt, "ballast")
	s, err := Open(dir, Options{})
	require.NoError(t, err)
	data := noise(rand.New(rand.NewPCG(12, 13)), 1<<20)
	m := put(t, s, nil, part{"a", data, nil})
	require.NoError(t, s.Close())
	fillDisk(t, ballast)
	_, err = Open(dir, Options{})
	require.ErrorIs(t, err, unix.ENOSPC)
	fi, err := os.Stat(ballast)
	require.NoError(t, err)
	require.NoError(t, os.Truncate(ballast, fi.Size()-openRoom-8<<20))
	free, err := disk.Free(dir)
	require.NoError(t, err)
	require.Less(t, free, int64(openRoom), "the test wants the room to be root's")
	s, err = Open(dir, Options{})
	require.NoError(t, err)
	require.True(t, bytes.Equal(data, readAll(t, s, m.ID)))
	deleteManifest(t, s, m.ID)
	require.NoError(t, s.Close())
}

// TestFullDiskClose fills the disk when the store has just given back the room for closing: it says so instead of
// ending the process, and closes when there is room.
func TestFullDiskClose(t *testing.T) {
	mnt := sample.Disk(t, 160, "0")
	dir, ballast := filepath.Join(mnt, "store"), filepath.Join(mnt, "ballast")
	filled := false
	s, err := Open(dir, Options{Points: func(point string) {
		if point == "reserve given up" && !filled {
			filled = true
			fillDisk(t, ballast)
		}
	}})
	require.NoError(t, err)
	data := noise(rand.New(rand.NewPCG(14, 15)), 1<<20)
	m := put(t, s, nil, part{"a", data, nil})
	require.ErrorIs(t, s.Close(), unix.ENOSPC)
	require.True(t, filled)
	_, err = tryPut(s, nil, part{"a", data, nil})
	require.ErrorIs(t, err, ErrClosed)
	require.ErrorIs(t, s.Close(), unix.ENOSPC, "once more")
	require.NoError(t, os.Remove(ballast))
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
	s, err = Open(dir, Options{})
	require.NoError(t, err)
	require.True(t, bytes.Equal(data, readAll(t, s, m.ID)))
	requireClean(t, s)
	require.NoError(t, s.Close())
}

// TestFullDiskRecords fills a disk and writes records until the index refuses.
func TestFullDiskRecords(t *testing.T) {
	ctx := context.Background()
	mnt := sample.Disk(t, 160, "0")
	dir := filepath.Join(mnt, "store")
	r := rand.New(rand.NewPCG(12, 13))
	s, err := Open(dir, Options{})
	require.NoError(t, err)
	defer func() { _ = s.Close() }()
	fillDisk(t, filepath.Join(mnt, "ballast"))
	var written [][]byte
	for {
		v := noise(r, 200<<10)
		key := string(rune('a'+len(written)/26)) + string(rune('a'+len(written)%26))
		err := s.Update(ctx, true, func(tx *Tx) error { return tx.Put("b", key, v) })
		if err != nil {
			require.ErrorIs(t, err, unix.ENOSPC)
			break
		}
		written = append(written, v)
		require.Less(t, len(written), 600)
	}
	require.NoError(t, s.Close())
	require.NoError(t, os.Remove(filepath.Join(mnt, "ballast")))
	s, err = Open(dir, Options{})
	require.NoError(t, err)
	require.NoError(t, s.View(ctx, func(tx *Tx) error {
		n := 0
		err := tx.Scan("b", "", func(_ string, v []byte) (bool, error) {
			require.True(t, bytes.Equal(written[n], v))
			n++
			return true, nil
		})
		require.Equal(t, len(written), n)
		return err
	}))
	require.NoError(t, s.Close())
}
