package chunkstore

import (
	"fmt"
	"slices"
	"sync/atomic"

	"snapfs/chunkstore/internal/corrupt"
	"snapfs/chunkstore/internal/pack"
	"snapfs/internal/lockorder"
)

// block is a decoded record; immutable except origin and verdict.
type block struct {
	data    []byte
	members []blockMember // in order of their numbers
	digest  []byte        // of the record; none if it is old
	origin  atomic.Int32  // see takeOrigin
	verdict atomic.Int32  // see isRight
}

type blockMember struct {
	num      uint64
	off, len int
}

func newBlock(r *pack.Record, data []byte) *block {
	b := &block{data: data, members: make([]blockMember, 0, len(r.Members)), digest: r.Digest}
	b.origin.Store(blockWaited)
	off := 0
	for _, m := range r.Members {
		b.members = append(b.members, blockMember{m.Num, off, m.Len})
		off += m.Len
	}
	slices.SortFunc(b.members, func(x, y blockMember) int {
		if x.num < y.num {
			return -1
		}
		return 1
	})
	return b
}

// chunk returns a chunk's bytes. Callers must not change them.
func (b *block) chunk(num uint64) ([]byte, bool) {
	i, ok := slices.BinarySearchFunc(b.members, num, func(m blockMember, num uint64) int {
		switch {
		case m.num < num:
			return -1
		case m.num > num:
			return 1
		}
		return 0
	})
	if !ok {
		return nil, false
	}
	m := b.members[i]
	return b.data[m.off : m.off+m.len : m.off+m.len], true
}

func (b *block) cost() int64 { return int64(cap(b.data)) + int64(len(b.members))*24 + 200 }

// blockCache holds decoded records. Each is decoded once, however many readers ask for it at the same time.
type blockCache struct {
	*lru[pack.Location, *block]
	flightMu lockorder.Mutex[lockorder.Flights]
	flights  map[pack.Location]*flight // guarded by flightMu
}

type flight struct {
	done chan struct{}
	b    *block // valid when done is closed, as is err
	err  error
}

func newBlockCache(limit int64) *blockCache {
	return &blockCache{lru: newLRU[pack.Location, *block](limit), flights: map[pack.Location]*flight{}}
}

// load returns the block at a location, decoded by fn if needed.
func (c *blockCache) load(at pack.Location, fn func() (*block, error)) (*block, error) {
	b, epoch, ok := c.get(at)
	if ok {
		return b, nil
	}
	c.flightMu.Lock()
	if f := c.flights[at]; f != nil {
		c.flightMu.Unlock()
		<-f.done
		return f.b, f.err
	}
	f := &flight{done: make(chan struct{})}
	c.flights[at] = f
	c.flightMu.Unlock()
	defer func() {
		c.flightMu.Lock()
		delete(c.flights, at)
		c.flightMu.Unlock()
		close(f.done)
	}()
	f.err = corrupt.Errorf("decoding was given up")
	if f.b, f.err = fn(); f.err == nil {
		c.put(at, f.b, f.b.cost(), epoch)
	}
	return f.b, f.err
}

// locator finds the record of a chunk, and the chunk's length: in the index, or in an ingest under way as well.
type locator func(num uint64) (*located, int, error)

// block decodes the record that holds chunk num.
func (s *Store) block(loc locator, num uint64) (*block, error) {
	for try := range 3 {
		rec, _, err := loc(num)
		if err != nil {
			return nil, err
		}
		b, err := s.blocks.load(rec.Location, func() (*block, error) { return s.decode(loc, rec, num) })
		if err == nil {
			return b, nil
		}
		// A collection may have moved the chunk since it was located.
		if now, _, lerr := loc(num); try == 2 || lerr != nil || now.Location == rec.Location {
			return nil, err
		}
	}
	panic("unreachable")
}

// decode reads and decodes the record of chunk num.
func (s *Store) decode(loc locator, rec *located, num uint64) (*block, error) {
	sc := pack.TakeScratch()
	defer sc.Release()
	r, err := s.packs.ReadInto(sc, rec.Location)
	if err != nil {
		return nil, err
	}
	return s.unpack(loc, rec, r, num)
}

// unpack decodes a record in scratch memory, which it changes.
func (s *Store) unpack(loc locator, rec *located, r *pack.Record, num uint64) (*block, error) {
	var data []byte
	var err error
	if r.Kind == pack.Stored {
		data = slices.Clone(r.Frame)
	} else {
		data, err = s.unframe(make([]byte, 0, r.RawSize()), loc, rec, r, num)
	}
	if err != nil {
		return nil, fmt.Errorf("pack %d at %d: %w", rec.Pack, rec.Off, err)
	}
	return newBlock(r, data), nil
}

// unframe decodes the frame of a record in scratch memory, which it changes. dst is empty and has room.
func (s *Store) unframe(dst []byte, loc locator, rec *located, r *pack.Record, num uint64) ([]byte, error) {
	if r.Kind != pack.Block && r.Kind != pack.Delta {
		return nil, corrupt.Errorf("no chunks")
	}
	if r.Gen != rec.gen || !slices.Equal(r.Bases, rec.bases) {
		return nil, corrupt.Errorf("not the record of chunk %d", num)
	}
	dict, err := s.dictionary(loc, r)
	if err != nil {
		return nil, err
	}
	raw := r.RawSize()
	data, err := s.codec.DecodeWithMagic(dst, r.FrameWithMagic(), dict, raw)
	if err == nil && len(data) != raw {
		err = corrupt.Errorf("%d bytes instead of %d", len(data), raw)
	}
	return data, err
}

// dictionary returns the concatenated bases of a record. Callers must not change them.
func (s *Store) dictionary(loc locator, r *pack.Record) ([]byte, error) {
	parts := make([][]byte, 0, len(r.Bases))
	rank := rankOf(r.Kind == pack.Delta, r.Gen, r.Bases)
	for _, num := range r.Bases {
		rec, _, err := loc(num)
		if err == nil && rec.rank() >= rank {
			// Ranks fall along a chain. Otherwise two decoders could wait for each other.
			err = corrupt.Errorf("base %d has a later generation", num)
		}
		var c []byte
		if err == nil {
			c, err = s.chunk(loc, num)
		}
		if err != nil {
			return nil, fmt.Errorf("base: %w", err)
		}
		parts = append(parts, c)
	}
	if len(parts) == 1 {
		return parts[0], nil
	}
	return slices.Concat(parts...), nil
}

// chunk returns the bytes of a chunk. Callers must not change them.
func (s *Store) chunk(loc locator, num uint64) ([]byte, error) {
	b, err := s.block(loc, num)
	if err != nil {
		return nil, err
	}
	return b.need(num)
}

// need is chunk for a chunk that the index says is there.
func (b *block) need(num uint64) ([]byte, error) {
	c, ok := b.chunk(num)
	if !ok {
		return nil, corrupt.Errorf("chunk %d is not where the index says", num)
	}
	return c, nil
}
