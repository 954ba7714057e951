package chunkstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/dgraph-io/badger/v4/table"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// newestTable gives the number of the newest of the index's tables.
func newestTable(s *Store) uint64 {
	newest := uint64(0)
	for _, t := range s.db.Tables() {
		newest = max(newest, t.ID)
	}
	return newest
}

// merge merges the tables of the index, as upkeep does.
func merge(s *Store) error {
	s.upkeepMu.Lock()
	defer s.upkeepMu.Unlock()
	return s.mergeTables(context.Background())
}

// putTable writes n records of half a MiB and has Badger write a table of them.
func putTable(t *testing.T, s *Store, round, n int) {
	t.Helper()
	r := rand.New(rand.NewPCG(130, uint64(round)))
	for i := range n {
		require.NoError(t, s.Update(context.Background(), true, func(tx *Tx) error {
			return tx.Put("much", fmt.Sprint(i, round), noise(r, 512<<10))
		}))
	}
	s.upkeepMu.Lock()
	defer s.upkeepMu.Unlock()
	require.NoError(t, s.flushMemtable(context.Background()))
}

// numberTable writes tables until one has the last number that was given to any, also to those that came to nothing.
func numberTable(t *testing.T, s *Store) uint64 {
	t.Helper()
	for round := 100; ; round++ {
		putTable(t, s, round, 1)
		newest := newestTable(s)
		awaitUpkeep(t, s)
		if newestTable(s) == newest {
			return newest
		}
	}
}

// TestMergeLosesTable: a directory has the name of a table that a merge is to create, so that Badger does without it. The
// store says so, takes no more writes, is not opened any more, and is rebuilt.
func TestMergeLosesTable(t *testing.T) {
	unraced(t)
	for _, test := range []struct {
		name string
		nth  uint64 // of the tables that are created next
		lose func(s *Store) error
	}{
		{"merge", 1, merge},
		{"a later one", 2, merge},
		{"close", 2, func(s *Store) error { return s.Close() }}, // the first is that of the memtable
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			s, err := Open(dir, Options{})
			require.NoError(t, err)
			for i := range mergeMin + 1 {
				putTable(t, s, i, 1)
			}
			require.NoError(t, merge(s))
			putTable(t, s, 8, 8)
			awaitUpkeep(t, s)
			newest := numberTable(t, s)
			writeMuch(t, s, 1)
			want := records(t, s, "much")
			taken := table.NewFilename(newest+test.nth, filepath.Join(dir, indexName))
			require.NoError(t, os.Mkdir(taken, 0o700))
			require.ErrorIs(t, test.lose(s), ErrIndex)
			require.NotErrorIs(t, s.Update(context.Background(), true, func(tx *Tx) error {
				return tx.Put("b", "more", nil)
			}), nil)
			_ = s.Close()
			require.NoError(t, os.Remove(taken))
			for _, readOnly := range []bool{false, true} {
				_, err = Open(dir, Options{ReadOnly: readOnly})
				require.ErrorIs(t, err, ErrIndex)
			}
			_, err = RebuildIndex(context.Background(), dir, RebuildOptions{})
			require.NoError(t, err)
			s, err = Open(dir, Options{})
			require.NoError(t, err)
			require.Equal(t, want, records(t, s, "much"))
			requireClean(t, s)
			require.NoError(t, s.Close())
		})
	}
}

// TestMergeDescriptors: a merge, and closing the store, need descriptors for new tables, and fail without them before
// anything is lost.
func TestMergeDescriptors(t *testing.T) {
	s, err := Open(t.TempDir(), Options{})
	require.NoError(t, err)
	writeMuch(t, s, 300)
	awaitUpkeep(t, s)
	want := records(t, s, "much")
	few := func(fn func() error) error {
		var old unix.Rlimit
		require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &old))
		open, err := os.ReadDir("/proc/self/fd")
		require.NoError(t, err)
		low := old
		low.Cur = uint64(len(open)) + tablesLast + 2
		require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &low))
		return errors.Join(fn(), unix.Setrlimit(unix.RLIMIT_NOFILE, &old))
	}
	require.ErrorIs(t, few(func() error { return merge(s) }), unix.EMFILE)
	require.Equal(t, want, records(t, s, "much"))
	require.NoError(t, merge(s))
	writeMuch(t, s, 2)
	want = records(t, s, "much")
	require.ErrorIs(t, few(s.Close), unix.EMFILE)
	require.NoError(t, s.Close())
	s, err = Open(s.dir, Options{})
	require.NoError(t, err)
	require.Equal(t, want, records(t, s, "much"))
	requireClean(t, s)
	require.NoError(t, s.Close())
}
