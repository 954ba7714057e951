package chunkstore

import (
	"context"
	"slices"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
	badger "github.com/dgraph-io/badger/v4"

	"snapfs/chunkstore/internal/pack"
	"snapfs/chunkstore/internal/prefix"
)

// A prefix is a chunk that no manifest names: what many chunks have in common. Blocks have it as their dictionary, so
// that short blocks take as little space as long ones would, and one chunk is read by decoding little. A prefix is
// decoded once and stays in the cache while its blocks are read. It lies in a block of its own, which has no base.
//
// Prefixes are live while a block needs them. Those that too little needs are given up (prefixMoves).
const (
	prefixMax     = 1 << 20  // bytes
	prefixLeast   = 64 << 10 // bytes; what has less in common gets none
	prefixStretch = 24 << 20 // bytes of chunks that share a prefix
	prefixFrom    = 3 << 20  // bytes of chunks from which on they get a prefix
	prefixSamples = 3        // stretches that are encoded to see whether a prefix pays
)

// shared is a prefix and its number.
type shared struct {
	num  uint64
	data []byte
}

// addPrefixes gives prefixes to chunks that are about to be compressed into blocks, in this order. Only Optimize does:
// an ingest's blocks are short, and a single read of one would decode a prefix four times as long.
func (in *Ingest) addPrefixes(list []*fresh) error {
	if !in.repack {
		return nil
	}
	total := 0
	for _, f := range list {
		total += len(f.data)
	}
	stretches := max(1, (total+prefixStretch/2)/prefixStretch)
	for at := 0; at < len(list); {
		end, size := at, 0
		for ; end < len(list) && (size < total/stretches || end == at); end++ {
			size += len(list[end].data)
		}
		if err := in.addPrefix(list[at:end], size); err != nil {
			return err
		}
		at = end
	}
	return nil
}

// addPrefix gives a prefix to chunks of so many bytes, if that pays.
func (in *Ingest) addPrefix(list []*fresh, size int) error {
	if int64(size) < in.s.prefixFrom {
		return nil
	}
	parts := make([][]byte, len(list))
	for i, f := range list {
		parts[i] = f.data
	}
	data := prefix.Choose(parts, prefixMax)
	if len(data) < prefixLeast || !in.prefixPays(parts, size, data) {
		return nil
	}
	if err := in.ctx.Err(); err != nil {
		return err
	}
	p, err := in.makePrefix(data)
	if err != nil {
		return err
	}
	for _, f := range list {
		f.prefix = p
	}
	return nil
}

// makePrefix stores a prefix.
func (in *Ingest) makePrefix(data []byte) (*shared, error) {
	num, err := in.s.numbers(1)
	if err != nil {
		return nil, err
	}
	in.s.pins.use(in, num)
	f := &fresh{num: num, hash: hashOf(data), data: data, extra: true}
	in.added++
	in.mu.Lock()
	in.unindexed[num] = f
	in.mu.Unlock()
	if err := in.block([]*fresh{f}); err != nil {
		return nil, err
	}
	return &shared{num, data}, nil
}

// prefixPays encodes some of the parts with and without a prefix.
func (in *Ingest) prefixPays(parts [][]byte, size int, data []byte) bool {
	unit := in.blockLimit(nil)
	units := max(size/unit, 1)
	sc := pack.TakeScratch()
	defer sc.Release()
	encoded := func(b, dict []byte) int {
		_, level := in.levels()
		sc.Frame = in.s.codec.EncodeBlock(sc.Frame[:0], b, dict, level)
		return len(sc.Frame)
	}
	samples, saved := min(prefixSamples, units), 0
	at, next := 0, 0
	for no := range samples {
		for from := no * (size / samples); next < len(parts) && at < from; next++ {
			at += len(parts[next])
		}
		var sample []byte
		for ; next < len(parts) && (len(sample) == 0 || len(sample)+len(parts[next]) <= unit); next++ {
			sample = append(sample, parts[next]...)
			at += len(parts[next])
		}
		saved += encoded(sample, nil)
		for b := range slices.Chunk(sample, in.blockLimit(&shared{})) {
			saved -= encoded(b, data)
		}
	}
	return saved*units > encoded(data, nil)*samples
}

// blockLimit is how many bytes of chunks with a prefix, or without one, make a block.
func (in *Ingest) blockLimit(p *shared) int {
	switch {
	case !in.repack:
		return blockSize
	case p == nil:
		return repackedSize
	}
	return prefixedSize
}

// prefixOf returns the prefix of the block that has a chunk; nil if there is none.
func (rw *rewriter) prefixOf(rec *located) (*shared, error) {
	num, ok := rec.prefix()
	if !ok || !rw.s.pins.use(rw.Ingest, num) {
		return nil, nil
	}
	if rw.last != nil && rw.last.num == num {
		return rw.last, nil
	}
	data, _, err := rw.s.verifiedChunk(num)
	if err != nil {
		return nil, skipLost(err)
	}
	rw.last = &shared{num, data}
	return rw.last, nil
}

// prefixes lists the prefixes of all blocks.
func (s *Store) prefixes(ctx context.Context) (*roaring64.Bitmap, error) {
	set := roaring64.New()
	err := s.view(func(btx *badger.Txn) error {
		return s.eachPage(ctx, btx, func(_ uint64, pg *page) error {
			for i := range pg.slots {
				if r := pg.slots[i].rec; r != nil {
					if num, ok := r.prefix(); ok {
						set.Add(num)
					}
				}
			}
			return nil
		})
	})
	return set, err
}

// prefixMoves lists the chunks that share a prefix longer than they are together: they are encoded without it.
func (c *collection) prefixMoves(ctx context.Context) ([]move, error) {
	if c.prefixes.IsEmpty() {
		return nil, nil
	}
	type user struct {
		bytes int
		moves []move
	}
	users := map[uint64]*user{}
	if err := c.s.view(func(btx *badger.Txn) error {
		return c.s.eachPage(ctx, btx, func(no uint64, pg *page) error {
			for i := range pg.slots {
				sl := &pg.slots[i]
				if sl.rec == nil {
					continue
				}
				num, ok := sl.rec.prefix()
				if !ok {
					continue
				}
				u := users[num]
				if u == nil {
					u = &user{}
					users[num] = u
				}
				if u.bytes += sl.len; u.bytes > prefixMax {
					u.moves = nil
					continue
				}
				order := blockOrder(sl.rec.Location, i)
				u.moves = append(u.moves, move{num: no*pageChunks + uint64(i), order: order, alone: true})
			}
			return nil
		})
	}); err != nil {
		return nil, err
	}
	var list []move
	for num, u := range users {
		_, n, err := c.s.locate(num)
		if err != nil && skipLost(err) != nil {
			return nil, err
		}
		if err == nil && u.bytes < n {
			list = append(list, u.moves...)
		}
	}
	return list, nil
}
