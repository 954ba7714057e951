package chunkstore

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	badger "github.com/dgraph-io/badger/v4"
	"github.com/stretchr/testify/require"

	"snapfs/chunkstore/internal/pack"
	"snapfs/internal/testseed"
	"snapfs/internal/varint"
)

// forge changes a bit of a record's payload and makes its checksum right. It returns false if the frame cannot be
// decoded any more, or decodes to the same.
func forge(t *testing.T, s *Store, rec *located, num uint64, bit int) bool {
	t.Helper()
	path := filepath.Join(s.packDir(), pack.Name(rec.Pack))
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	whole := make([]byte, rec.Len)
	_, err = f.ReadAt(whole, rec.Off)
	require.NoError(t, err)
	decoded := func(b []byte) []byte {
		r, err := pack.ParseRecord(bytes.Clone(b))
		require.NoError(t, err)
		got, err := s.unpack(s.locate, rec, r, num)
		if err != nil {
			return nil
		}
		return got.data
	}
	want := decoded(whole)
	r, err := pack.ParseRecord(bytes.Clone(whole))
	require.NoError(t, err)
	bit = len(whole)*8 - 1 - bit%(len(r.Frame)*8)
	whole[bit/8] ^= 1 << (bit % 8)
	binary.LittleEndian.PutUint32(whole, crc32.Checksum(whole[4:], castagnoli))
	if got := decoded(whole); got == nil || bytes.Equal(got, want) {
		return false
	}
	_, err = f.WriteAt(whole, rec.Off)
	require.NoError(t, err)
	return true
}

// requireTrueHashes holds that no hash of the index names other bytes.
func requireTrueHashes(t *testing.T, s *Store) {
	t.Helper()
	found := map[uint64]hash{}
	require.NoError(t, s.view(func(btx *badger.Txn) error {
		return scan(btx, []byte{keyHash}, []byte{keyHash}, func(key, value []byte) (bool, error) {
			p := varint.Parser{Rest: value}
			found[p.Uint()] = hash(key[1:])
			return true, nil
		})
	}))
	for num, h := range found {
		if _, _, err := s.locate(num); err != nil {
			continue // it was collected
		}
		data, err := s.chunk(s.locate, num)
		require.NoError(t, err)
		require.Equal(t, h, hashOf(data), "chunk %d", num)
	}
}

// wrongStore fills a store with records of all kinds, named by manifests with and without copies. Of what is copied, the
// originals are deleted. With old, nothing has a digest, as in stores of version 1.
func wrongStore(t *testing.T, dir string, r *rand.Rand, old bool) (ids []ID, want [][]byte) {
	t.Helper()
	s := openTest(t, dir)
	ids, want = history(t, s, r, 4)
	file := append(noise(r, 300_000), text(r, 300_000)...)
	m := put(t, s, nil, part{path: "file", data: file})
	for range 3 {
		was := m
		edits := overwrite(r, file, 2, 5000)
		m = patch(t, s, was, 0, nil, file, edits)
		deleteManifest(t, s, was.ID)
	}
	ids, want = append(ids, m.ID), append(want, append(bytes.Clone(file), "tables"...))
	_, err := s.GC(t.Context(), nil)
	require.NoError(t, err)
	requireClean(t, s)
	if old {
		stripDigests(t, s)
		requireClean(t, s)
	}
	require.NoError(t, s.Close())
	return ids, want
}

// stripDigests moves every record to one without a digest.
func stripDigests(t *testing.T, s *Store) {
	t.Helper()
	var held pack.Holds
	copies := map[pack.Location]*located{}
	require.NoError(t, s.update(func(w *writeTxn) error {
		ends := map[uint32]int64{}
		for no := range (s.state.lease + pageChunks - 1) / pageChunks {
			pg, err := w.edit(no)
			if err != nil {
				return err
			}
			for i := range pg.slots {
				from := pg.slots[i].rec
				if from == nil {
					continue
				}
				if copies[from.Location] == nil {
					b, err := s.packs.ReadRaw(from.Location)
					require.NoError(t, err)
					r, err := pack.ParseRecord(b)
					require.NoError(t, err)
					r.Digest = nil
					rec := *from
					rec.Location, err = s.packs.Append(pack.AppendRecord(nil, r), &held)
					require.NoError(t, err)
					copies[from.Location] = &rec
					ends[rec.Pack] = max(ends[rec.Pack], rec.End())
				}
				pg.slots[i].rec = copies[from.Location]
			}
		}
		w.state.moved = 1
		require.NoError(t, s.packs.Sync())
		return w.extendPacks(ends)
	}))
	s.dropPacks(&held)
	s.segments.clear()
}

