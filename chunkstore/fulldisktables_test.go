package chunkstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"snapfs/chunkstore/internal/disk"
	"snapfs/chunkstore/internal/sample"
)

const fullDiskCloseDir = "SNAPFS_TEST_FULLDISK_CLOSE_DIR"

// fullDiskCloser opens a store, writes records until the disk has no room for them, and prints what closing the store
// says.
func fullDiskCloser(dir string) {
	s, err := Open(dir, Options{})
	r := rand.New(rand.NewPCG(14, 15))
	for i := 0; err == nil; i++ {
		err = s.Update(context.Background(), true, func(tx *Tx) error {
			return tx.Put("late", fmt.Sprint(i), noise(r, 200<<10))
		})
	}
	if !isFull(err) {
		fmt.Println(err)
		return
	}
	fmt.Println("closed:", s.Close())
}

// TestFullDiskProbe looks for room that is not there, again and again, while Badger writes a table. To look must not take
// the room of that table: the process would end.
func TestFullDiskProbe(t *testing.T) {
	unraced(t)
	mnt := sample.Disk(t, 200, "0")
	dir, ballast := filepath.Join(mnt, "store"), filepath.Join(mnt, "ballast")
	r := rand.New(rand.NewPCG(18, 19))
	s, err := Open(dir, Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	put := func(key string) error {
		return s.Update(context.Background(), true, func(tx *Tx) error { return tx.Put("b", key, noise(r, 800<<10)) })
	}
	require.NoError(t, put("first"))
	awaitUpkeep(t, s)
	s.writeMu.Lock()
	require.NoError(t, s.guard.freeReserve())
	s.writeMu.Unlock()
	fillDisk(t, ballast)
	fi, err := os.Stat(ballast)
	require.NoError(t, err)
	require.NoError(t, os.Truncate(ballast, fi.Size()-2*walAlloc-2*flushRoom-12<<20))
	for i, writing := 0, false; !writing; i++ {
		require.Less(t, i, 30)
		require.NoError(t, put(fmt.Sprint(i)))
		logs, err := filledLogs(s.guard.dir)
		require.NoError(t, err)
		writing = logs > 1
	}
	s.writeMu.Lock()
	for logs := 2; logs > 1; {
		free, _ := disk.Free(dir)
		_ = s.guard.makeRoom(free + 2<<20) // which root has, but for what ext4 keeps
		err = s.guard.makeRoom(1 << 30)
		logs, _ = filledLogs(s.guard.dir)
	}
	s.writeMu.Unlock()
	require.ErrorIs(t, err, unix.ENOSPC)
	require.NoError(t, os.Remove(ballast))
	requireClean(t, s)
}

// TestFullDiskTables has an index whose tables are larger than the room that is left: they are not merged, until
// there are so many that transactions are refused. The store cannot be closed either, and is opened nevertheless.
func TestFullDiskTables(t *testing.T) {
	unraced(t)
	ctx := context.Background()
	mnt := sample.Disk(t, 600, "0")
	dir, ballast := filepath.Join(mnt, "store"), filepath.Join(mnt, "ballast")
	r := rand.New(rand.NewPCG(16, 17))
	s, err := Open(dir, Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	put := func(key string, v []byte) error {
		return s.Update(ctx, true, func(tx *Tx) error { return tx.Put("b", key, v) })
	}
	for i := range 90 {
		require.NoError(t, put(fmt.Sprint(i), noise(r, 800<<10)))
	}
	require.NoError(t, awaitLogs(s.guard.dir))
	awaitUpkeep(t, s)
	leave := func(room int64) {
		t.Helper()
		fillDisk(t, ballast)
		fi, err := os.Stat(ballast)
		require.NoError(t, err)
		require.NoError(t, os.Truncate(ballast, fi.Size()-room))
	}
	s.writeMu.Lock()
	require.NoError(t, s.guard.freeReserve())
	s.writeMu.Unlock()
	leave(40 << 20)
	s.upkeepMu.Lock()
	err = s.mergeTables(ctx)
	s.upkeepMu.Unlock()
	require.ErrorIs(t, err, unix.ENOSPC)
	for err = nil; err == nil; {
		count, _, _ := s.newTables()
		require.Less(t, count, tablesHalt+4)
		if err = put("zeros", make([]byte, 800<<10)); err == nil {
			s.upkeepMu.Lock()
			err = s.flushMemtable(ctx)
			s.upkeepMu.Unlock()
		}
	}
	require.ErrorIs(t, err, unix.ENOSPC)
	require.ErrorContains(t, err, "merge")
	require.NoError(t, os.Remove(ballast))
	for put("room", nil) != nil {
		awaitUpkeep(t, s)
	}
	require.NoError(t, s.Close())

	require.NoError(t, os.RemoveAll(filepath.Join(dir, indexName, reserveName)))
	leave(22 << 20)
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), fullDiskCloseDir+"="+dir)
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "closed: close index: ")
	fillDisk(t, ballast+"2")
	s, err = Open(dir, Options{})
	require.NoError(t, err)
	require.Len(t, records(t, s, "b"), 92)
	require.NotEmpty(t, records(t, s, "late"))
	require.NoError(t, os.Remove(ballast))
	require.NoError(t, os.Remove(ballast+"2"))
	requireClean(t, s)
}
