package chunkstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/RoaringBitmap/roaring/v2/roaring64"

	"snapfs/chunkstore/internal/pack"
)

const (
	rewriteMax   = 32 << 20 // bytes of chunks rewritten at a time
	rewritePages = 64       // pages that these may have, so that few chunks wait for each other
)

// rewrite re-encodes what a sweep left in poor shape: blocks with many dead chunks, and chunks with dead bases.
func (c *collection) rewrite(ctx context.Context) error {
	if c.live == nil {
		return nil // there was no room to mark: what is live is not known
	}
	list, err := c.partlyDead(ctx)
	if err != nil {
		return err
	}
	rebased, err := c.deadBases(ctx)
	if err != nil {
		return err
	}
	list = append(list, rebased...)
	lonely, err := c.prefixMoves(ctx)
	if err != nil {
		return err
	}
	list = append(lonely, list...) // what is in both goes without its prefix
	if err := c.moveAll(ctx, list); err != nil {
		return err
	}
	// Bases that nothing needs any more are left to the next sweep, unless chunks were re-based here.
	if len(rebased) == 0 && len(lonely) == 0 {
		return nil
	}
	return c.collectRebased(ctx)
}

// collectRebased collects what nothing needs any more after re-basing.
func (c *collection) collectRebased(ctx context.Context) error {
	next := &collection{s: c.s, policy: c.policy, progress: func(int64, int64) {}}
	for _, step := range []func(context.Context) error{next.mark, next.sweep} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	c.stats.Chunks += next.stats.Chunks
	list, err := next.partlyDead(ctx)
	if err != nil {
		return err
	}
	return c.moveAll(ctx, list)
}

// moveAll re-encodes chunks.
func (c *collection) moveAll(ctx context.Context, list []move) error {
	if len(list) == 0 {
		return nil
	}
	rw, err := c.s.newRewriter(ctx)
	if err != nil {
		return err
	}
	defer rw.Abort()
	for _, mv := range list {
		if err := rw.move(mv); err != nil {
			return err
		}
		if rw.full() {
			if err := rw.flush(); err != nil {
				return err
			}
		}
	}
	return rw.flush()
}

// move is a chunk to be re-encoded.
type move struct {
	num   uint64
	order string   // chunks with similar keys lie side by side
	bases []uint64 // plain if there are none
	alone bool     // without the prefix of its block
}

// partlyDead finds the remaining chunks of blocks that lost many in the sweep.
func (c *collection) partlyDead(ctx context.Context) ([]move, error) {
	var list []move
	s := c.s
	for at := range c.touched {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		r, err := s.packs.Read(at)
		if err != nil {
			// It is unknown which chunks it held; it stays, and Check reports it.
			s.log.Warn("damaged block left alone", "pack", at.Pack, "offset", at.Off, "error", err)
			continue
		}
		var alive []move
		left, all := 0, 0
		for _, m := range r.Members {
			all += m.Len
			rec, _, err := s.locate(m.Num)
			if err != nil && !errors.Is(err, errNoChunk) {
				return nil, err
			}
			if err == nil && rec.Location == at {
				left += m.Len
				alive = append(alive, move{num: m.Num, order: blockOrder(at, len(alive))})
			}
		}
		if (all-left)*100 > all*int(c.policy.blockShare) {
			list = append(list, alive...)
		}
	}
	return list, nil
}

func blockOrder(at pack.Location, i int) string {
	return fmt.Sprintf("%08x%012x%06x", at.Pack, at.Off, i)
}

// rewriter re-encodes chunks of the store. It uses an ingest to do so.
type rewriter struct {
	*Ingest
	moved *roaring64.Bitmap
	pages map[uint64]bool // that the next flush changes
	index int64           // bytes that it writes into the index for that, at most
	bytes int             // that it moves
	last  *shared         // prefix that was used last
}

func (s *Store) newRewriter(ctx context.Context) (*rewriter, error) {
	in, err := s.NewIngest(ctx, IngestOptions{Background: true})
	if err != nil {
		return nil, err
	}
	in.moves = true
	return &rewriter{Ingest: in, moved: roaring64.New(), pages: map[uint64]bool{}}, nil
}

