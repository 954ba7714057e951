package chunkstore

import (
	"bytes"
	"slices"

	badger "github.com/dgraph-io/badger/v4"

	"snapfs/chunkstore/internal/varint"
)

// Bounds of reading all hashes of the index for the outlines that an ingest is going to recall. To find one costs some
// 5 µs, to read one in passing a tenth of that.
const (
	recallAllShare = 4       // hashes of the index to an outline, at most
	recallAllMost  = 1 << 20 // hashes, of 32 bytes each
)

// numberedHash is a hash of the index.
type numberedHash struct {
	hash hash
	num  uint64
}

// RecallMany says, before the first call of Recall, about how many outlines are going to be recalled. If they are a good
// part of what the store has, the first call reads what the index knows of all of it.
func (in *Ingest) RecallMany(outlines int) {
	in.recalls = outlines
}

// recalled gives the number of the chunk of a hash, as Store.lookup does.
func (in *Ingest) recalled(h hash) (uint64, error) {
	in.readHashes.Do(func() {
		all, err := in.s.allHashes(in.recalls)
		if err == nil { // else each is looked up, which reports the damage
			in.hashes = all
		}
	})
	i, ok := slices.BinarySearchFunc(in.hashes, h, func(a numberedHash, h hash) int { return bytes.Compare(a.hash[:], h[:]) })
	if ok {
		return in.hashes[i].num, nil
	}
	return in.s.lookup(h)
}

// allHashes reads the hashes of the index, in order; none if they are too many for so many outlines.
func (s *Store) allHashes(outlines int) (all []numberedHash, err error) {
	err = s.view(func(btx *badger.Txn) error {
		var st state
		b, err := get(btx, []byte{keyState})
		if err == nil {
			err = st.decode(b)
		}
		n := st.chunks + st.stale
		if err != nil || n > recallAllMost || n/recallAllShare > int64(outlines) {
			return err
		}
		all = make([]numberedHash, 0, n)
		prefix := []byte{keyHash}
		return scan(btx, prefix, prefix, func(key, value []byte) (bool, error) {
			p := varint.Parser{Rest: value}
			num := p.Uint()
			if len(key) == 1+hashLen && !p.Bad {
				all = append(all, numberedHash{hash(key[1:]), num})
			}
			return int64(len(all)) <= recallAllMost, nil
		})
	})
	return all, err
}
