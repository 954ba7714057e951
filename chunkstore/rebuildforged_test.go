package chunkstore

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
	"github.com/stretchr/testify/require"

	"snapfs/chunkstore/internal/pack"
	"snapfs/internal/testseed"
)

// forgedRecords gives the bytes of a file: records of other contents for the chunks of a manifest.
func forgedRecords(t *testing.T, s *Store, of ID, r *rand.Rand, size int) []byte {
	t.Helper()
	m, err := s.manifest(of)
	require.NoError(t, err)
	var b []byte
	for len(b) < size {
		for _, run := range m.runs {
			for num := run.first; num < run.first+run.count; num++ {
				_, n, err := s.locate(num)
				require.NoError(t, err)
				b = pack.AppendRecord(b, &pack.Record{
					Kind: pack.Stored, Members: []pack.Member{{Num: num, Len: n}}, Frame: noise(r, n),
				})
			}
		}
	}
	return b
}

// rebuilt rebuilds the index of a closed store and opens it.
func rebuilt(t *testing.T, dir string) (*Store, Rebuilt) {
	t.Helper()
	require.NoError(t, os.RemoveAll(filepath.Join(dir, indexName)))
	res, err := RebuildIndex(t.Context(), dir, RebuildOptions{})
	require.NoError(t, err)
	s, err := Open(dir, Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s, res
}

// TestRebuildForged: files whose contents are records are stored and deleted. A rebuild does not take what is left of
// them for records.
func TestRebuildForged(t *testing.T) {
	r := rand.New(rand.NewPCG(testseed.Of(t), 1))
	dir := filepath.Join(t.TempDir(), "s")
	s := openTest(t, dir)
	want := noise(r, 300)
	victim := put(t, s, nil, part{path: "victim", data: want})
	var evil []ID
	for range 8 {
		evil = append(evil, put(t, s, nil, part{path: "evil", data: forgedRecords(t, s, victim.ID, r, 600_000)}).ID)
		put(t, s, nil, part{path: "other", data: noise(r, 300_000+r.IntN(9000))})
	}
	deleteManifest(t, s, evil...)
	_, err := s.GC(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	s, res := rebuilt(t, dir)
	require.Empty(t, res.Problems)
	require.Equal(t, want, readAll(t, s, victim.ID))
	requireClean(t, s)
}

// TestRebuildForgedRot is the same where such a file is not deleted, but damaged.
func TestRebuildForgedRot(t *testing.T) {
	r := rand.New(rand.NewPCG(testseed.Of(t), 1))
	dir := filepath.Join(t.TempDir(), "s")
	s := openTest(t, dir)
	want := noise(r, 3000)
	victim := put(t, s, nil, part{path: "victim", data: want})
	evil := put(t, s, nil, part{path: "evil", data: forgedRecords(t, s, victim.ID, r, 40_000)})
	m, err := s.manifest(evil.ID)
	require.NoError(t, err)
	rec, _, err := s.locate(m.runs[0].first)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	flip(t, filepath.Join(dir, packsName, pack.Name(rec.Pack)), rec.Off+4)
	s, res := rebuilt(t, dir)
	require.Equal(t, []ID{evil.ID}, named(res.Problems))
	require.Equal(t, want, readAll(t, s, victim.ID))
}

// TestRebuildForgedBoth: where no record of a chunk is sure, and they differ, none of them counts.
func TestRebuildForgedBoth(t *testing.T) {
	r := rand.New(rand.NewPCG(testseed.Of(t), 1))
	dir := filepath.Join(t.TempDir(), "s")
	s := openTest(t, dir)
	first := put(t, s, nil, part{path: "first", data: noise(r, 3000)})
	m, err := s.manifest(first.ID)
	require.NoError(t, err)
	rec, _, err := s.locate(m.runs[0].first)
	require.NoError(t, err)
	victim := put(t, s, nil, part{path: "victim", data: noise(r, 3000)})
	other := noise(r, 3000)
	kept := put(t, s, nil, part{path: "kept", data: other})
	evil := put(t, s, nil, part{path: "evil", data: forgedRecords(t, s, victim.ID, r, 40_000)})
	m, err = s.manifest(evil.ID)
	require.NoError(t, err)
	evilRec, _, err := s.locate(m.runs[0].first)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	path := filepath.Join(dir, packsName, pack.Name(rec.Pack))
	flip(t, path, rec.Off+4)
	flip(t, path, evilRec.Off+4)
	s, res := rebuilt(t, dir)
	require.ElementsMatch(t, []ID{first.ID, victim.ID, evil.ID}, named(res.Problems))
	require.Equal(t, other, readAll(t, s, kept.ID))
}

// TestRebuildAbandonedMove: a crash left the copy of a record behind, and what the copy needs is gone by now.
func TestRebuildAbandonedMove(t *testing.T) {
	r := rand.New(rand.NewPCG(testseed.Of(t), 1))
	dir := filepath.Join(t.TempDir(), "s")
	s := openTest(t, dir)
	want := noise(r, 3000)
	m := put(t, s, nil, part{path: "file", data: want})
	list, err := s.manifest(m.ID)
	require.NoError(t, err)
	num := list.runs[0].first
	rec, n, err := s.locate(num)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	path := filepath.Join(dir, packsName, pack.Name(rec.Pack))
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	b = pack.AppendRecord(b, &pack.Record{
		Kind: pack.Delta, Members: []pack.Member{{Num: num, Len: n}}, Gen: 2, Bases: []uint64{num + 1000},
		Digest: make([]byte, pack.DigestSize), Frame: noise(r, 100),
	})
	require.NoError(t, os.WriteFile(path, b, 0o600))
	s, res := rebuilt(t, dir)
	require.Empty(t, res.Problems)
	require.Equal(t, want, readAll(t, s, m.ID))
}

// TestRebuildPick: records of chunks that were turned round, of which one was lost. Whichever chunk is looked at first,
// all of them are found.
func TestRebuildPick(t *testing.T) {
	b := &rebuilder{
		pages: map[uint64]*page{0: {}}, copies: map[uint64][]slot{}, unsure: map[*located]bool{}, found: roaring64.New(),
	}
	record := func(num uint64, gen int, bases ...uint64) {
		sl := slot{&located{delta: gen > 0, gen: gen, bases: bases}, 1}
		if before := b.pages[0].slots[num]; before.rec != nil {
			b.addCopy(num, before, sl)
		}
		b.place(num, sl)
		b.found.Add(num)
	}
	record(4, 0)
	record(5, 1, 4)
	record(6, 2, 5)
	record(7, 3, 6) // and its newer record, which was to be the one without bases, is lost
	record(6, 1, 7)
	record(5, 2, 6)
	record(4, 3, 5)
	require.NoError(t, b.pick(t.Context()))
	for num := uint64(4); num <= 7; num++ {
		for rec, _, err := b.locate(num); ; rec, _, err = b.locate(rec.bases[0]) {
			require.NoError(t, err)
			if len(rec.bases) == 0 {
				break
			}
			base, _, err := b.locate(rec.bases[0])
			require.NoError(t, err)
			require.Less(t, base.gen, rec.gen, "a base of %d", num)
		}
	}
}
