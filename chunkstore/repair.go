package chunkstore

import (
	"context"
	"encoding/binary"
	"slices"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
)

// repair removes the chunks that a check found unreadable, and the deltas that need them, from the index. Equal
// contents that arrive later are then stored instead of being found, and a collection returns the space. The manifests
// that name the chunks stay, and so does everything else of them.
func (c *checker) repair(ctx context.Context) error {
	s := c.s
	if err := c.rescue(ctx); err != nil {
		return err
	}
	if err := c.needing(ctx, c.bad); err != nil {
		return err
	}
	it := c.bad.Iterator()
	for it.HasNext() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := s.update(func(t *writeTxn) error {
			for it.HasNext() {
				no, i := pageOf(it.PeekNext())
				if !t.room(1, slotCost(nil)) {
					return nil
				}
				pg, err := t.edit(no)
				if skipLost(err) != nil {
					return err
				}
				if err != nil { // the page itself is malformed
					pg = &page{}
					t.pages[no] = pg
				}
				it.Next()
				t.state.dropped++
				if pg.slots[i].rec != nil {
					t.setSlot(pg, i, slot{})
					t.state.chunks--
					t.state.stale++
				}
			}
			return nil
		}); err != nil {
			return err
		}
	}
	s.segments.clear()
	s.liveChanged()
	_, err := s.inventory(ctx) // recounts what malformed pages held
	return err
}

// rehash lets chunks be found by their hash again.
func (c *checker) rehash() error {
	for left := c.unhashed; len(left) > 0; {
		if err := c.s.update(func(t *writeTxn) error {
			for len(left) > 0 {
				key, value := hashKey(left[0].hash), binary.AppendUvarint(nil, left[0].num)
				if !t.room(1, int64(len(key)+len(value))) {
					break
				}
				if err := t.set(key, value); err != nil {
					return err
				}
				left = left[1:]
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// rescue encodes right chunks anew whose bases are wrong: a delta, or a block with a prefix, may not refer to the bytes
// that are.
func (c *checker) rescue(ctx context.Context) error {
	var list []move
	if err := c.s.eachPageLoose(ctx, func(no uint64, pg *page) error {
		for i := range pg.slots {
			num, r := no*pageChunks+uint64(i), pg.slots[i].rec
			if r != nil && c.read.Contains(num) && slices.ContainsFunc(r.bases, func(b uint64) bool {
				return c.bad.Contains(b)
			}) {
				list = append(list, move{num: num, alone: true})
			}
		}
		return nil
	}); err != nil {
		return err
	}
	return (&collection{s: c.s}).moveAll(ctx, list)
}

// restamp moves right chunks out of records with a wrong digest.
func (c *checker) restamp(ctx context.Context) error {
	list := make([]move, len(c.stamp))
	for i, num := range c.stamp {
		list[i] = move{num: num}
	}
	return (&collection{s: c.s}).moveAll(ctx, list)
}

// needing adds to bad the chunks whose records need one of it.
func (c *checker) needing(ctx context.Context, bad *roaring64.Bitmap) error {
	for grown := true; grown; {
		grown = false
		if err := c.s.eachPageLoose(ctx, func(no uint64, pg *page) error {
			for i := range pg.slots {
				r := pg.slots[i].rec
				if r == nil {
					continue
				}
				for _, b := range r.bases {
					if bad.Contains(b) {
						grown = bad.CheckedAdd(no*pageChunks+uint64(i)) || grown
					}
				}
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}
