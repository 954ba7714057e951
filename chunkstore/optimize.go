package chunkstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/RoaringBitmap/roaring/v2/roaring64"

	"snapfs/chunkstore/internal/corrupt"
	"snapfs/chunkstore/internal/pack"
)

// repackedSize is the blockSize of repacked chunks. Reading one chunk decodes as much, and again for each base in
// another block: with 3 MiB a cold read of 4 KiB takes 15 ms of processor time at the 99th percentile, with 1 MiB 7,
// for 3 % more bytes.
const repackedSize = 1 << 20

// prefixedSize is repackedSize of chunks that share a prefix. With 256 KiB they take 1.6 % more bytes, with a prefix as
// with none.
const prefixedSize = 512 << 10

// repackedDelta is the least length of a delta that is re-encoded. Most deltas are shorter: re-encoding them would save
// a few bytes at the same cost.
const repackedDelta = 256

// spareShare is what part of the bytes that a repack has written is moved, too, to return what it has left behind.
const spareShare = 4

// repackStep is how many chunk numbers are repacked between two records of the progress: an interruption loses no more.
const repackStep = 1 << 15

// Optimize repacks what was added since the last time, for the least space, on one processor: chunks that are no deltas
// into longer blocks, across ingests; deltas against the bases they have, at the best level. Of versions of a chunk, the
// newest becomes the one that is no delta (newest.go). It runs concurrently with readers and writers. Bytes of the
// result is the space that it returned.
//
// It can be interrupted at any point, by ctx or by a crash. Copies are synced and read back before a transaction makes
// the index name them, and the originals are removed after that. The next run continues from the last recorded
// progress.
func (s *Store) Optimize(ctx context.Context, progress func(done, total int64)) (GCStats, error) {
	return s.collect(ctx, automatic, progress, (*collection).optimize)
}

// Unoptimized returns how many chunks were added since the last Optimize.
func (s *Store) Unoptimized() int64 {
	s.numMu.Lock()
	next := s.nextNum
	s.numMu.Unlock()
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	return int64(next - min(next, s.state.packed))
}

func (c *collection) optimize(ctx context.Context) error {
	s := c.s
	c.live = roaring64.New() // of needed chunks
	if err := s.eachManifest(ctx, func(m *chunkList) error {
		c.live.Or(m.bitmap())
		return nil
	}); err != nil {
		return err
	}
	if err := s.closure(c.live, c.live.Clone()); err != nil {
		return err
	}
	s.writeMu.Lock()
	from := s.state.packed
	s.writeMu.Unlock()
	end := c.complete(from)
	if from >= end {
		return nil
	}
	prefixes, err := s.prefixes(ctx)
	if err != nil {
		return err
	}
	c.live.AndNot(prefixes) // they lie well, and must not need bases
	moved := s.moved.Load()
	for first := from; from < end; {
		to := c.stepEnd(from, end)
		if err := c.repackRange(ctx, from, to, func(i int64) {
			c.progress(int64(from-first)+i, int64(end-first))
		}); err != nil {
			return errors.Join(err, c.compactAfter(ctx, err))
		}
		if from, err = c.repacked(to); err != nil {
			return err
		}
	}
	if err := c.sweepPrefixes(ctx, prefixes); err != nil {
		return err
	}
	c.policy.spare = (s.moved.Load() - moved) / spareShare
	return c.compact(ctx)
}

// repackRange re-encodes the chunks from..to.
func (c *collection) repackRange(ctx context.Context, from, to uint64, progress func(i int64)) error {
	c.s.pins.watch()
	defer c.s.pins.unwatch()
	turned, err := c.lineages(ctx, from, to)
	if err != nil {
		return err
	}
	list, err := c.unpacked(ctx, from, to, turned)
	if err != nil {
		return err
	}
	return c.repack(ctx, list, progress)
}

// stepEnd returns where the chunks of a step that begins at a number end: so many numbers behind the first that is live.
func (c *collection) stepEnd(from, end uint64) uint64 {
	it := c.live.Iterator()
	it.AdvanceIfNeeded(from)
	if it.HasNext() {
		from = max(from, it.PeekNext())
	}
	if !it.HasNext() || from >= end || end-from <= repackStep+repackStep/2 {
		return end
	}
	return from + repackStep
}

// repacked records the progress. It returns the number from which on chunks are to be repacked.
func (c *collection) repacked(to uint64) (uint64, error) {
	s := c.s
	s.numMu.Lock()
	if s.nextNum == to+c.added { // the prefixes that this made need no repacking
		to = s.nextNum
	}
	s.numMu.Unlock()
	err := s.update(func(t *writeTxn) error {
		t.state.packed = max(t.state.packed, to)
		return nil
	})
	return to, err
}

// sweepPrefixes removes those of the prefixes that nothing needs any more.
func (c *collection) sweepPrefixes(ctx context.Context, prefixes *roaring64.Bitmap) error {
	if prefixes.IsEmpty() {
		return nil
	}
	next := &collection{s: c.s, policy: c.policy, progress: func(int64, int64) {}}
	if err := next.mark(ctx); err != nil {
		return err
	}
	if err := next.sweep(ctx); err != nil {
		return err
	}
	c.stats.Chunks += next.stats.Chunks
	list, err := next.partlyDead(ctx)
	if err != nil {
		return err
	}
	return c.moveAll(ctx, list)
}

