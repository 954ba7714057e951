package chunkstore

import (
	"context"
	"encoding/binary"
	"sync/atomic"

	badger "github.com/dgraph-io/badger/v4"

	"snapfs/internal/limits"
)

// Most hashes that an import looks up are not in the index. Badger's own filters are one for each table, and err so
// often that with the dozen tables that an import leaves behind, a block is inflated for many hashes. So the store
// keeps one filter of all hashes in memory. It is there from the start in a new store. In others it is made when an
// ingest has missed so many hashes that reading all of them is worth it.

// Bounds of the filter. A hash takes 16 bits, with which one look-up in a thousand is in vain. Beyond the bound hashes
// share what there is, and more look-ups are.
const (
	filterBlock  = 8                      // words of 64 bits that the bits of a hash lie in, one in each
	filterHashes = filterBlock * 64 / 16  // hashes of a block
	filterFirst  = 1 << 16 / filterHashes // blocks of the first level of a new store
	filterMax    = 64 << 20               // bytes
	filterShare  = 256                    // at most one of so many parts of the memory that the process may have
	filterBytes  = filterBlock * 8        // of a block
	filterMisses = 1 << 12                // hashes that are missed before the filter is made, at least
	filterWorth  = 32                     // or one of so many of those that the index has
	filterUse    = 4                      // times as many hashes as fit make a filter useless
)

// hashFilter is a split block Bloom filter (Putze, Sanders, Singler 2007) in levels, each twice as large as the one
// before. Adding is for one goroutine at a time, has for any number beside it.
type hashFilter struct {
	levels atomic.Pointer[[]*filterLevel]
	room   int // hashes that the last level still takes
	most   int // blocks of all levels
}

type filterLevel [][filterBlock]atomic.Uint64

// filterBlocks is how many blocks a filter may have.
func filterBlocks() int { return int(min(filterMax, limits.Memory()/filterShare) / filterBytes) }

// newHashFilter returns a filter for so many hashes that are added with fill. Others are counted.
func newHashFilter(hashes int64) *hashFilter {
	f := &hashFilter{most: filterBlocks()}
	f.levels.Store(&[]*filterLevel{})
	if hashes > 0 {
		f.grow(int((hashes + filterHashes - 1) / filterHashes))
		f.room = 0
	}
	return f
}

// blocks returns how many there are.
func (f *hashFilter) blocks() (n int) {
	for _, l := range *f.levels.Load() {
		n += len(*l)
	}
	return n
}

// grow adds a level of so many blocks, if they are not beyond the bound.
func (f *hashFilter) grow(blocks int) {
	if blocks = min(blocks, f.most-f.blocks()); blocks > 0 {
		l := make(filterLevel, blocks)
		all := append(append([]*filterLevel{}, *f.levels.Load()...), &l)
		f.levels.Store(&all)
	}
	f.room = max(1, blocks) * filterHashes
}

// add adds a hash to the newest level.
func (f *hashFilter) add(h hash) {
	if f.room == 0 {
		f.grow(max(filterFirst, f.blocks()))
	}
	f.room--
	if all := *f.levels.Load(); len(all) > 0 {
		all[len(all)-1].add(h)
	}
}

// fill adds a hash of those that newHashFilter made room for. It may be called beside add.
func (f *hashFilter) fill(h hash) { (*f.levels.Load())[0].add(h) }

// has reports whether a hash may have been added.
func (f *hashFilter) has(h hash) bool {
	all := *f.levels.Load()
	for i := range all {
		if all[len(all)-1-i].has(h) {
			return true
		}
	}
	return false
}

// place returns the block of a hash, and 6 bits for each word of it.
func (l filterLevel) place(h hash) (*[filterBlock]atomic.Uint64, uint64) {
	at := uint64(binary.LittleEndian.Uint32(h[:])) * uint64(len(l)) >> 32
	return &l[at], binary.LittleEndian.Uint64(h[4:])
}

func (l filterLevel) add(h hash) {
	words, bits := l.place(h)
	for i := range words {
		words[i].Or(1 << (bits >> (6 * i) & 63))
	}
}

func (l filterLevel) has(h hash) bool {
	words, bits := l.place(h)
	for i := range words {
		if words[i].Load()&(1<<(bits>>(6*i)&63)) == 0 {
			return false
		}
	}
	return true
}

// hashes is what the store knows of the hashes in its index.
type hashes struct {
	filter atomic.Pointer[hashFilter] // of all; nil = there is none. Written under Store.writeMu
	making *hashFilter                // has those that are written while the others are read; guarded by Store.writeMu
	missed atomic.Int64               // look-ups in vain while there is no filter
	wanted atomic.Bool                // enough were
}

// note is told of each hash before it is written. The caller holds Store.writeMu.
func (hs *hashes) note(key []byte) {
	if key[0] != keyHash || len(key) != 1+hashLen {
		return
	}
	for _, f := range []*hashFilter{hs.filter.Load(), hs.making} {
		if f != nil {
			f.add(hash(key[1:]))
		}
	}
}

// lacks reports whether the index certainly does not have a hash.
func (hs *hashes) lacks(h hash) bool {
	f := hs.filter.Load()
	return f != nil && !f.has(h)
}

// bytes is the memory of the filter.
func (hs *hashes) bytes() int64 {
	f := hs.filter.Load()
	if f == nil {
		return 0
	}
	return int64(f.blocks()) * filterBytes
}

// missedOne counts a look-up in vain. The next transaction has the filter made, if it is worth it.
func (s *Store) missedOne() {
	hs := &s.hashes
	if hs.filter.Load() != nil || hs.wanted.Load() {
		return
	}
	if n := hs.missed.Add(1); n >= filterMisses && n%filterMisses == 0 {
		s.writeMu.Lock()
		all := s.state.chunks + s.state.stale
		s.writeMu.Unlock()
		hs.wanted.Store(n >= all/filterWorth && all < int64(filterBlocks())*filterHashes*filterUse)
	}
}

// makeFilter reads all hashes into a filter, beside the transactions.
func (s *Store) makeFilter(ctx context.Context) error {
	hs := &s.hashes
	s.writeMu.Lock()
	f := newHashFilter(s.state.chunks + s.state.stale + filterHashes)
	hs.making = f
	btx := s.db.NewTransaction(false)
	s.writeMu.Unlock()
	defer btx.Discard()
	prefix := []byte{keyHash}
	err := scan(btx, prefix, prefix, func(key, _ []byte) (bool, error) {
		if len(key) == 1+hashLen {
			f.fill(hash(key[1:]))
		}
		return true, ctx.Err()
	})
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	hs.making = nil
	if err == nil {
		hs.filter.Store(f)
	}
	hs.missed.Store(0)
	hs.wanted.Store(false)
	return err
}

// filterEmpty makes the filter of an index that has no hash yet.
func (s *Store) filterEmpty() error {
	none := true
	prefix := []byte{keyHash}
	err := s.view(func(btx *badger.Txn) error {
		return scan(btx, prefix, prefix, func(_, _ []byte) (bool, error) {
			none = false
			return false, nil
		})
	})
	if err == nil && none {
		s.hashes.filter.Store(newHashFilter(0))
	}
	return err
}
