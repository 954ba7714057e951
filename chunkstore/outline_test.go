package chunkstore

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"snapfs/chunkstore/internal/sample"
	"snapfs/internal/testseed"
)

// outlined stores parts and returns their outlines.
func outlined(t *testing.T, s *Store, parts ...part) (Manifest, [][]byte) {
	t.Helper()
	in, err := s.NewIngest(t.Context(), IngestOptions{Kind: KindImage})
	require.NoError(t, err)
	defer in.Abort()
	var outlines [][]byte
	for _, p := range parts {
		require.NoError(t, in.Hint(Hint{Path: p.path, Size: int64(len(p.data))}))
		require.NoError(t, in.Outline(func(o []byte) { outlines = append(outlines, o) }))
		_, err = in.Write(p.data)
		require.NoError(t, err)
	}
	require.NoError(t, in.Header(nil))
	m, err := in.Commit(t.Context(), nil)
	require.NoError(t, err)
	require.Len(t, outlines, len(parts))
	return m, outlines
}

// again stores parts of which some are known by their outlines.
func again(t *testing.T, s *Store, parts []part, outlines [][]byte) (Manifest, [][]byte) {
	t.Helper()
	in, err := s.NewIngest(t.Context(), IngestOptions{Kind: KindImage})
	require.NoError(t, err)
	defer in.Abort()
	var made [][]byte
	for i, p := range parts {
		require.NoError(t, in.Hint(Hint{Path: p.path, Size: int64(len(p.data))}))
		require.NoError(t, in.Outline(func(o []byte) { made = append(made, o) }))
		if outlines[i] == nil {
			_, err = in.Write(p.data)
			require.NoError(t, err)
			continue
		}
		k, ok, err := in.Recall(outlines[i])
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, int64(len(p.data)), k.Size())
		require.NoError(t, in.Again(k))
	}
	require.NoError(t, in.Header(nil))
	m, err := in.Commit(t.Context(), nil)
	require.NoError(t, err)
	return m, made
}

// TestOutlines takes parts again by their outlines, among them some that are stored inflated and parts that are written,
// and compares with a stream that was written as a whole.
func TestOutlines(t *testing.T) {
	r := rand.New(rand.NewPCG(testseed.Of(t), 1))
	s := openTest(t, t.TempDir())
	parts := []part{
		{path: "short", data: []byte("short")},
		{path: "text", data: text(r, 300_000)},
		{path: "bin", data: binaryVersion(t, 1)},
		{path: "noise", data: noise(r, 900_000)},
		{path: "gz", data: sample.GoZlib(t, text(r, 200_000))},
	}
	first, outlines := outlined(t, s, parts...)
	list, err := s.manifest(first.ID)
	require.NoError(t, err)
	require.NotEmpty(t, list.transforms)

	written := part{path: "new", data: text(r, 50_000)}
	mixed := slices.Insert(slices.Clone(parts), 2, written)
	m, made := again(t, s, mixed, slices.Insert(slices.Clone(outlines), 2, nil))
	whole, _ := outlined(t, s, mixed...)
	require.Equal(t, whole.Digest, m.Digest)
	require.Equal(t, readAll(t, s, whole.ID), readAll(t, s, m.ID))
	require.Equal(t, int64(len(written.data)), m.New)
	require.Equal(t, outlines, slices.Delete(made, 2, 3), "of what is taken again there is the same outline")
}

