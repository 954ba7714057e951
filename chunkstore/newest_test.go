package chunkstore

import (
	"bytes"
	"context"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// versionsOf stores versions of one file and returns their only chunks' numbers.
func versionsOf(t *testing.T, s *Store, r *rand.Rand, versions int) (ids []ID, nums []uint64, want [][]byte) {
	t.Helper()
	data := text(r, 20_000)
	var prev []Range
	for range versions {
		m := put(t, s, nil, part{"a.txt", bytes.Clone(data), prev})
		list, err := s.manifest(m.ID)
		require.NoError(t, err)
		require.Len(t, list.runs, 1)
		ids, nums, want = append(ids, m.ID), append(nums, list.runs[0].first), append(want, bytes.Clone(data))
		prev = []Range{{Manifest: m.ID, Len: int64(len(data))}}
		copy(data[r.IntN(len(data)-20):], "a change of a line\n")
	}
	return ids, nums, want
}

func generation(t *testing.T, s *Store, num uint64) int {
	t.Helper()
	rec, _, err := s.locate(num)
	require.NoError(t, err)
	return rec.gen
}

// TestOptimizeNewest optimizes a history: afterwards the newest version is plain, and older ones are deltas of newer
// ones, in chains that stay short. What is left when others are deleted is whole, whichever they are.
func TestOptimizeNewest(t *testing.T) {
	ctx := context.Background()
	r := rand.New(rand.NewPCG(60, 61))
	dir := t.TempDir()
	s := openTest(t, dir)
	const versions = 30
	ids, nums, want := versionsOf(t, s, r, versions)
	others, wantOthers := history(t, s, r, 5)
	require.NotZero(t, generation(t, s, nums[versions-1]))
	before, err := s.Stats(ctx)
	require.NoError(t, err)
	_, err = s.Optimize(ctx, nil)
	require.NoError(t, err)
	after, err := s.Stats(ctx)
	require.NoError(t, err)
	require.Less(t, after.Payload, before.Payload)
	require.Equal(t, before.Chunks, after.Chunks)

	require.Zero(t, generation(t, s, nums[versions-1]))
	for i, num := range nums[:versions-1] {
		gen := generation(t, s, num)
		require.NotZero(t, gen, "version %d", i)
		require.LessOrEqual(t, gen, versions/lineageStep+lineageStep-1, "version %d", i)
	}
	requireClean(t, s)
	require.NoError(t, s.Close())

	// The index can be made again from the packs.
	_, err = RebuildIndex(ctx, dir, RebuildOptions{})
	require.NoError(t, err)
	s = openTest(t, dir)
	for i, id := range ids {
		require.True(t, bytes.Equal(want[i], readAll(t, s, id)), "version %d", i)
	}
	requireClean(t, s)

	// The next version is a delta of the newest, and old ones go without a trace.
	next := bytes.Clone(want[versions-1])
	copy(next[100:], "one more change")
	m := put(t, s, nil, part{"a.txt", next, []Range{{Manifest: ids[versions-1], Len: int64(len(next))}}})
	list, err := s.manifest(m.ID)
	require.NoError(t, err)
	require.Equal(t, 1, generation(t, s, list.runs[0].first))
	deleteManifest(t, s, ids[:versions-1]...)
	_, err = s.GC(ctx, nil)
	require.NoError(t, err)
	for _, num := range nums[:versions-1] {
		_, _, err := s.locate(num)
		require.ErrorIs(t, err, errNoChunk)
	}
	deleteManifest(t, s, ids[versions-1])
	_, err = s.GC(ctx, nil)
	require.NoError(t, err)
	require.True(t, bytes.Equal(next, readAll(t, s, m.ID)))
	for i, id := range others {
		require.True(t, bytes.Equal(wantOthers[i], readAll(t, s, id)))
	}
	requireClean(t, s)
}

// TestOptimizeBesideIngest optimizes while an ingest has made a delta of a version that the index does not have yet:
// the generation of that version must not grow.
func TestOptimizeBesideIngest(t *testing.T) {
	ctx := context.Background()
	r := rand.New(rand.NewPCG(62, 63))
	s := openTest(t, t.TempDir())
	const versions = 6
	ids, nums, want := versionsOf(t, s, r, versions)
	in, err := s.NewIngest(ctx, IngestOptions{Kind: KindImage})
	require.NoError(t, err)
	defer in.Abort()
	like := bytes.Clone(want[0])
	copy(like[5000:], "another branch")
	require.NoError(t, in.Hint(Hint{Path: "a.txt", Size: int64(len(like)), Prev: []Range{
		{Manifest: ids[0], Len: int64(len(like))},
	}}))
	_, err = in.Write(like)
	require.NoError(t, err)
	require.NoError(t, in.endPart())
	require.NoError(t, in.pipe.drain())
	require.True(t, in.used.Contains(nums[0]))
	_, err = s.Optimize(ctx, nil)
	require.NoError(t, err)
	require.Zero(t, generation(t, s, nums[0]))
	m, err := in.Commit(ctx, nil)
	require.NoError(t, err)
	require.True(t, bytes.Equal(like, readAll(t, s, m.ID)))
	for i, id := range ids {
		require.True(t, bytes.Equal(want[i], readAll(t, s, id)))
	}
	requireClean(t, s)
}

// TestRaise has generations grow beside ingests that look for bases.
func TestRaise(t *testing.T) {
	ctx := context.Background()
	s := openTest(t, t.TempDir())
	in := func() *Ingest {
		in, err := s.NewIngest(ctx, IngestOptions{Kind: KindImage})
		require.NoError(t, err)
		t.Cleanup(in.Abort)
		return in
	}
	own, other, ended := in(), in(), in()
	p := &s.pins
	p.watch()
	require.True(t, p.use(own, 1))
	require.True(t, p.useAsBase(other, 2))
	require.True(t, p.use(ended, 3))
	ended.Abort()
	require.True(t, p.raise(own, []uint64{1, 4}))
	require.False(t, p.raise(own, []uint64{5, 2}), "used by another ingest")
	require.False(t, p.raise(own, []uint64{5, 3}), "used by an ingest that has ended")
	require.False(t, p.useAsBase(other, 4), "raised")
	require.True(t, p.use(other, 4), "its contents stay the same")
	require.True(t, p.useAsBase(other, 5))
	p.lower()
	require.True(t, p.useAsBase(other, 1))
	p.unwatch()
}
