package chunkstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
	badger "github.com/dgraph-io/badger/v4"

	"snapfs/chunkstore/internal/pack"
)

// GCStats says what a collection did. Bytes are allocated bytes.
type GCStats struct {
	Chunks    int64 // collected
	Bytes     int64 // returned to the file system
	Dropped   int64 // removed from the packs; more than Bytes if a new pack has room at its end for what is stored next
	Rewritten int64 // bytes written to packs to move live data
	Left      int64 // bytes of garbage that would cost more to return than they are worth; Compact returns them
}

// GC collects what no manifest needs and returns the space. It runs concurrently with readers and writers. It can be
// interrupted at any point, also by a crash: the next collection continues. On a full disk it frees what can be freed
// without moving data; ENOSPC means that there was nothing of the kind.
//
//	scan     which chunks there are
//	mark     what manifests name, what ingests and readers hold, and the bases of all these; the rest is doomed
//	sweep    doomed chunks leave the index
//	rewrite  blocks of which much is dead, and chunks that only dead bases explain
//	compact  packs: holes are made where nothing is live. Of packs with much garbage that holes do not return, the
//	         live records are copied, the index is switched, and the file goes
//
// Data are moved only if that returns much space for what it writes; see policy. Compact moves more.
func (s *Store) GC(ctx context.Context, progress func(done, total int64)) (GCStats, error) {
	return s.collect(ctx, automatic, progress, (*collection).run)
}

// Compact is GC that returns nearly all garbage, whatever that costs. It may write as much as the store holds.
func (s *Store) Compact(ctx context.Context, progress func(done, total int64)) (GCStats, error) {
	return s.collect(ctx, thorough, progress, (*collection).run)
}

// collect runs GC, Compact or Optimize, one at a time, and measures what it gave back.
func (s *Store) collect(ctx context.Context, how policy, progress func(done, total int64),
	run func(*collection, context.Context) error,
) (GCStats, error) {
	if err := s.enter(ctx); err != nil {
		return GCStats{}, err
	}
	defer s.leave()
	if s.opts.ReadOnly {
		return GCStats{}, ErrReadOnly
	}
	s.gcMu.Lock()
	defer s.gcMu.Unlock()
	if progress == nil {
		progress = func(int64, int64) {}
	}
	before, err := s.allocated()
	if err != nil {
		return GCStats{}, err
	}
	held, moved := s.packBytes(), s.moved.Load()
	c := &collection{s: s, policy: how, progress: progress}
	err = run(c, ctx)
	s.liveChanged()
	c.stats.Rewritten = s.moved.Load() - moved
	after, aerr := s.allocated()
	c.stats.Bytes = max(0, before-after)
	c.stats.Dropped = max(0, held-s.packBytes())
	s.writeMu.Lock()
	payload := s.state.payload
	s.writeMu.Unlock()
	c.stats.Left = s.garbage(payload)
	if err == nil && c.stats.Bytes == 0 {
		err = c.noRoom
	}
	return c.stats, errors.Join(err, aerr)
}

// collection is one run of GC.
type collection struct {
	s        *Store
	policy   policy
	progress func(done, total int64)
	stats    GCStats
	named    *roaring64.Bitmap      // chunks that manifests name, and what is pinned
	live     *roaring64.Bitmap      // named, and the bases they need
	pinned   bool                   // some of named is named by no manifest
	touched  map[pack.Location]bool // blocks that lost a chunk in the sweep
	exists   *bitset                // chunks that the index has after the sweep
	prefixes *roaring64.Bitmap      // of blocks, before the sweep
	added    uint64                 // prefixes that Optimize has made
	below    uint64                 // numbers below it are in the index already, or never will be
	noRoom   error                  // error of a step that could not move data on a full disk
}

func (c *collection) run(ctx context.Context) error {
	c.s.writeMu.Lock()
	was := c.s.state
	c.s.writeMu.Unlock()
	s := c.s
	if was.clean() && s.garbage(was.payload) == s.left && (c.policy == automatic || s.left == 0) {
		c.progress(1, 1)
		return nil
	}
	s.left = 0
	if err := c.steps(ctx); err != nil || c.noRoom != nil || c.pinned {
		return err
	}
	if err := s.update(func(t *writeTxn) error {
		t.state.collected = was.dropped
		return nil
	}); err != nil {
		return err
	}
	s.writeMu.Lock()
	was = s.state
	s.writeMu.Unlock()
	if was.clean() {
		s.left = s.garbage(was.payload)
	}
	return nil
}

