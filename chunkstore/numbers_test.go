package chunkstore

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
	"github.com/stretchr/testify/require"

	"snapfs/internal/testseed"
)

// pushNumbers makes the next chunk number what it is in a store that has given out all before it.
func pushNumbers(t *testing.T, s *Store, next uint64) {
	t.Helper()
	s.numMu.Lock()
	defer s.numMu.Unlock()
	require.GreaterOrEqual(t, next, s.nextNum)
	require.NoError(t, s.update(func(w *writeTxn) error {
		w.state.lease = next
		return nil
	}))
	s.nextNum, s.lease = next, next
}

// wideNumbers are where something in the formats or in memory is another from.
var wideNumbers = []uint64{1<<32 - 3, 1<<32 + 70_000, 1<<40 - 3, 1<<40 + 1<<20, 1 << 60}

// TestWideNumbers stores, reads, copies, deletes, collects, optimizes, checks and rebuilds with high chunk numbers, in
// a store that also has low ones.
func TestWideNumbers(t *testing.T) {
	unraced(t)
	for _, first := range wideNumbers {
		t.Run(fmt.Sprintf("%#x", first), func(t *testing.T) { testWideNumbers(t, first) })
	}
}

func testWideNumbers(t *testing.T, first uint64) {
	ctx := t.Context()
	r := rand.New(rand.NewPCG(testseed.Of(t), 7))
	dir := t.TempDir()
	s := openTest(t, dir)
	low, wantLow := history(t, s, r, 3)
	pushNumbers(t, s, first)
	high, wantHigh := history(t, s, r, 6)
	ids, want := slices.Concat(low, high), slices.Concat(wantLow, wantHigh)
	again := func() {
		t.Helper()
		for i, id := range ids {
			require.True(t, bytes.Equal(want[i], readAll(t, s, id)), "manifest %d", id)
		}
		requireClean(t, s)
	}
	again()
	m, err := s.manifest(high[0])
	require.NoError(t, err)
	require.Equal(t, first, m.runs[0].first)
	require.NoError(t, s.Close())
	s = openTest(t, dir)
	again()

	// A copy names the same chunks.
	in, err := s.NewIngest(ctx, IngestOptions{Kind: KindDocument})
	require.NoError(t, err)
	require.NoError(t, in.Hint(Hint{Path: "copy", Size: int64(len(want[4]))}))
	open, err := s.OpenManifest(ctx, ids[4])
	require.NoError(t, err)
	require.NoError(t, in.Copy(Range{ids[4], 0, int64(len(want[4]))}))
	copied, err := in.Commit(ctx, nil)
	require.NoError(t, err)
	require.NoError(t, open.Close())
	ids, want = append(ids, copied.ID), append(want, want[4])

	// A reader keeps what was deleted, and it is accounted for.
	gone := []ID{ids[1], ids[3], ids[5]}
	open, err = s.OpenManifest(ctx, ids[5])
	require.NoError(t, err)
	for _, id := range gone {
		i := slices.Index(ids, id)
		ids, want = slices.Delete(ids, i, i+1), slices.Delete(want, i, i+1)
	}
	deleteManifest(t, s, gone...)
	_, err = s.Compact(ctx, nil)
	require.NoError(t, err)
	_, _, err = s.Held(ctx, gone)
	require.NoError(t, err)
	require.NoError(t, open.Close())
	_, err = s.Compact(ctx, nil)
	require.NoError(t, err)
	again()
	u, err := s.Usage(ctx, ids...)
	require.NoError(t, err)
	st, err := s.Stats(ctx)
	require.NoError(t, err)
	require.Equal(t, u.Stored, st.Payload)
	_, err = s.Optimize(ctx, nil)
	require.NoError(t, err)
	require.Zero(t, s.Unoptimized())
	again()

	// A rebuilt index has the same, and gives out higher numbers only.
	next := s.nextNum
	require.NoError(t, s.Close())
	require.NoError(t, os.RemoveAll(filepath.Join(dir, indexName)))
	res, err := RebuildIndex(ctx, dir, RebuildOptions{})
	require.NoError(t, err)
	require.Empty(t, res.Problems)
	s = openTest(t, dir)
	require.GreaterOrEqual(t, s.nextNum, next)
	again()
	more, wantMore := history(t, s, r, 2)
	ids, want = append(ids, more...), append(want, wantMore...)
	again()
	deleteManifest(t, s, ids...)
	_, err = s.Compact(ctx, nil)
	require.NoError(t, err)
	st, err = s.Stats(ctx)
	require.NoError(t, err)
	require.Zero(t, st.Chunks)
	require.Zero(t, st.Payload)
	requireClean(t, s)
}

// TestNumbersEnd: the last number is an error, not another chunk's number.
func TestNumbersEnd(t *testing.T) {
	s := openTest(t, t.TempDir())
	r := rand.New(rand.NewPCG(testseed.Of(t), 7))
	pushNumbers(t, s, endNumber-leaseStep-1)
	data := noise(r, 1000)
	m := put(t, s, nil, part{"a", data, nil})
	pushNumbers(t, s, s.lease)
	_, err := tryPut(s, nil, part{"b", noise(r, 1000), nil})
	require.ErrorIs(t, err, errNumbers)
	require.True(t, bytes.Equal(data, readAll(t, s, m.ID)))
	_, err = s.GC(t.Context(), nil)
	require.NoError(t, err)
	requireClean(t, s)
}

