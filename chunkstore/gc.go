package chunkstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/RoaringBitmap/roaring/v2"
	badger "github.com/dgraph-io/badger/v4"
	"golang.org/x/sys/unix"
)

// GCStats says what a collection did. Bytes are allocated bytes.
type GCStats struct {
	Chunks    int64 // collected
	Bytes     int64 // given back to the file system
	Rewritten int64 // bytes of live payload moved
}

const sweepPages = 64 // pages changed in one transaction

// GC collects what no manifest needs and gives the bytes back; runs beside readers and writers. It can be
// interrupted, also by a crash, at any point: what is left is collected by the next one. On a full disk it gives back
// what needs no room to be moved; ENOSPC means that there was none of that.
//
//	scan     which chunks there are
//	mark     what manifests name, what ingests and readers hold, and the bases of all these; the rest is doomed
//	sweep    doomed chunks leave the index
//	rewrite  blocks of which much is dead, and chunks that only dead bases explain
//	compact  packs with much garbage: their live records are copied, the index is switched, the file goes
func (s *Store) GC(ctx context.Context, progress func(done, total int64)) (GCStats, error) {
	return s.collect(ctx, progress, (*collection).run)
}

// collect runs GC or Optimize, one at a time, and measures what it gave back.
func (s *Store) collect(ctx context.Context, progress func(done, total int64),
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
	c := &collection{s: s, progress: progress}
	err = run(c, ctx)
	s.liveChanged()
	after, aerr := s.allocated()
	c.stats.Bytes = max(0, before-after)
	if err == nil && c.stats.Bytes == 0 {
		err = c.noRoom
	}
	return c.stats, errors.Join(err, aerr)
}

// collection is one run of GC.
type collection struct {
	s        *Store
	progress func(done, total int64)
	stats    GCStats
	named    *roaring.Bitmap // chunks that manifests name, and what is pinned
	live     *roaring.Bitmap // named, and the bases they need
	touched  map[place]bool  // blocks that lost a chunk in the sweep
	noRoom   error           // that of a step which could not move data on a full disk
}

func (c *collection) run(ctx context.Context) error {
	steps := []func(context.Context) error{c.mark, c.sweep, c.rewrite, c.compact, c.purge}
	for i, step := range steps {
		c.progress(int64(i), int64(len(steps)))
		err := step(ctx)
		if errors.Is(err, unix.ENOSPC) {
			c.noRoom = err // the steps that follow may make some
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
	p, err := s.packs.allocated()
	if err != nil {
		return 0, err
	}
	i, err := allocatedIn(s.guard.dir)
	return p + i, err
}

// inventory is what the index holds.
type inventory struct {
	all     *roaring.Bitmap  // chunks
	payload int64            // bytes of their records
	packs   map[uint32]int64 // the same by pack
}

// inventory counts what the index holds. The counters, which do not follow what a collection does to blocks, are set
// right by it.
func (s *Store) inventory(ctx context.Context) (*inventory, error) {
	s.writeMu.Lock()
	was := s.state
	btx := s.db.NewTransaction(false) // sees just what the counters count
	s.writeMu.Unlock()
	defer btx.Discard()
	v := &inventory{all: roaring.New(), packs: map[uint32]int64{}}
	blocks := map[place]bool{}
	err := s.eachPage(ctx, btx, func(no uint64, pg *page) error {
		for i := range pg.slots {
			r := pg.slots[i].rec
			if r == nil {
				continue
			}
			v.all.Add(uint32(no*pageChunks) + uint32(i))
			if !r.delta {
				if blocks[r.place] {
					continue
				}
				blocks[r.place] = true
			}
			v.payload += r.len
			v.packs[r.pack] += r.len
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if chunks := int64(v.all.GetCardinality()); chunks != was.chunks || v.payload != was.payload {
		return v, s.update(func(t *writeTxn) error {
			t.state.chunks += chunks - was.chunks
			t.state.payload += v.payload - was.payload
			return nil
		})
	}
	return v, nil
}

// eachPage calls fn for the pages of the index in order.
func (s *Store) eachPage(ctx context.Context, btx *badger.Txn, fn func(no uint64, pg *page) error) error {
	prefix := []byte{keyPage}
	return scan(btx, prefix, prefix, func(key, value []byte) (bool, error) {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		if len(key) != 5 {
			return false, corruptf("page key of %d bytes", len(key))
		}
		no := pageNumber(key)
		pg, err := parsePage(value, no)
		if err != nil {
			return false, err
		}
		return true, fn(no, pg)
	})
}

// mark decides what is doomed.
func (c *collection) mark(ctx context.Context) error {
	s := c.s
	s.pins.mu.Lock()
	s.pins.recent = roaring.New()
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
	all := inv.all
	c.named = roaring.New()
	if err := s.eachManifest(ctx, func(m *chunkList) error {
		c.named.Or(m.bitmap())
		return nil
	}); err != nil {
		// Without knowing all that is named nothing can be collected.
		return fmt.Errorf("collect: %w", err)
	}
	c.live = c.named.Clone()
	if err := s.closure(c.live, c.live.Clone()); err != nil {
		return err
	}
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

// closure adds to set the bases that the chunks of front, a part of it, need.
func (s *Store) closure(set, front *roaring.Bitmap) error {
	for !front.IsEmpty() {
		next := roaring.New()
		for it := front.Iterator(); it.HasNext(); {
			rec, _, err := s.locate(uint64(it.Next()))
			if errors.Is(err, errNoChunk) {
				continue // lost: Check tells; it needs nothing
			}
			if err != nil {
				return err
			}
			for _, b := range rec.bases {
				if set.CheckedAdd(uint32(b)) {
					next.Add(uint32(b))
				}
			}
		}
		front = next
	}
	return nil
}

// sweep takes the doomed out of the index.
func (c *collection) sweep(ctx context.Context) error {
	s := c.s
	s.pins.mu.Lock()
	doomed := s.pins.doomed
	s.pins.mu.Unlock()
	c.touched = map[place]bool{}
	if doomed == nil {
		return nil
	}
	it := doomed.Iterator()
	for it.HasNext() {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := int64(0)
		var blocks []place
		err := s.update(func(t *writeTxn) error {
			for it.HasNext() {
				no, i := pageOf(uint64(it.PeekNext()))
				if t.pages[no] == nil && len(t.pages) == sweepPages {
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
				pg.slots[i] = slot{}
				n++
				if !r.delta {
					blocks = append(blocks, r.place)
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
	// The doomed stay hidden until none of them is in the index; numbers are never used again.
	s.pins.mu.Lock()
	s.pins.doomed = nil
	s.pins.mu.Unlock()
	s.liveChanged()
	return nil
}
