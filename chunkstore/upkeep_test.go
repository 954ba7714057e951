package chunkstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// beside returns a listener that, at a point, lets another goroutine write a record, and waits for that. It gives up
// after a time that only a transaction that waits for the upkeep needs.
func beside(t *testing.T, s **Store, point string) (listen func(string), times *int) {
	t.Helper()
	var mu sync.Mutex
	times = new(int)
	inside := false
	return func(at string) {
		mu.Lock()
		if at != point || inside || *times > 0 {
			mu.Unlock()
			return
		}
		inside = true
		*times++
		mu.Unlock()
		done := make(chan error, 1)
		go func() {
			done <- (*s).Update(context.Background(), true, func(tx *Tx) error {
				return tx.Put("beside", point, []byte("written"))
			})
		}()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("a transaction at %q: %v", point, err)
			}
		case <-time.After(time.Minute):
			t.Errorf("a transaction waits at %q", point)
		}
		mu.Lock()
		inside = false
		mu.Unlock()
	}, times
}

// awaitUpkeep waits until the store has done what it does beside transactions.
func awaitUpkeep(t *testing.T, s *Store) {
	t.Helper()
	for {
		s.writeMu.Lock()
		running := s.upkeep.running
		s.writeMu.Unlock()
		if !running {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// writeMuch writes records of random bytes, n of 100 KiB.
func writeMuch(t *testing.T, s *Store, n int) {
	t.Helper()
	r := rand.New(rand.NewPCG(120, 121))
	for i := range n {
		v := noise(r, 100<<10)
		require.NoError(t, s.Update(context.Background(), true, func(tx *Tx) error {
			return tx.Put("much", fmt.Sprint(i%8), v)
		}))
	}
}

// requireJournaled rebuilds a copy of a store from its journal, whatever its index says.
func requireJournaled(t *testing.T, dir string) {
	t.Helper()
	copied := filepath.Join(t.TempDir(), "copy")
	s, err := Open(dir, Options{})
	require.NoError(t, err)
	want := map[string]map[string]string{"much": records(t, s, "much"), "beside": records(t, s, "beside")}
	requireClean(t, s)
	require.NoError(t, s.Close())
	require.NoError(t, os.CopyFS(copied, os.DirFS(dir)))
	require.NoError(t, os.RemoveAll(filepath.Join(copied, indexName)))
	res, err := RebuildIndex(context.Background(), copied, RebuildOptions{})
	require.NoError(t, err)
	require.Empty(t, res.Problems)
	s = openTest(t, copied)
	for bucket := range want {
		require.Equal(t, want[bucket], records(t, s, bucket))
	}
	require.NoError(t, s.Close())
}

// copyCrashed copies a store as a crash would leave it: while no transaction is committed.
func copyCrashed(t *testing.T, dir, to string) {
	t.Helper()
	count := func() string {
		b, err := os.ReadFile(filepath.Join(dir, counterName))
		require.NoError(t, err)
		return string(b)
	}
	for before := count(); ; before = count() {
		require.NoError(t, os.CopyFS(to, os.DirFS(dir)))
		if count() == before {
			return
		}
		require.NoError(t, os.RemoveAll(to))
	}
}

// TestJournalBeside has the journal rewritten because it has grown. A transaction is done between any two steps of
// that, and what a crash leaves at each of them is complete.
func TestJournalBeside(t *testing.T) {
	for _, point := range []string{"journal copied", "journal replaced"} {
		dir, crashed := filepath.Join(t.TempDir(), "s"), filepath.Join(t.TempDir(), "crashed")
		var s *Store
		listen, times := beside(t, &s, point)
		s, err := Open(dir, Options{Points: func(at string) {
			listen(at)
			if _, err := os.Stat(crashed); at == point && err != nil {
				copyCrashed(t, dir, crashed)
			}
		}})
		require.NoError(t, err)
		for *times == 0 {
			writeMuch(t, s, 30)
			awaitUpkeep(t, s)
		}
		s.writeMu.Lock()
		base, end := s.state.journalBase, s.state.journalEnd
		s.writeMu.Unlock()
		require.NotZero(t, base)
		require.Less(t, end, int64(8<<20), "the journal only grows")
		require.Equal(t, map[string]string{point: "written"}, records(t, s, "beside"))
		require.NoError(t, s.Close())
		requireJournaled(t, dir)
		requireJournaled(t, crashed)
	}
}

// TestJournalCarries writes more while the journal is rewritten than the last step may copy.
func TestJournalCarries(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	var s *Store
	once := sync.Once{}
	s, err := Open(dir, Options{Points: func(at string) {
		if at == "journal copied" {
			once.Do(func() { writeMuch(t, s, 20) })
		}
	}})
	require.NoError(t, err)
	writeMuch(t, s, 8)
	require.NoError(t, s.rewriteJournal(context.Background(), true))
	require.NoError(t, s.Update(context.Background(), true, func(tx *Tx) error { return tx.Delete("much", "3") }))
	requireClean(t, s)
	require.NoError(t, s.Close())
	requireJournaled(t, dir)
}

// TestJournalAbandoned goes on without a journal, as on a full disk: the next one is begun by a transaction, without
// what the index has, and completed beside others.
func TestJournalAbandoned(t *testing.T) {
	ctx := context.Background()
	dir, crashed := filepath.Join(t.TempDir(), "s"), filepath.Join(t.TempDir(), "crashed")
	var s *Store
	abandoned := false
	listen, times := beside(t, &s, "journal copied")
	s, err := Open(dir, Options{Points: func(at string) {
		if abandoned {
			listen(at)
		}
		if abandoned && at == "journal copied" {
			require.NoError(t, os.CopyFS(crashed, os.DirFS(dir)))
		}
	}})
	require.NoError(t, err)
	writeMuch(t, s, 8)
	awaitUpkeep(t, s)
	s.writeMu.Lock()
	s.state.journal, s.state.journalEnd, s.state.journalBase = 0, 0, 0
	s.journal.drop(s, s.journal.use(nil, 0))
	abandoned = true
	s.writeMu.Unlock()
	require.NoError(t, s.Update(ctx, true, func(tx *Tx) error { return tx.Put("much", "anew", []byte("x")) }))
	awaitUpkeep(t, s)
	require.Equal(t, 1, *times)
	s.writeMu.Lock()
	require.NotZero(t, s.state.journalBase)
	s.writeMu.Unlock()
	requireClean(t, s)
	require.NoError(t, s.Close())
	requireJournaled(t, dir)
	requireJournaled(t, crashed)
}

// TestShrinkBeside flushes and merges the tables of the index, which gives back the space of what was overwritten, while
// a transaction is done.
func TestShrinkBeside(t *testing.T) {
	for _, point := range []string{"index flushes", "index flushed", "tables verified", "tables merged"} {
		dir := t.TempDir()
		s := openTest(t, dir)
		writeMuch(t, s, 8)
		require.NoError(t, s.Close())
		listen, times := beside(t, &s, point)
		s, err := Open(dir, Options{Points: listen})
		require.NoError(t, err)
		writeMuch(t, s, 24) // three times each
		require.NoError(t, s.shrinkIndex(context.Background()))
		require.Equal(t, 1, *times, point)
		size := uint32(0)
		for _, table := range s.db.Tables() {
			size += table.OnDiskSize
		}
		require.Less(t, size, uint32(1<<20), "8 values of 100 KiB")
		requireClean(t, s)
		require.NoError(t, s.Close())
		s = openTest(t, dir)
		require.Equal(t, map[string]string{point: "written"}, records(t, s, "beside"))
		require.NoError(t, s.Close())
	}
}

// TestShortSteps collects many chunks: no transaction of that is so large that others wait for long.
func TestShortSteps(t *testing.T) {
	ctx := context.Background()
	s := openTest(t, t.TempDir())
	r := rand.New(rand.NewPCG(122, 123))
	var parts []part
	for range 8 * shortEntries {
		parts = append(parts, part{path: "f", data: noise(r, 30)})
	}
	m := put(t, s, nil, parts...)
	keep := put(t, s, nil, part{"kept", noise(r, 100), nil})
	deleteManifest(t, s, m.ID)
	before := s.state.txns
	st, err := s.GC(ctx, nil)
	require.NoError(t, err)
	require.EqualValues(t, len(parts), st.Chunks)
	require.GreaterOrEqual(t, s.state.txns-before, uint64(8+8), "of 4000 hashes and 4000 slots")
	require.Len(t, readAll(t, s, keep.ID), 100)
	requireClean(t, s)
}