// TestNumbersMemory: what a collection, an accounting and a check take follows the chunks that there are, not how many
// there were.
func TestNumbersMemory(t *testing.T) {
	ctx := t.Context()
	s := openTest(t, t.TempDir())
	r := rand.New(rand.NewPCG(testseed.Of(t), 7))
	var ids []ID
	for i := range 40 {
		pushNumbers(t, s, uint64(i+1)<<40)
		ids = append(ids, put(t, s, nil, part{fmt.Sprint(i), noise(r, 5000), nil}).ID)
	}
	deleteManifest(t, s, ids[3], ids[20])
	most := allocated(func() {
		_, err := s.Stats(ctx)
		require.NoError(t, err)
	}, func() {
		_, err := s.Check(ctx, CheckOptions{ReadData: true})
		require.NoError(t, err)
	}, func() {
		st, err := s.GC(ctx, nil)
		require.NoError(t, err)
		require.EqualValues(t, 2, st.Chunks)
	}, func() {
		_, err := s.Optimize(ctx, nil)
		require.NoError(t, err)
	})
	require.Less(t, most, uint64(256<<20))
}

// allocated returns the most bytes that one of some functions allocates.
func allocated(fns ...func()) (most uint64) {
	for _, fn := range fns {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		fn()
		runtime.ReadMemStats(&after)
		most = max(most, after.TotalAlloc-before.TotalAlloc)
	}
	return most
}

// TestNumberKeys: keys are in the order of their numbers, and those of earlier versions are what they were.
func TestNumberKeys(t *testing.T) {
	require.Equal(t, []byte{keyPage, 0, 1, 2, 3}, pageKey(0x010203))
	nums := []uint64{0, 1, 255, 256, math.MaxUint32 - 1, math.MaxUint32, math.MaxUint32 + 1, 1 << 33, 1 << 40, 1 << 62}
	var last []byte
	for _, n := range nums {
		key := pageKey(n)
		require.Negative(t, bytes.Compare(last, key))
		last = key
		back, err := parseNumber(key)
		require.NoError(t, err)
		require.Equal(t, n, back)
	}
	long := pageKey(1 << 40)
	for _, bad := range [][]byte{
		{keyPage},
		{keyPage, 1, 2, 3},
		long[:12], append(bytes.Clone(long), 0),
		{keyPage, 255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 7},
		{keyPage, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0},
	} {
		_, err := parseNumber(bad)
		require.ErrorIs(t, err, ErrCorrupt, "%x", bad)
	}
}

// TestBitset compares it with a bitmap.
func TestBitset(t *testing.T) {
	r := rand.New(rand.NewPCG(testseed.Of(t), 7))
	b, want := &bitset{}, roaring64.New()
	num := func() uint64 {
		base := []uint64{0, 5000, 1<<32 - 100, 1 << 40, math.MaxUint64 - 9000}[r.IntN(5)]
		return base + r.Uint64N(9000)
	}
	for range 20_000 {
		n := num()
		require.Equal(t, want.Contains(n), b.has(n))
		n = num()
		require.Equal(t, want.CheckedAdd(n), b.add(n))
	}
	for range 300 {
		first := num()
		end := first + min(r.Uint64N(5000), math.MaxUint64-first)
		b.addRange(first, end)
		want.AddRange(first, end)
	}
	own := b.clone()
	require.True(t, want.Equals(own.bitmap()))
	own.add(1 << 50)
	require.False(t, b.has(1<<50))
	require.True(t, want.Equals(b.bitmap()))
	require.True(t, (&bitset{}).bitmap().IsEmpty())
}

// BenchmarkMark measures what a collection, an accounting and statistics take in a store of many chunks.
func BenchmarkMark(b *testing.B) {
	ctx := context.Background()
	s, err := Open(b.TempDir(), Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	r := rand.New(rand.NewPCG(90, 91))
	var ids []ID
	for range 40 {
		parts := make([]part, 5000)
		for k := range parts {
			parts[k] = part{"f", noise(r, 24), nil}
		}
		m, err := tryPut(s, nil, parts...)
		if err != nil {
			b.Fatal(err)
		}
		ids = append(ids, m.ID)
	}
	try := func(name string, fn func() error) {
		b.Run(name, func(b *testing.B) {
			start := cpuTime(b)
			for b.Loop() {
				if err := fn(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64((cpuTime(b)-start).Milliseconds())/float64(b.N), "cpu-ms/op")
		})
	}
	try("mark", func() error { return (&collection{s: s, policy: automatic}).mark(ctx) })
	try("usage", func() error {
		_, err := s.Usage(ctx, ids[1], ids[2])
		return err
	})
	try("stats", func() error {
		s.liveChanged()
		_, err := s.livePayload(ctx)
		return err
	})
	try("held", func() error {
		_, _, err := s.Held(ctx, ids[:1])
		return err
	})
}