// compactAfter returns the space that an interrupted repack has freed, unless ctx has ended.
func (c *collection) compactAfter(ctx context.Context, cause error) error {
	if ctx.Err() != nil || !errors.Is(cause, ErrCorrupt) {
		return nil // the next collection does it
	}
	return c.compact(ctx)
}

// complete returns the number below which all chunks are in the index: those of ingests under way are repacked later.
func (c *collection) complete(from uint64) uint64 {
	s := c.s
	s.numMu.Lock()
	to := s.nextNum
	s.numMu.Unlock()
	s.pins.mu.Lock()
	defer s.pins.mu.Unlock()
	for in := range s.pins.ingests {
		it := in.used.Iterator()
		for it.AdvanceIfNeeded(from); it.HasNext(); {
			if num := it.Next(); num < to && !c.live.Contains(num) {
				to = num
				break
			}
		}
	}
	return to
}

// repackMove is a chunk to be repacked, with the location of its record. It takes the place of another chunk among
// those of blocks, or its own.
type repackMove struct {
	move
	at      pack.Location
	place   uint64
	lineage *lineage // of which it is the newest version, nil if it is none that is turned round
}

// unpacked lists the live chunks in a range of numbers: first those that are no deltas, in the order of their blocks,
// which an ingest has sorted; then deltas in order of their numbers, bases before the chunks that need them. Of a
// lineage that is turned round it lists the newest version, in the place of the root.
func (c *collection) unpacked(ctx context.Context, from, to uint64, turned []*lineage) ([]repackMove, error) {
	var plain, deltas []repackMove
	of := map[uint64]*lineage{}
	for _, l := range turned {
		for _, num := range l.nums {
			of[num] = l
		}
	}
	it := c.live.Iterator()
	for it.AdvanceIfNeeded(from); it.HasNext(); {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		num := it.Next()
		if num >= to {
			break
		}
		rec, _, err := c.s.locate(num)
		if errors.Is(err, errNoChunk) {
			continue
		}
		if err != nil {
			return nil, err
		}
		mv := repackMove{move: move{num: num, bases: rec.chain()}, at: rec.Location, place: num}
		if l := of[num]; l != nil {
			if num == l.root {
				mv.num, mv.lineage = l.nums[0], l
				plain = append(plain, mv)
			}
			continue
		}
		switch {
		case rec.delta && rec.Len < repackedDelta:
		case rec.delta:
			deltas = append(deltas, mv)
		default:
			plain = append(plain, mv)
		}
	}
	if err := c.orderBlocks(plain); err != nil {
		return nil, err
	}
	return append(plain, deltas...), nil
}

// orderBlocks sets the sort key of chunks of blocks: the location of the block, and their index in it.
func (c *collection) orderBlocks(list []repackMove) error {
	slices.SortStableFunc(list, func(a, b repackMove) int {
		return cmp.Or(cmp.Compare(a.at.Pack, b.at.Pack), cmp.Compare(a.at.Off, b.at.Off))
	})
	var last pack.Location
	in := map[uint64]int{} // index of a chunk in the block
	for i := range list {
		mv := &list[i]
		if mv.at != last {
			last = mv.at
			clear(in)
			r, err := c.s.packs.Read(mv.at)
			if err != nil {
				if skipLost(err) != nil {
					return err
				}
				continue // move reports it
			}
			for k, m := range r.Members {
				in[m.Num] = k
			}
		}
		mv.order = blockOrder(mv.at, in[mv.place])
		if mv.lineage != nil {
			mv.lineage.order = mv.order
		}
	}
	slices.SortStableFunc(list, func(a, b repackMove) int { return cmp.Compare(a.order, b.order) })
	return nil
}

// repack re-encodes the chunks of the list, and turns lineages round.
func (c *collection) repack(ctx context.Context, list []repackMove, progress func(i int64)) error {
	rw, err := c.s.newRewriter(ctx)
	if err != nil {
		return err
	}
	defer rw.Abort()
	defer func() { c.added += rw.added }()
	rw.repack = true
	var turned []*lineage // whose newest versions the next flush moves
	flush := func() error {
		err := c.flushTurned(ctx, rw, turned)
		turned = turned[:0]
		return err
	}
	for i, mv := range list {
		if err := ctx.Err(); err != nil {
			return err
		}
		if i > 0 && len(mv.bases) > 0 && len(list[i-1].bases) == 0 {
			// The bases of deltas must be in packs before them.
			if err := flush(); err != nil {
				return err
			}
		}
		progress(int64(i))
		if err := rw.move(mv.move); err != nil {
			return err
		}
		if mv.lineage != nil {
			turned = append(turned, mv.lineage)
			for _, num := range mv.lineage.nums[1:] {
				if err := rw.count(num, 1); err != nil {
					return err
				}
			}
		}
		if rw.full() {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}

// verifyCopies reads what was moved back.
func (rw *rewriter) verifyCopies() error {
	for _, f := range rw.appended {
		data, err := rw.s.chunk(rw.locate, f.num)
		if err != nil {
			return fmt.Errorf("verify copy: %w", err)
		}
		if hashOf(data) != f.hash {
			return corrupt.Errorf("copy of chunk %d differs", f.num)
		}
	}
	return nil
}