// TestWrongBytes changes bits of records and makes their checksums right. A check that reads the data names the
// manifests that are wrong and no others. Nothing makes the index name wrong bytes by their hash: no repair, no rebuild,
// no collection, no optimization. What is moved is what was stored.
func TestWrongBytes(t *testing.T) {
	unraced(t)
	seed := testseed.Of(t)
	rounds := 9 // each kind of record, and then each way to go on
	if os.Getenv("SNAPFS_LONG") != "" {
		rounds = 180
	}
	for _, old := range []bool{false, true} {
		r := rand.New(rand.NewPCG(seed, 130))
		base := t.TempDir()
		from := filepath.Join(base, "whole")
		ids, want := wrongStore(t, from, r, old)
		for i := range rounds {
			dir := filepath.Join(base, fmt.Sprint(i))
			require.NoError(t, os.CopyFS(dir, os.DirFS(from)))
			w := wrongStoreIn{t, dir, r, old, ids, want, nil}
			w.forgeOne([]pack.Kind{pack.Stored, pack.Block, pack.Delta}[i%3])
			[]func(){w.move, w.rebuild, w.repair}[i/3%3]()
			require.NoError(t, os.RemoveAll(dir))
		}
	}
}

// wrongStoreIn is a store with a forged record.
type wrongStoreIn struct {
	t    *testing.T
	dir  string
	r    *rand.Rand
	old  bool
	ids  []ID
	want [][]byte

	wrong []ID // what reads wrong
}

// named lists the manifests that problems name.
func named(problems []Problem) (all []ID) {
	for _, p := range problems {
		all = append(all, p.Manifests...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// forgeOne forges a record of a kind. Check names the manifests that read wrong.
func (w *wrongStoreIn) forgeOne(kind pack.Kind) {
	t := w.t
	s, err := Open(w.dir, Options{})
	require.NoError(t, err)
	var nums []uint64
	for num := range s.nextNum {
		if rec, _, err := s.locate(num); err == nil {
			b, err := s.packs.Read(rec.Location)
			require.NoError(t, err)
			require.Equal(t, w.old, len(b.Digest) == 0)
			if b.Kind == kind {
				nums = append(nums, num)
			}
		}
	}
	require.NotEmpty(t, nums, "records of kind %d", kind)
	num := nums[w.r.IntN(len(nums))]
	rec, _, err := s.locate(num)
	require.NoError(t, err)
	for tries := 0; !forge(t, s, rec, num, w.r.IntN(1<<30)); tries++ {
		require.Less(t, tries, 100_000)
	}
	require.NoError(t, s.Close())
	s, err = Open(w.dir, Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	for i, id := range w.ids {
		if !bytes.Equal(w.want[i], readAll(t, s, id)) {
			w.wrong = append(w.wrong, id)
		}
	}
	problems, err := s.Check(t.Context(), CheckOptions{ReadData: true})
	require.NoError(t, err)
	require.NotEmpty(t, problems)
	require.Equal(t, w.wrong, named(problems))
}

// move optimizes and collects: nobody takes wrong bytes for right ones afterwards.
func (w *wrongStoreIn) move() {
	t := w.t
	s, err := Open(w.dir, Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	_, err = s.Optimize(t.Context(), nil)
	require.NoError(t, err)
	deleteManifest(t, s, w.ids[w.r.IntN(len(w.ids))])
	_, err = s.GC(t.Context(), nil)
	require.NoError(t, err)
	problems, err := s.Check(t.Context(), CheckOptions{ReadData: true})
	require.NoError(t, err)
	for i, id := range w.ids {
		if _, err := s.manifest(id); err == nil && !bytes.Equal(w.want[i], readAll(t, s, id)) {
			require.Contains(t, named(problems), id)
		}
	}
}

// rebuild makes the index anew: without the old one, the digests say what is wrong. Of records without a digest only
// manifests without copies are known.
func (w *wrongStoreIn) rebuild() {
	t := w.t
	require.NoError(t, os.RemoveAll(filepath.Join(w.dir, indexName)))
	res, err := RebuildIndex(t.Context(), w.dir, RebuildOptions{})
	require.NoError(t, err)
	last := w.ids[len(w.ids)-1]
	for _, id := range w.wrong {
		if !w.old || id != last {
			require.Contains(t, named(res.Problems), id)
		}
	}
	require.Subset(t, w.wrong, named(res.Problems))
	s, err := Open(w.dir, Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	if w.old && slices.Contains(w.wrong, last) {
		return
	}
	requireTrueHashes(t, s)
	w.storeAgain(s)
}

// storeAgain stores all contents again: none of it becomes what is wrong.
func (w *wrongStoreIn) storeAgain(s *Store) {
	for i, id := range w.ids {
		m := put(w.t, s, nil, part{path: "again", data: w.want[i]})
		require.True(w.t, bytes.Equal(w.want[i], readAll(w.t, s, m.ID)), "manifest %d", id)
	}
}

// repair removes what is wrong, and nothing else.
func (w *wrongStoreIn) repair() {
	t := w.t
	s, err := Open(w.dir, Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	_, err = s.Check(t.Context(), CheckOptions{ReadData: true, Repair: true})
	require.NoError(t, err)
	requireTrueHashes(t, s)
	for i, id := range w.ids {
		if !slices.Contains(w.wrong, id) {
			require.True(t, bytes.Equal(w.want[i], readAll(t, s, id)), "manifest %d", id)
		}
	}
	w.storeAgain(s)
	deleteManifest(t, s, w.wrong...)
	_, err = s.GC(t.Context(), nil)
	require.NoError(t, err)
	requireClean(t, s)
}
