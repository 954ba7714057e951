package chunkstore

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"sort"

	badger "github.com/dgraph-io/badger/v4"

	"snapfs/internal/varint"
)

// Bounds of reading all hashes of the index for the outlines that an ingest is going to recall. To find one costs some
// 5 µs, to read one in passing a tenth of that.
const (
	recallAllShare = 4       // hashes of the index to an outline, at most
	recallAllMost  = 1 << 20 // hashes, of 32 bytes each
)

// hashNumbers finds the numbers of the chunks of all hashes of the index. It is immutable; empty, it finds none.
type hashNumbers struct {
	all    []numberedHash // in order
	starts []uint32       // by prefix, the first in all; one more at the end
	shift  int            // bits of 32 that are not of the prefix
}

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
		if err != nil {
			all = &hashNumbers{} // each is looked up, which reports the damage
		}
		in.numbers = all
	})
	if num, ok := in.numbers.find(h); ok {
		return num, nil
	}
	return in.s.lookup(h)
}

// find gives the number of a hash.
func (n *hashNumbers) find(h hash) (num uint64, ok bool) {
	if len(n.all) == 0 {
		return 0, false
	}
	p := n.prefix(h)
	row := n.all[n.starts[p]:n.starts[p+1]]
	i := sort.Search(len(row), func(i int) bool { return bytes.Compare(row[i].hash[:], h[:]) >= 0 })
	if i == len(row) || row[i].hash != h {
		return 0, false
	}
	return row[i].num, true
}

// prefix is the first bits of a hash, so many that a few hashes share them.
func (n *hashNumbers) prefix(h hash) uint32 { return binary.BigEndian.Uint32(h[:]) >> n.shift }

// sorted completes what was added in order.
func (n *hashNumbers) sorted() {
	const few = 4
	prefixes := bits.Len(uint(len(n.all) / few))
	n.shift = 32 - prefixes
	n.starts = make([]uint32, 1<<prefixes+1)
	for _, a := range n.all {
		n.starts[n.prefix(a.hash)+1]++
	}
	for i := range n.starts[1:] {
		n.starts[i+1] += n.starts[i]
	}
}

// allHashes reads the hashes of the index; none if they are too many for so many outlines.
func (s *Store) allHashes(outlines int) (*hashNumbers, error) {
	numbers := &hashNumbers{}
	err := s.view(func(btx *badger.Txn) error {
		var st state
		b, err := get(btx, []byte{keyState})
		if err == nil {
			err = st.decode(b)
		}
		n := st.chunks + st.stale
		if err != nil || n > recallAllMost || n/recallAllShare > int64(outlines) {
			return err
		}
		all := make([]numberedHash, 0, n)
		prefix := []byte{keyHash}
		err = scan(btx, prefix, prefix, func(key, value []byte) (bool, error) {
			p := varint.Parser{Rest: value}
			num := p.Uint()
			if len(key) == 1+hashLen && !p.Bad {
				all = append(all, numberedHash{hash(key[1:]), num})
			}
			return int64(len(all)) <= recallAllMost, nil
		})
		numbers.all = all
		return err
	})
	numbers.sorted()
	return numbers, err
}
