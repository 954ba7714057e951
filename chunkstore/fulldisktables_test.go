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

// TestFullDiskTables has an index whose tables are larger than the room that is left: they are not merged. The store
// cannot be closed either, and is opened nevertheless.
func TestFullDiskTables(t *testing.T) {
	ctx := context.Background()
	mnt := smallDisk(t, 600, "0")
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
	require.Len(t, records(t, s, "b"), 91)
	require.NotEmpty(t, records(t, s, "late"))
	require.NoError(t, os.Remove(ballast))
	require.NoError(t, os.Remove(ballast+"2"))
	requireClean(t, s)
}