// TestOutlineHoldsNothing collects the chunks of an outline: it is of no use from then on, until they are stored again.
func TestOutlineHoldsNothing(t *testing.T) {
	r := rand.New(rand.NewPCG(testseed.Of(t), 1))
	s := openTest(t, t.TempDir())
	p := part{path: "f", data: noise(r, 400_000)}
	m, outlines := outlined(t, s, p)
	recall := func(outline []byte) (bool, error) {
		in, err := s.NewIngest(t.Context(), IngestOptions{Kind: KindImage})
		require.NoError(t, err)
		defer in.Abort()
		_, ok, err := in.Recall(outline)
		return ok, err
	}
	deleteManifest(t, s, m.ID)
	ok, err := recall(outlines[0])
	require.NoError(t, err)
	require.True(t, ok, "what is not collected yet is there")
	_, err = s.GC(t.Context(), nil)
	require.NoError(t, err)
	ok, err = recall(outlines[0])
	require.NoError(t, err)
	require.False(t, ok)
	outlined(t, s, p)
	ok, err = recall(outlines[0])
	require.NoError(t, err)
	require.True(t, ok)

	for i := range outlines[0] {
		_, err := recall(outlines[0][:i])
		if err != nil {
			require.ErrorIs(t, err, ErrCorrupt)
		}
		bad := bytes.Clone(outlines[0])
		bad[i] ^= 0x41
		ok, _ := recall(bad)
		require.False(t, ok, "byte %d", i)
	}

	in, err := s.NewIngest(t.Context(), IngestOptions{Kind: KindImage})
	require.NoError(t, err)
	in.Abort()
	_, ok, err = in.Recall(outlines[0])
	require.NoError(t, err)
	require.False(t, ok, "of an ingest that has ended")
}

// TestRecallMany finds the same chunks whether all hashes are read at once or each is looked up, also those that another
// ingest has stored since.
func TestRecallMany(t *testing.T) {
	r := rand.New(rand.NewPCG(testseed.Of(t), 1))
	s := openTest(t, t.TempDir())
	old := part{path: "old", data: noise(r, 400_000)}
	late := part{path: "late", data: noise(r, 400_000)}
	_, was := outlined(t, s, old)
	for _, expected := range []int{0, 1, 100} {
		in, err := s.NewIngest(t.Context(), IngestOptions{Kind: KindImage})
		require.NoError(t, err)
		defer in.Abort()
		in.RecallMany(expected)
		k, ok, err := in.Recall(was[0])
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, expected == 100, len(in.numbers.all) > 0)
		_, since := outlined(t, s, late)
		l, ok, err := in.Recall(since[0])
		require.NoError(t, err)
		require.True(t, ok)
		for i, known := range []*Known{k, l} {
			o := [][]byte{was[0], since[0]}[i]
			for j, st := range known.steps {
				num, err := s.lookup(st.hash)
				require.NoError(t, err)
				require.Equal(t, num, st.num, "chunk %d of %d bytes of outline", j, len(o))
			}
		}
	}
}

// TestHashNumbers compares with a map, also where hashes are spread unevenly.
func TestHashNumbers(t *testing.T) {
	r := rand.New(rand.NewPCG(testseed.Of(t), 1))
	for round := range 300 {
		var all hashNumbers
		has := map[hash]uint64{}
		near := func() (h hash) {
			for i := range h {
				h[i] = byte(r.Uint32())
			}
			if round%3 > 0 {
				h[0], h[1] = byte(r.IntN(round%3))*255, 7
				h[2], h[3] = 0, byte(r.IntN(3))
			}
			return h
		}
		for range r.IntN(40) {
			h := near()
			has[h] = r.Uint64()
		}
		for h, num := range has {
			all.all = append(all.all, numberedHash{h, num})
		}
		slices.SortFunc(all.all, func(a, b numberedHash) int { return bytes.Compare(a.hash[:], b.hash[:]) })
		all.sorted()
		for h, want := range has {
			num, ok := all.find(h)
			require.True(t, ok)
			require.Equal(t, want, num)
		}
		for range 20 {
			h := near()
			_, want := has[h]
			_, ok := all.find(h)
			require.Equal(t, want, ok)
		}
	}
}

// TestKeep gives an ingest up that has kept what it took: the next one finds it by its outline.
func TestKeep(t *testing.T) {
	r := rand.New(rand.NewPCG(testseed.Of(t), 1))
	s := openTest(t, t.TempDir())
	p := part{path: "text", data: text(r, 300_000)}
	in, err := s.NewIngest(t.Context(), IngestOptions{Kind: KindImage})
	require.NoError(t, err)
	require.NoError(t, in.Hint(Hint{Path: p.path, Size: int64(len(p.data))}))
	var outline []byte
	require.NoError(t, in.Outline(func(o []byte) { outline = o }))
	_, err = in.Write(p.data)
	require.NoError(t, err)
	require.NoError(t, in.Keep())
	in.Abort()
	require.NotEmpty(t, outline)
	again(t, s, []part{p}, [][]byte{outline})
}
