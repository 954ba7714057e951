package chunkstore

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	badger "github.com/dgraph-io/badger/v4"
	"github.com/stretchr/testify/require"
)

func TestIndexCacheFor(t *testing.T) {
	for _, c := range []struct{ tables, memory, want int64 }{
		{0, 1 << 40, 8 << 20},
		{10 << 20, 1 << 40, 30 << 20},
		{1 << 30, 1 << 40, 256 << 20},
		{1 << 30, 1 << 30, 32 << 20},
		{1 << 30, 64 << 20, 8 << 20},
	} {
		require.Equal(t, c.want, indexCacheFor(c.tables, c.memory), "%+v", c)
	}
}

// TestIndexCacheGrows: the cache follows the index while the store is open, and when it is opened again.
func TestIndexCacheGrows(t *testing.T) {
	unraced(t)
	dir := t.TempDir()
	s := openTest(t, dir)
	size := func() int64 {
		n, err := s.db.CacheMaxCost(badger.BlockCache, -1)
		require.NoError(t, err)
		return n
	}
	require.Equal(t, int64(indexCacheMin), size())
	fillHashes(t, s, 150_000)
	require.NoError(t, s.shrinkIndex(context.Background()))
	grown := size()
	require.Greater(t, grown, int64(indexCacheMin))
	st, err := s.Stats(t.Context())
	require.NoError(t, err)
	require.Equal(t, grown+int64(s.hashes.filter.Load().blocks())*filterBytes, st.IndexCache)
	require.NoError(t, s.Close())
	s = openTest(t, dir)
	require.Greater(t, size(), int64(indexCacheMin))
}

// fillHashes adds hashes of n chunks that are not there, as of collected ones.
func fillHashes(t testing.TB, s *Store, n int) {
	for from := 0; from < n; from += 10_000 {
		require.NoError(t, s.update(func(w *writeTxn) error {
			for i := from; i < min(from+10_000, n); i++ {
				if err := w.set(hashKey(nthHash(i)), binary.AppendUvarint(nil, uint64(i))); err != nil {
					return err
				}
			}
			return nil
		}))
	}
}

func nthHash(i int) hash { return hashOf(binary.BigEndian.AppendUint64(nil, uint64(i))) }

// BenchmarkLookup looks up hashes in an index of 1,500,000, in random order, with the smallest cache and with the one
// that the store chooses.
func BenchmarkLookup(b *testing.B) {
	const chunks = 1_500_000
	s, err := Open(b.TempDir(), Options{})
	require.NoError(b, err)
	defer func() { require.NoError(b, s.Close()) }()
	fillHashes(b, s, chunks)
	require.NoError(b, s.shrinkIndex(context.Background()))
	index, err := allocatedIn(s.guard.dir)
	require.NoError(b, err)
	chosen, err := s.db.CacheMaxCost(badger.BlockCache, -1)
	require.NoError(b, err)
	for _, size := range []int64{indexCacheMin, chosen} {
		for _, present := range []bool{true, false} {
			b.Run(fmt.Sprintf("cache=%dMiB/present=%t", size>>20, present), func(b *testing.B) {
				_, err := s.db.CacheMaxCost(badger.BlockCache, size)
				require.NoError(b, err)
				r := rand.New(rand.NewPCG(1, 1))
				look := func() {
					i := r.IntN(chunks)
					if !present {
						i += chunks
					}
					if _, err := s.lookup(nthHash(i)); (err == nil) != present {
						b.Fatal(err)
					}
				}
				for range 100_000 {
					look() // fills the cache
				}
				start := cpuTime(b)
				n := 0
				for b.Loop() {
					look()
					n++
				}
				b.ReportMetric(float64((cpuTime(b)-start).Nanoseconds())/float64(n), "cpu-ns/op")
				b.ReportMetric(float64(index)/chunks, "index-B/chunk")
			})
		}
	}
}
