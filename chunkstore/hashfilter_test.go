package chunkstore

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"snapfs/internal/testseed"
)

// TestHashFilter: it has all hashes that were added, through several levels, and few others.
func TestHashFilter(t *testing.T) {
	unraced(t)
	f := newHashFilter(1000)
	for i := range 1000 {
		f.fill(nthHash(i))
	}
	const all = 400_000
	for i := 1000; i < all; i++ {
		f.add(nthHash(i))
	}
	for i := range all {
		if !f.has(nthHash(i)) {
			t.Fatal(i)
		}
	}
	require.Greater(t, len(*f.levels.Load()), 2)
	require.LessOrEqual(t, f.blocks()*filterBytes, 4*all)
	require.Less(t, falsely(f, all), 0.01)

	// At its bound it takes more hashes into what it has.
	small := newHashFilter(0)
	small.most = filterFirst + 10
	for i := range 2 * small.most * filterHashes {
		small.add(nthHash(i))
	}
	require.Equal(t, small.most, small.blocks())
	for i := range 2 * small.most * filterHashes {
		if !small.has(nthHash(i)) {
			t.Fatal(i)
		}
	}
}

// falsely returns the share of hashes that a filter has although they were not added.
func falsely(f *hashFilter, added int) float64 {
	const tries = 20_000
	n := 0
	for i := range tries {
		if f.has(nthHash(added + 1<<30 + i)) {
			n++
		}
	}
	return float64(n) / tries
}

// TestFilterMade: a new store has a filter. In one that is opened again, an ingest that misses much has it made, beside
// transactions; nothing is missing in it.
func TestFilterMade(t *testing.T) {
	ctx := t.Context()
	r := rand.New(rand.NewPCG(testseed.Of(t), 8))
	dir := t.TempDir()
	s := openTest(t, dir)
	require.NotNil(t, s.hashes.filter.Load())
	fillHashes(t, s, 30_000)
	require.NoError(t, s.update(func(w *writeTxn) error {
		w.state.stale += 30_000
		return nil
	}))
	pushNumbers(t, s, 1<<20)
	require.True(t, s.hashes.lacks(nthHash(30_000)))
	known := noise(r, 3000)
	first := put(t, s, nil, part{"known", known, nil})
	require.NotZero(t, first.New)
	require.Zero(t, put(t, s, nil, part{"again", known, nil}).New)
	require.NoError(t, s.Close())

	s = openTest(t, dir)
	require.Nil(t, s.hashes.filter.Load())
	require.Zero(t, put(t, s, nil, part{"again", known, nil}).New)
	var writer sync.WaitGroup
	done := make(chan struct{})
	written := 30_000
	writer.Go(func() {
		for ; ; written++ {
			select {
			case <-done:
				return
			default:
			}
			if err := s.update(func(w *writeTxn) error { return w.set(hashKey(nthHash(written)), []byte{1}) }); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for range 2 * filterMisses {
		s.missedOne()
	}
	for s.hashes.filter.Load() == nil {
		time.Sleep(time.Millisecond)
	}
	close(done)
	writer.Wait()
	for i := range written {
		if s.hashes.lacks(nthHash(i)) {
			t.Fatal(i)
		}
	}
	require.True(t, s.hashes.lacks(nthHash(1<<30)))
	require.Zero(t, put(t, s, nil, part{"again", known, nil}).New)
	fresh := noise(r, 3000)
	require.NotZero(t, put(t, s, nil, part{"new", fresh, nil}).New)
	require.Zero(t, put(t, s, nil, part{"new again", fresh, nil}).New)
	require.NoError(t, s.shrinkIndex(context.WithoutCancel(ctx)))
}