func (c *collection) steps(ctx context.Context) error {
	steps := []func(context.Context) error{c.mark, c.sweep, c.rewrite, c.compact, c.purge}
	for i, step := range steps {
		c.progress(int64(i), int64(len(steps)))
		err := step(ctx)
		if isFull(err) {
			c.noRoom = err // the steps that follow may make room
			continue
		}
		if err != nil {
			return err
		}
	}
	c.progress(int64(len(steps)), int64(len(steps)))
	return nil
}

// allocated sums up the allocated bytes of packs and index.
func (s *Store) allocated() (int64, error) {
	p, err := s.packs.Allocated()
	if err != nil {
		return 0, err
	}
	i, err := allocatedIn(s.guard.dir)
	return p + i, err
}

// inventory is what the index holds.
type inventory struct {
	all     *bitset // chunks
	chunks  int64   // in all
	payload int64   // bytes of their records
	// prefixes of blocks
	prefixes *roaring64.Bitmap
	packs    map[uint32]*inPack
}

// inPack is what the index holds of one pack.
type inPack struct {
	live  int64  // bytes of records
	pages bitset // pages of the file, of pack.PageSize bytes, that they lie in
}

// add adds a record.
func (p *inPack) add(at pack.Location) {
	p.live += at.Len
	last := uint64(at.End()-1) / pack.PageSize
	for no := uint64(at.Off) / pack.PageSize; no <= last; no++ {
		p.pages.add(no)
	}
}

