package chunkstore

import (
	"math/rand/v2"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestEmptyLogs removes empty logs that Badger, after a flush, may remove at the same time.
func TestEmptyLogs(t *testing.T) {
	dir := t.TempDir()
	for n := range 300 {
		require.NoError(t, os.WriteFile(memLogPath(dir, n+1), nil, 0o600))
	}
	var both sync.WaitGroup
	errs := make([]error, 2)
	for i := range errs {
		both.Go(func() { errs[i] = removeEmptyLogs(dir) })
	}
	both.Wait()
	require.NoError(t, errs[0])
	require.NoError(t, errs[1])
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}

// TestEmptyTakesLittle: an open store allocates little as long as it has little, and more as it grows.
func TestEmptyTakesLittle(t *testing.T) {
	unraced(t)
	s, err := Open(t.TempDir(), Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	taken := func() int64 {
		n, err := allocatedIn(s.dir)
		require.NoError(t, err)
		return n
	}
	r := rand.New(rand.NewPCG(22, 23))
	write := func(n int) {
		require.NoError(t, s.Update(t.Context(), true, func(tx *Tx) error { return tx.Put("b", "k", noise(r, n)) }))
	}
	write(1000)
	require.Less(t, taken(), int64(1<<20))
	put(t, s, nil, part{"a", noise(r, tinyStore), nil})
	write(1000)
	require.Less(t, taken(), int64(20<<20))
	s.writeMu.Lock()
	require.NoError(t, s.guard.fits(txnMost), "any transaction")
	s.writeMu.Unlock()
	put(t, s, nil, part{"a", noise(r, walAlloc), nil})
	write(1000)
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	require.Equal(t, [2]int64{walAlloc, walAlloc}, [2]int64{s.guard.logAlloc, s.guard.nextAlloc})
	require.True(t, s.guard.reserved)
}
