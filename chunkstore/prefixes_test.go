package chunkstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"snapfs/chunkstore/internal/corrupt"
	"snapfs/chunkstore/internal/pack"
	"snapfs/internal/testseed"
)

// alike makes files of which some have pieces in common, but no two are similar.
func alike(r *rand.Rand, count int) (files []part) {
	pieces := make([][]byte, 150)
	for i := range pieces {
		pieces[i] = noise(r, 700)
	}
	for i := range count {
		var b []byte
		for range 3 {
			b = append(append(b, noise(r, 1000)...), pieces[r.IntN(len(pieces))]...)
		}
		files = append(files, part{path: fmt.Sprintf("%d/%d.txt", r.IntN(3), i), data: b})
	}
	return files
}

// putAlike stores files in a store that gives them a prefix, as each half of a tree.
func putAlike(t *testing.T, s *Store, r *rand.Rand) (ids []ID, want [][]byte) {
	t.Helper()
	s.prefixFrom = 1 << 20
	files := alike(r, 600)
	for _, half := range [][]part{files[:300], files[300:]} {
		ids = append(ids, put(t, s, nil, half...).ID)
		want = append(want, join(nil, half...))
	}
	return ids, want
}

func requirePrefixes(t *testing.T, s *Store, count uint64) {
	t.Helper()
	set, err := s.prefixes(t.Context())
	require.NoError(t, err)
	require.Equal(t, count, set.GetCardinality())
	for it := set.Iterator(); it.HasNext(); {
		rec, _, err := s.locate(it.Next())
		require.NoError(t, err)
		require.Zero(t, rec.rank())
	}
}

// TestPrefix: what blocks have in common is stored once. All that reads, moves, checks and rebuilds them knows of it,
// and a collection gives it up when too little needs it.
func TestPrefix(t *testing.T) {
	ctx := t.Context()
	r := rand.New(rand.NewPCG(testseed.Of(t), 2))
	dir := t.TempDir()
	s := openTest(t, dir)
	ids, want := putAlike(t, s, r)
	before, err := s.Stats(ctx)
	require.NoError(t, err)
	_, err = s.Optimize(ctx, nil)
	require.NoError(t, err)
	require.Zero(t, s.Unoptimized())
	requirePrefixes(t, s, 1)
	after, err := s.Stats(ctx)
	require.NoError(t, err)
	require.Less(t, after.Payload, before.Payload*85/100)
	requireClean(t, s)
	again, err := s.Optimize(ctx, nil)
	require.NoError(t, err)
	require.Zero(t, again.Rewritten)

	m := put(t, s, nil, part{"twice", want[1], nil})
	deleteManifest(t, s, m.ID)
	require.NoError(t, s.Close())
	res, err := RebuildIndex(ctx, dir, RebuildOptions{})
	require.NoError(t, err)
	require.Empty(t, res.Problems)
	s = openTest(t, dir)
	requirePrefixes(t, s, 1)
	for i, id := range ids {
		require.True(t, bytes.Equal(want[i], readAll(t, s, id)))
	}

	// Half of each block dies: the other half is encoded anew, with the prefix.
	deleteManifest(t, s, ids[0])
	st, err := s.GC(ctx, nil)
	require.NoError(t, err)
	require.NotZero(t, st.Rewritten)
	requirePrefixes(t, s, 1)
	requireClean(t, s)
	require.True(t, bytes.Equal(want[1], readAll(t, s, ids[1])))

	// Later chunks have a prefix of their own.
	more, wantMore := putAlike(t, s, r)
	_, err = s.Optimize(ctx, nil)
	require.NoError(t, err)
	requirePrefixes(t, s, 2)
	require.True(t, bytes.Equal(wantMore[0], readAll(t, s, more[0])))

	// Of the last manifest only a few chunks are left.
	in, err := s.NewIngest(ctx, IngestOptions{Kind: KindImage})
	require.NoError(t, err)
	defer in.Abort()
	rd, err := s.OpenManifest(ctx, ids[1])
	require.NoError(t, err)
	require.NoError(t, in.Hint(Hint{Size: -1}))
	require.NoError(t, in.Copy(Range{Manifest: ids[1], Len: 5100}))
	last, err := in.Commit(ctx, nil)
	require.NoError(t, err)
	require.NoError(t, rd.Close())
	deleteManifest(t, s, append(more, ids[1])...)
	_, err = s.Compact(ctx, nil)
	require.NoError(t, err)
	requirePrefixes(t, s, 0)
	require.True(t, bytes.Equal(want[1][:5100], readAll(t, s, last.ID)))
	now, err := s.Stats(ctx)
	require.NoError(t, err)
	require.Less(t, now.Payload, int64(8000))
	requireClean(t, s)
}

