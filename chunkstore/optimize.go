package chunkstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"snapfs/chunkstore/internal/corrupt"
	"snapfs/chunkstore/internal/pack"
)

// repackedSize is blockSize of chunks that are packed anew. Reading one chunk decodes as much, and once more for each
// base that lies in another block: with 3 MiB a cold read of 4 KiB takes 15 ms of processor time at the 99th
// percentile, with 1 MiB 7, for 3 % more bytes.
const repackedSize = 1 << 20

// repackedDelta is how long a delta must be to be encoded anew: of the shorter ones, which are the most, a few bytes
// would be saved at the same cost.
const repackedDelta = 256

// repackStep is how many chunk numbers are packed anew until that is recorded: an interruption loses no more.
const repackStep = 1 << 15

// Optimize packs what came since the last time anew, for the least space, on one processor: chunks that are no deltas
// into longer blocks, those of several ingests together; deltas, against the bases they have, at the best level. It
// runs beside readers and writers; bytes of the result are what it gave back.
//
// It can be interrupted at any point, by ctx or by a crash: copies are synced and read back before one transaction at a
// time makes the index name them, the originals go after that, and what was not reached is done by the next run, which
// begins where the last record of that says.
func (s *Store) Optimize(ctx context.Context, progress func(done, total int64)) (GCStats, error) {
	return s.collect(ctx, progress, (*collection).optimize)
}

// Unoptimized tells how many chunks came since the last Optimize.
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
	c.live = roaring.New() // of chunks that are needed
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
	for first := from; from < end; {
		to := end
		if end-from > repackStep+repackStep/2 {
			to = from + repackStep
		}
		list, err := c.unpacked(ctx, from, to)
		if err == nil {
			err = c.repack(ctx, list, func(i int64) { c.progress(int64(from-first)+i, int64(end-first)) })
		}
		if err != nil {
			return errors.Join(err, c.compactAfter(ctx, err))
		}
		if err := s.update(func(t *writeTxn) error {
			t.state.packed = max(t.state.packed, to)
			return nil
		}); err != nil {
			return err
		}
		from = to
	}
	return c.compact(ctx)
}

// compactAfter gives back what an interrupted repack has freed, unless it may not go on.
func (c *collection) compactAfter(ctx context.Context, cause error) error {
	if ctx.Err() != nil || !errors.Is(cause, ErrCorrupt) {
		return nil // the next collection does it
	}
	return c.compact(ctx)
}

// complete is the number up to which no chunk is still to be named: those of ingests under way are packed anew later.
func (c *collection) complete(from uint64) uint64 {
	s := c.s
	s.numMu.Lock()
	to := s.nextNum
	s.numMu.Unlock()
	s.pins.mu.Lock()
	defer s.pins.mu.Unlock()
	for in := range s.pins.ingests {
		it := in.used.Iterator()
		for it.AdvanceIfNeeded(uint32(from)); it.HasNext(); {
			if num := uint64(it.Next()); num < to && !c.live.Contains(uint32(num)) {
				to = num
				break
			}
		}
	}
	return to
}

// repackMove is a chunk to be packed anew, with where it lies.
type repackMove struct {
	move
	at pack.Place
}

// unpacked lists the live chunks from one number to another: first those that are no deltas, in the order of their
// blocks, which an ingest has sorted; then deltas in order of their numbers, bases before what needs them.
func (c *collection) unpacked(ctx context.Context, from, to uint64) ([]repackMove, error) {
	var plain, deltas []repackMove
	it := c.live.Iterator()
	for it.AdvanceIfNeeded(uint32(from)); it.HasNext(); {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		num := uint64(it.Next())
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
		mv := repackMove{move{num: num, bases: rec.bases}, rec.Place}
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

// orderBlocks gives the chunks of blocks their sort key: the place of the block, and theirs in it.
func (c *collection) orderBlocks(list []repackMove) error {
	slices.SortStableFunc(list, func(a, b repackMove) int {
		return cmp.Or(cmp.Compare(a.at.Pack, b.at.Pack), cmp.Compare(a.at.Off, b.at.Off))
	})
	var last pack.Place
	in := map[uint64]int{} // place of a chunk in the block
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
				continue // move tells of it
			}
			for k, m := range r.Members {
				in[m.Num] = k
			}
		}
		mv.order = blockOrder(mv.at, in[mv.num])
	}
	slices.SortStableFunc(list, func(a, b repackMove) int { return cmp.Compare(a.order, b.order) })
	return nil
}

// repack encodes the chunks of the list anew.
func (c *collection) repack(ctx context.Context, list []repackMove, progress func(i int64)) error {
	rw, err := c.s.newRewriter(ctx)
	if err != nil {
		return err
	}
	defer rw.Abort()
	rw.repack = true
	for i, mv := range list {
		if err := ctx.Err(); err != nil {
			return err
		}
		if i > 0 && len(mv.bases) > 0 && len(list[i-1].bases) == 0 {
			// What deltas need must be in packs before them.
			if err := rw.flush(); err != nil {
				return err
			}
		}
		progress(int64(i))
		n, err := rw.move(mv.move)
		if err != nil {
			return err
		}
		c.stats.Rewritten += int64(n)
		if rw.full() {
			if err := rw.flush(); err != nil {
				return err
			}
		}
	}
	return rw.flush()
}

// verify reads the copies of a repack back.
func (rw *rewriter) verify() error {
	for _, f := range rw.placed {
		want, ok := rw.sums[f.num]
		if !ok {
			continue
		}
		data, err := rw.s.chunk(rw.locate, f.num)
		if err != nil {
			return fmt.Errorf("verify copy: %w", err)
		}
		if hashOf(data) != want {
			return corrupt.Errorf("copy of chunk %d differs", f.num)
		}
	}
	return nil
}
