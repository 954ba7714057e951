package chunkstore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"snapfs/chunkstore/internal/pack"
)

// What a collection leaves of garbage: with garbagePercent of packs, 15 % at most.
const (
	// A block is rewritten when more than this share of its bytes is dead.
	deadBlockPercent = 6
	// Chunks are re-based when bases that no manifest names take more than this share of the payload.
	deadBasePercent = 7
	rewriteMax      = 32 << 20 // bytes of chunks rewritten at a time
	rewritePages    = 64       // pages that these may have, so that few chunks wait for each other
)

// rewrite re-encodes what a sweep left in poor shape: blocks with many dead chunks, and chunks with dead bases.
func (c *collection) rewrite(ctx context.Context) error {
	list, err := c.partlyDead(ctx)
	if err != nil {
		return err
	}
	rebased, err := c.deadBases(ctx)
	if err != nil {
		return err
	}
	list = append(list, rebased...)
	if err := c.moveAll(ctx, list); err != nil {
		return err
	}
	// Bases that nothing needs any more are left to the next sweep, unless chunks were re-based here.
	if len(rebased) == 0 {
		return nil
	}
	return c.collectRebased(ctx)
}

// collectRebased collects what nothing needs any more after re-basing.
func (c *collection) collectRebased(ctx context.Context) error {
	next := &collection{s: c.s, progress: func(int64, int64) {}}
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
		n, err := rw.move(mv)
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

// move is a chunk to be re-encoded.
type move struct {
	num   uint64
	order string   // chunks with similar keys lie side by side
	bases []uint64 // plain if there are none
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
		if (all-left)*100 > all*deadBlockPercent {
			list = append(list, alive...)
		}
	}
	return list, nil
}

func blockOrder(at pack.Location, i int) string {
	return fmt.Sprintf("%08x%012x%06x", at.Pack, at.Off, i)
}

// deadBases finds the chunks to be encoded without bases that no manifest names, if those take much space.
func (c *collection) deadBases(ctx context.Context) ([]move, error) {
	s := c.s
	dead := roaring.AndNot(c.live, c.named)
	if dead.IsEmpty() {
		return nil, nil
	}
	deadBytes, all, err := c.weigh(ctx, dead)
	if err != nil || deadBytes*100 <= all*deadBasePercent {
		return nil, err
	}
	var list []move
	firsts := map[uint64]uint64{} // per dead root, the chunk that is encoded plain instead
	for it := c.named.Iterator(); it.HasNext(); {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		num := uint64(it.Next())
		rec, _, err := s.locate(num)
		if errors.Is(err, errNoChunk) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(rec.bases, func(b uint64) bool { return dead.Contains(uint32(b)) }) {
			continue
		}
		bases, roots, err := c.ancestors(rec.bases, dead)
		if err != nil {
			return nil, err
		}
		mv := move{num: num, bases: bases}
		for _, root := range roots {
			first, ok := firsts[root]
			if !ok && len(bases) == 0 {
				firsts[root] = num
				rec, _, err := s.locate(root)
				if err != nil {
					return nil, err
				}
				mv.order = blockOrder(rec.Location, int(root%pageChunks))
				break
			}
			if ok && first != num {
				mv.bases = append(mv.bases, first)
			}
		}
		list = append(list, mv)
	}
	return list, nil
}

// ancestors walks from bases over dead chunks. It returns the nearest ones that are named, and the dead ones without
// bases.
func (c *collection) ancestors(bases []uint64, dead *roaring.Bitmap) (named, roots []uint64, err error) {
	seen := map[uint64]bool{}
	var walk func(num uint64) error
	walk = func(num uint64) error {
		if seen[num] {
			return nil
		}
		seen[num] = true
		if !dead.Contains(uint32(num)) {
			named = append(named, num)
			return nil
		}
		rec, _, err := c.s.locate(num)
		if err != nil {
			return err
		}
		if len(rec.bases) == 0 {
			roots = append(roots, num)
		}
		for _, b := range rec.bases {
			if err := walk(b); err != nil {
				return err
			}
		}
		return nil
	}
	for _, b := range bases {
		if err := walk(b); err != nil {
			return nil, nil, err
		}
	}
	return named, roots, nil
}

// weigh sums the payload of all records, and the share of a set of chunks, by length.
func (c *collection) weigh(ctx context.Context, set *roaring.Bitmap) (part, all int64, err error) {
	type share struct{ part, all, bytes int64 }
	blocks := map[pack.Location]*share{}
	btx := c.s.db.NewTransaction(false)
	defer btx.Discard()
	err = c.s.eachPage(ctx, btx, func(no uint64, pg *page) error {
		for i := range pg.slots {
			sl := pg.slots[i]
			if sl.rec == nil {
				continue
			}
			in := set.Contains(uint32(no*pageChunks) + uint32(i))
			if sl.rec.delta {
				all += sl.rec.Len
				if in {
					part += sl.rec.Len
				}
				continue
			}
			b := blocks[sl.rec.Location]
			if b == nil {
				b = &share{bytes: sl.rec.Len}
				blocks[sl.rec.Location] = b
			}
			b.all += int64(sl.len)
			if in {
				b.part += int64(sl.len)
			}
		}
		return nil
	})
	for _, b := range blocks {
		all += b.bytes
		part += b.bytes * b.part / max(b.all, 1)
	}
	return part, all, err
}

// rewriter re-encodes chunks of the store. It uses an ingest to do so.
type rewriter struct {
	*Ingest
	moved *roaring.Bitmap
	pages map[uint64]bool // that the next flush changes
	index int64           // bytes that it writes into the index for that, at most
	bytes int             // that it moves
}

func (s *Store) newRewriter(ctx context.Context) (*rewriter, error) {
	in, err := s.NewIngest(ctx, IngestOptions{Background: true})
	if err != nil {
		return nil, err
	}
	return &rewriter{Ingest: in, moved: roaring.New(), pages: map[uint64]bool{}}, nil
}

// move takes a chunk and returns its length. A chunk that cannot be read stays as it is.
func (rw *rewriter) move(mv move) (int, error) {
	if !rw.moved.CheckedAdd(uint32(mv.num)) {
		return 0, nil
	}
	rec, _, err := rw.s.locate(mv.num)
	if errors.Is(err, errNoChunk) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	data, sum, err := rw.s.verifiedChunk(mv.num)
	if err != nil {
		rw.s.log.Warn("damaged chunk left alone", "chunk", mv.num, "error", err)
		return 0, skipLost(err)
	}
	f := &fresh{num: mv.num, hash: sum, data: slices.Clone(data), order: mv.order, bound: true, maxGen: rec.gen}
	for _, b := range mv.bases {
		base, _, err := rw.locate(b)
		if errors.Is(err, errNoChunk) {
			continue
		}
		if err != nil {
			return 0, err
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
		return 0, err
	}
	rw.bytes += len(data)
	return len(data), rw.dispatch(f)
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
		for _, f := range batch {
			no, i := pageOf(f.num)
			pg, err := t.edit(no)
			if err != nil {
				return err
			}
			t.setSlot(pg, i, slot{f.rec, f.size})
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
	return len(rw.pages) >= rewritePages || rw.index >= rw.s.limits.bytes || rw.bytes >= rewriteMax
}