// TestPrefixInterrupted: an interrupted Optimize leaves no prefix that nothing needs. The next one makes it.
func TestPrefixInterrupted(t *testing.T) {
	ctx := t.Context()
	r := rand.New(rand.NewPCG(testseed.Of(t), 3))
	s := openTest(t, t.TempDir())
	ids, want := putAlike(t, s, r)
	stopped, stop := context.WithCancel(ctx)
	_, err := s.Optimize(stopped, func(done, _ int64) {
		if done > 300 {
			stop()
		}
	})
	require.True(t, errors.Is(err, context.Canceled), "%v", err)
	requirePrefixes(t, s, 0)
	_, err = s.Optimize(ctx, nil)
	require.NoError(t, err)
	requirePrefixes(t, s, 1)
	for i, id := range ids {
		require.True(t, bytes.Equal(want[i], readAll(t, s, id)))
	}
}

// TestNoPrefix: what has nothing in common gets none.
func TestNoPrefix(t *testing.T) {
	r := rand.New(rand.NewPCG(testseed.Of(t), 4))
	s := openTest(t, t.TempDir())
	s.prefixFrom = 1 << 20
	var files []part
	for i := range 300 {
		files = append(files, part{path: fmt.Sprint(i), data: noise(r, 5000)})
	}
	put(t, s, nil, files...)
	_, err := s.Optimize(t.Context(), nil)
	require.NoError(t, err)
	requirePrefixes(t, s, 0)
}

// TestPrefixRank: a block whose base has a base itself, which only a forged record says, is refused before anything is
// decoded: decoders could wait for each other.
func TestPrefixRank(t *testing.T) {
	s := openTest(t, t.TempDir())
	recs := map[uint64]*located{
		1: {bases: []uint64{2}}, 2: {bases: []uint64{1}}, 3: {delta: true, gen: 1, bases: []uint64{1}},
	}
	loc := func(num uint64) (*located, int, error) { return recs[num], 10, nil }
	for _, base := range []uint64{1, 2, 3} {
		_, err := s.dictionary(loc, &pack.Record{Kind: pack.Block, Bases: []uint64{base}})
		require.ErrorIs(t, err, corrupt.Err)
	}
	_, err := s.dictionary(loc, &pack.Record{Kind: pack.Delta, Gen: 1, Bases: []uint64{3}})
	require.ErrorIs(t, err, corrupt.Err)

	pg := &page{}
	for num, rec := range recs {
		rec.Pack, rec.Off, rec.Len = 1, int64(100*num), 50
		pg.slots[num] = slot{rec, 10}
	}
	got, err := parsePage(appendPage(nil, 0, pg), 0)
	require.NoError(t, err)
	require.Equal(t, pg, got)
	pg.slots[1].rec.bases = []uint64{2, 3} // a block has one
	_, err = parsePage(appendPage(nil, 0, pg), 0)
	require.ErrorIs(t, err, corrupt.Err)
}

// TestRepairPrefix: a prefix has a wrong byte, which few blocks refer to. Repairing removes what is wrong, not all that
// has the prefix.
func TestRepairPrefix(t *testing.T) {
	unraced(t)
	ctx := t.Context()
	r := rand.New(rand.NewPCG(testseed.Of(t), 3))
	s, err := Open(t.TempDir(), Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	s.prefixFrom = 1 << 20
	var files []part
	for group := range 4 { // each has its own pieces in common
		for i, f := range alike(r, 300) {
			f.path = fmt.Sprintf("%d/%d.txt", group, i)
			files = append(files, f)
		}
	}
	put(t, s, nil, files...)
	_, err = s.Optimize(ctx, nil)
	require.NoError(t, err)
	requirePrefixes(t, s, 1)
	set, err := s.prefixes(ctx)
	require.NoError(t, err)
	num := set.Minimum()
	rec, _, err := s.locate(num)
	require.NoError(t, err)
	for bit := 5000; !forge(t, s, rec, num, bit); bit++ {
	}
	s.blocks.clear()
	before, err := s.Stats(ctx)
	require.NoError(t, err)
	problems, err := s.Check(ctx, CheckOptions{ReadData: true, Repair: true})
	require.NoError(t, err)
	require.NotEmpty(t, problems)
	after, err := s.Stats(ctx)
	require.NoError(t, err)
	t.Logf("%d chunks, %d after repairing", before.Chunks, after.Chunks)
	require.Less(t, after.Chunks, before.Chunks)
	require.Greater(t, after.Chunks, before.Chunks/4)
	requireTrueHashes(t, s)
}

// TestPrefixUnneeded: a prefix whose blocks do not compress even with it is garbage, which the next collection removes.
func TestPrefixUnneeded(t *testing.T) {
	r := rand.New(rand.NewPCG(testseed.Of(t), 4))
	s := openTest(t, t.TempDir())
	m := put(t, s, nil, part{"a", noise(r, 1<<20), nil})
	_, err := s.GC(t.Context(), nil)
	require.NoError(t, err)
	before := s.state.chunks
	rw, err := s.newRewriter(t.Context())
	require.NoError(t, err)
	rw.repack = true
	_, err = rw.makePrefix(noise(r, prefixLeast))
	require.NoError(t, err)
	require.NoError(t, rw.flush())
	rw.Abort()
	require.Equal(t, before+1, s.state.chunks)
	_, err = s.inventory(t.Context()) // as at the end of Optimize
	require.NoError(t, err)
	_, err = s.GC(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, before, s.state.chunks)
	requireClean(t, s)
	require.NotEmpty(t, readAll(t, s, m.ID))
}