// move takes a chunk. A chunk that cannot be read stays as it is.
func (rw *rewriter) move(mv move) error {
	if !rw.moved.CheckedAdd(mv.num) {
		return nil
	}
	rec, _, err := rw.s.locate(mv.num)
	if errors.Is(err, errNoChunk) {
		return nil
	}
	if err != nil {
		return err
	}
	data, sum, err := rw.s.verifiedChunk(mv.num)
	if err != nil {
		rw.s.log.Warn("damaged chunk left alone", "chunk", mv.num, "error", err)
		return skipLost(err)
	}
	f := &fresh{num: mv.num, hash: sum, data: slices.Clone(data), order: mv.order, bound: true, maxGen: rec.gen}
	if !rw.repack && !mv.alone && len(mv.bases) == 0 {
		if f.prefix, err = rw.prefixOf(rec); err != nil {
			return err
		}
	}
	for _, b := range mv.bases {
		base, _, err := rw.locate(b)
		if errors.Is(err, errNoChunk) {
			continue
		}
		if err != nil {
			return err
		}
		// Deltas of this chunk require that its generation does not grow.
		if b != mv.num && base.gen+1 <= rec.gen && rw.s.pins.use(rw.Ingest, b) {
			f.bases = append(f.bases, b)
			f.gen = max(f.gen, base.gen+1)
			rw.fix(b)
		}
	}
	rw.s.pins.use(rw.Ingest, mv.num)
	if err := rw.count(mv.num, len(f.bases)); err != nil {
		return err
	}
	rw.bytes += len(data)
	return rw.dispatch(f)
}

// count adds a chunk with so many bases to what the next flush writes into the index.
func (rw *rewriter) count(num uint64, bases int) error {
	no, _ := pageOf(num)
	rw.index += slotGrowth + int64(bases)*baseGrowth
	if rw.pages[no] {
		return nil
	}
	rw.pages[no] = true
	pg, err := rw.s.page(no)
	if err != nil {
		return err
	}
	rw.index += pageCost(no, pg) + pageGrowth
	return nil
}

// fix keeps the generation of a chunk from growing. The chunk may have been moved and still wait for its encoding.
func (rw *rewriter) fix(num uint64) {
	rw.mu.Lock()
	defer rw.mu.Unlock()
	if f := rw.unindexed[num]; f != nil {
		f.maxGen = min(f.maxGen, f.gen)
	}
}

// flush makes what was moved durable and switches the index to it in one transaction: the bases of a chunk must never
// be of a later generation. The compaction counts again what the old records took.
func (rw *rewriter) flush() error {
	if err := rw.settle(); err != nil {
		return err
	}
	if err := rw.s.packs.Sync(); err != nil {
		return err
	}
	if err := rw.verifyCopies(); err != nil {
		return err
	}
	batch := rw.appended
	err := rw.s.update(func(t *writeTxn) error {
		ends := map[uint32]int64{}
		needed := map[uint64]bool{} // prefixes
		for _, f := range batch {
			if num, ok := f.rec.prefix(); ok {
				needed[num] = true
			}
		}
		for _, f := range batch {
			no, i := pageOf(f.num)
			pg, err := t.edit(no)
			if err != nil {
				return err
			}
			t.setSlot(pg, i, slot{f.rec, f.size})
			if f.extra {
				t.state.chunks++
				if !needed[f.num] {
					t.state.dropped++ // its blocks did not compress
				}
				if err := t.set(hashKey(f.hash), binary.AppendUvarint(nil, f.num)); err != nil {
					return err
				}
			}
			ends[f.rec.Pack] = max(ends[f.rec.Pack], f.rec.End())
		}
		t.state.moved = 1
		t.done = append(t.done, func() { rw.indexed(batch) })
		return t.extendPacks(ends)
	})
	rw.pages = map[uint64]bool{}
	rw.bytes, rw.index = 0, 0
	return err
}

// full reports whether it is time to flush, which is one transaction.
func (rw *rewriter) full() bool {
	return len(rw.pages) >= rewritePages && !rw.repack || rw.index >= rw.s.limits.bytes || rw.bytes >= rewriteMax
}