// inventory counts what the index holds. It also corrects the counters, which do not follow what a collection does to
// blocks.
func (s *Store) inventory(ctx context.Context) (*inventory, error) {
	s.writeMu.Lock()
	was := s.state
	btx := s.db.NewTransaction(false) // sees exactly what the counters count
	s.writeMu.Unlock()
	defer btx.Discard()
	v := &inventory{all: &bitset{}, prefixes: roaring64.New(), packs: map[uint32]*inPack{}}
	blocks := map[pack.Location]bool{}
	err := s.eachPage(ctx, btx, func(no uint64, pg *page) error {
		var last *located
		for i := range pg.slots {
			r := pg.slots[i].rec
			if r == nil {
				continue
			}
			v.all.add(no*pageChunks + uint64(i))
			v.chunks++
			if r == last {
				continue
			}
			last = r
			if num, ok := r.prefix(); ok {
				v.prefixes.Add(num)
			}
			if !r.delta {
				if blocks[r.Location] {
					continue
				}
				blocks[r.Location] = true
			}
			v.payload += r.Len
			in := v.packs[r.Pack]
			if in == nil {
				in = &inPack{}
				v.packs[r.Pack] = in
			}
			in.add(r.Location)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if v.chunks != was.chunks || v.payload != was.payload || was.moved > 0 {
		return v, s.update(func(t *writeTxn) error {
			t.state.chunks += v.chunks - was.chunks
			t.state.payload += v.payload - was.payload
			t.state.moved = 0
			return nil
		})
	}
	return v, nil
}

// eachPage calls fn for the pages of the index in order.
func (s *Store) eachPage(ctx context.Context, btx *badger.Txn, fn func(no uint64, pg *page) error) error {
	return s.eachPageFrom(ctx, btx, 0, fn)
}

// eachPageFrom is eachPage from a page on.
func (s *Store) eachPageFrom(ctx context.Context, btx *badger.Txn, first uint64,
	fn func(no uint64, pg *page) error,
) error {
	return scan(btx, []byte{keyPage}, pageKey(first), func(key, value []byte) (bool, error) {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		no, err := parseNumber(key)
		if err != nil {
			return false, err
		}
		pg, err := parsePage(value, no)
		if err != nil {
			return false, err
		}
		return true, fn(no, pg)
	})
}

// eachPageDown calls fn for the pages of the index, from the last to the first.
func (s *Store) eachPageDown(ctx context.Context, btx *badger.Txn, fn func(no uint64, pg *page)) error {
	return scanDown(btx, keyPage, func(key, value []byte) (bool, error) {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		no, err := parseNumber(key)
		if err != nil {
			return false, err
		}
		pg, err := parsePage(value, no)
		if err == nil {
			fn(no, pg)
		}
		return err == nil, err
	})
}

// mark determines what is doomed.
func (c *collection) mark(ctx context.Context) error {
	s := c.s
	s.pins.mu.Lock()
	s.pins.recent = roaring64.New()
	s.pins.mu.Unlock()
	defer func() {
		s.pins.mu.Lock()
		defer s.pins.mu.Unlock()
		s.pins.recent = nil
	}()
	inv, err := s.inventory(ctx)
	if err != nil {
		return err
	}
	named := &bitset{}
	if err := s.eachManifestOnce(ctx, func(m *chunkList) { named.addList(m) }); err != nil {
		// Unless all that is named is known, nothing can be collected.
		return fmt.Errorf("collect: %w", err)
	}
	all := inv.all.bitmap()
	live := named.clone()
	if err := s.denseClosure(ctx, live); err != nil {
		return err
	}
	c.named, c.live, c.prefixes = named.bitmap(), live.bitmap(), inv.prefixes
	s.pins.mu.Lock()
	defer s.pins.mu.Unlock()
	pinned := s.pins.recent.Clone()
	for in := range s.pins.ingests {
		pinned.Or(in.used)
	}
	for r := range s.pins.readers {
		pinned.Or(r.m.bitmap())
	}
	pinned.And(all)
	pinned.AndNot(c.live)
	c.pinned = !pinned.IsEmpty()
	c.named.Or(pinned)
	c.live.Or(pinned)
	if err := s.closure(c.live, pinned); err != nil {
		return err
	}
	all.AndNot(c.live)
	if !all.IsEmpty() {
		s.pins.doomed = all
	}
	return nil
}

// denseClosure adds to set the bases that its chunks need. Most bases have lower numbers than the chunks that need
// them, and most of the others are those of versions that were stored as deltas of newer ones. So a walk over the pages
// from the last to the first and one back find nearly all of them.
func (s *Store) denseClosure(ctx context.Context, set *bitset) error {
	btx := s.db.NewTransaction(false)
	defer btx.Discard()
	for up, repeat := false, true; repeat; up = !up {
		repeat = false
		visit := func(no uint64, pg *page) {
			for changed := true; changed; {
				changed = false
				for i := range pg.slots {
					r := pg.slots[i].rec
					if r == nil || len(r.bases) == 0 || !set.has(no*pageChunks+uint64(i)) {
						continue
					}
					for _, b := range r.bases {
						if set.add(b) {
							of, _ := pageOf(b)
							changed = changed || of == no
							repeat = repeat || of != no && (of < no) == up
						}
					}
				}
			}
		}
		var err error
		if up {
			err = s.eachPage(ctx, btx, func(no uint64, pg *page) error {
				visit(no, pg)
				return nil
			})
		} else {
			err = s.eachPageDown(ctx, btx, visit)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// settled returns a number below which no chunk will be added to the index any more.
func (s *Store) settled() uint64 {
	s.numMu.Lock()
	below := s.nextNum
	s.numMu.Unlock()
	s.pins.mu.Lock()
	defer s.pins.mu.Unlock()
	for in := range s.pins.ingests {
		below = min(below, in.first)
	}
	return below
}

// closure adds to set the bases that the chunks of front, a subset of it, need.
func (s *Store) closure(set, front *roaring64.Bitmap) error {
	for !front.IsEmpty() {
		next := roaring64.New()
		for it := front.Iterator(); it.HasNext(); {
			rec, _, err := s.locate(it.Next())
			if errors.Is(err, errNoChunk) {
				continue // lost, which Check reports; it needs nothing
			}
			if err != nil {
				return err
			}
			for _, b := range rec.bases {
				if set.CheckedAdd(b) {
					next.Add(b)
				}
			}
		}
		front = next
	}
	return nil
}

// sweep removes doomed chunks from the index.
func (c *collection) sweep(ctx context.Context) error {
	s := c.s
	s.pins.mu.Lock()
	doomed := s.pins.doomed
	s.pins.mu.Unlock()
	c.touched = map[pack.Location]bool{}
	if doomed == nil {
		return nil
	}
	it := doomed.Iterator()
	for it.HasNext() {
		if err := s.pace(ctx); err != nil {
			return err
		}
		n := int64(0)
		var blocks []pack.Location
		err := s.update(func(t *writeTxn) error {
			t.short()
			for it.HasNext() {
				no, i := pageOf(it.PeekNext())
				if !t.room(1, slotCost(nil)) {
					break
				}
				it.Next()
				pg, err := t.edit(no)
				if err != nil {
					return err
				}
				r := pg.slots[i].rec
				if r == nil {
					continue
				}
				t.setSlot(pg, i, slot{})
				n++
				if !r.delta {
					blocks = append(blocks, r.Location)
				}
			}
			t.state.chunks -= n
			t.state.stale += n
			return nil
		})
		if err != nil {
			return err
		}
		c.stats.Chunks += n
		for _, b := range blocks {
			c.touched[b] = true
		}
	}
	// Doomed chunks stay hidden until none of them is in the index. Numbers are never used again.
	s.pins.mu.Lock()
	s.pins.doomed = nil
	s.pins.mu.Unlock()
	s.liveChanged()
	return nil
}
