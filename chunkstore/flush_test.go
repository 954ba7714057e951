package chunkstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"snapfs/chunkstore/internal/sample"
)

// writtenTo gives the bytes that were written to the device of a path's file system.
func writtenTo(t *testing.T, path string) int64 {
	t.Helper()
	d, err := os.Open(path)
	require.NoError(t, err)
	require.NoError(t, unix.Syncfs(int(d.Fd())))
	require.NoError(t, d.Close())
	var st unix.Stat_t
	require.NoError(t, unix.Stat(path, &st))
	b, err := os.ReadFile(fmt.Sprintf("/sys/dev/block/%d:%d/stat", unix.Major(st.Dev), unix.Minor(st.Dev)))
	require.NoError(t, err)
	sectors, err := strconv.ParseInt(strings.Fields(string(b))[6], 10, 64)
	require.NoError(t, err)
	return sectors * 512
}

// TestFlushWritesLittle: what fills a memtable does not reach the disk, and transactions beside it are whole after a
// crash.
func TestFlushWritesLittle(t *testing.T) {
	unraced(t)
	mnt := sample.Disk(t, 300, "0")
	dir := filepath.Join(mnt, "store")
	s, err := Open(dir, Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	r := rand.New(rand.NewPCG(18, 19))
	want := noise(r, worthFlush)
	least := int64(1 << 30)
	for i := range 3 { // the kernel writes what is old by itself
		require.NoError(t, s.Update(context.Background(), true, func(tx *Tx) error {
			return tx.Put("b", fmt.Sprint(i), want)
		}))
		count, _, _ := s.newTables()
		before := writtenTo(t, mnt)
		s.upkeepMu.Lock()
		err := s.flushMemtable(context.Background())
		s.upkeepMu.Unlock()
		require.NoError(t, err)
		least = min(least, writtenTo(t, mnt)-before)
		after, _, _ := s.newTables()
		require.Equal(t, count+1, after)
	}
	require.Less(t, least, int64(memTableSize/4))
	crashed := filepath.Join(t.TempDir(), "crashed")
	copyCrashed(t, dir, crashed)
	c, err := Open(crashed, Options{})
	require.NoError(t, err)
	require.Len(t, records(t, c, "b"), 3)
	require.NoError(t, c.Close())
}
