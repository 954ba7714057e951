package chunkstore

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"

	badger "github.com/dgraph-io/badger/v4"
	"golang.org/x/sys/unix"

	"snapfs/chunkstore/internal/corrupt"
	"snapfs/chunkstore/internal/pack"
	"snapfs/internal/varint"
)

const (
	copyMax  = 4 << 20   // bytes copied between two transactions
	groupMax = 256 << 20 // bytes of live records of packs that are compacted together
	// Badger's tables are rewritten when more than one of purgeShare keys was deleted.
	purgeShare = 8
	deadMax    = 1 << 16 // hashes that are removed before more are looked for
)

// compact returns what is not live in packs.
func (c *collection) compact(ctx context.Context) error {
	s := c.s
	settled := s.packs.Settled()
	c.below = s.settled()
	inv, err := s.inventory(ctx)
	if err != nil {
		return err
	}
	c.exists = inv.all
	for num, size := range settled {
		if inv.packs[num] != nil {
			continue
		}
		if end, ok := s.packs.Retire(num); ok && end == size {
			if err := s.removePack(num); err != nil {
				return err
			}
		}
	}
	if err := c.punch(ctx, inv, settled); err != nil {
		return err
	}
	var group []uint32
	size := int64(0)
	for _, p := range c.policy.choose(inv, s.packs.Sizes(), s.packs.Occupied()) {
		// Records that appear in it from here on were appended before. The index has all of them when no writer holds
		// the pack.
		if _, ok := s.packs.Retire(p.num); !ok {
			continue
		}
		if group, size = append(group, p.num), size+p.live; size >= groupMax {
			if err := c.evacuate(ctx, group); err != nil {
				return err
			}
			group, size = nil, 0
		}
	}
	return c.evacuate(ctx, group)
}

// removePack removes a pack that the index needs nothing of.
func (s *Store) removePack(num uint32) error {
	if err := s.update(func(t *writeTxn) error { return t.delete(packKey(num)) }); err != nil {
		return err
	}
	return s.packs.Remove(num)
}

// liveRecord is a live record of a pack that is being compacted.
type liveRecord struct {
	from *located
	nums []uint64
}

// evacuate moves the live records out of packs and removes the packs. One walk over the index finds the records of all
// packs.
func (c *collection) evacuate(ctx context.Context, nums []uint32) error {
	if len(nums) == 0 {
		return nil
	}
	s := c.s
	recs := map[uint32]map[pack.Location]*liveRecord{}
	for _, num := range nums {
		recs[num] = map[pack.Location]*liveRecord{}
	}
	if err := s.view(func(btx *badger.Txn) error {
		return s.eachPage(ctx, btx, func(no uint64, pg *page) error {
			for i := range pg.slots {
				r := pg.slots[i].rec
				if r == nil {
					continue
				}
				in := recs[r.Pack]
				if in == nil {
					continue
				}
				if in[r.Location] == nil {
					in[r.Location] = &liveRecord{from: r}
				}
				in[r.Location].nums = append(in[r.Location].nums, no*pageChunks+uint64(i))
			}
			return nil
		})
	}); err != nil {
		return err
	}
	for _, num := range nums {
		if err := c.evacuatePack(ctx, num, slices.Collect(maps.Values(recs[num]))); err != nil {
			return err
		}
	}
	return nil
}

// evacuatePack moves the records of a pack and removes it; a pack with a damaged record is left as it is.
func (c *collection) evacuatePack(ctx context.Context, num uint32, list []*liveRecord) error {
	s := c.s
	slices.SortFunc(list, func(a, b *liveRecord) int { return cmp.Compare(a.from.Off, b.from.Off) })
	var held pack.Holds
	defer func() { s.dropPacks(&held) }()
	moved := map[*liveRecord]pack.Location{}
	var batch []*liveRecord
	size := int64(0)
	flush := func() error {
		if err := c.switchIndex(ctx, batch, moved); err != nil {
			return err
		}
		batch, size = nil, 0
		clear(moved)
		return nil
	}
	for _, r := range list {
		if err := ctx.Err(); err != nil {
			return err
		}
		b, err := s.packs.ReadRaw(r.from.Location)
		if err == nil {
			b, err = s.verifyRecord(r.from, b, r.nums)
		}
		if err != nil {
			s.log.Warn("pack with a damaged record is not compacted", "pack", num, "offset", r.from.Off, "error", err)
			return flush()
		}
		at, err := s.packs.Append(b, &held)
		if err != nil {
			return err
		}
		moved[r] = at
		batch = append(batch, r)
		s.moved.Add(at.Len)
		if size += at.Len; size >= copyMax || len(batch) >= batchMax/8 {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	if err := flush(); err != nil {
		return err
	}
	return s.removePack(num)
}

// switchIndex makes the index name the copies of records instead of the originals. The copies are read back first.
func (c *collection) switchIndex(
	ctx context.Context, batch []*liveRecord, moved map[*liveRecord]pack.Location,
) error {
	if len(batch) == 0 {
		return nil
	}
	s := c.s
	if err := s.packs.Sync(); err != nil {
		return err
	}
	for _, r := range batch {
		if _, err := s.packs.Read(moved[r]); err != nil {
			return fmt.Errorf("verify copy: %w", err)
		}
	}
	// In the order of chunk numbers, so that each page is written once.
	type change struct {
		num      uint64
		from, to *located
	}
	var changes []change
	for _, r := range batch {
		rec := *r.from
		rec.Location = moved[r]
		for _, num := range r.nums {
			changes = append(changes, change{num, r.from, &rec})
		}
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Compare(a.num, b.num) })
	for len(changes) > 0 {
		if err := s.pace(ctx); err != nil {
			return err
		}
		if err := s.update(func(t *writeTxn) error {
			ends := map[uint32]int64{}
			t.short()
			for len(changes) > 0 && t.room(1, slotCost(changes[0].to)) {
				ch := changes[0]
				no, i := pageOf(ch.num)
				pg, err := t.edit(no)
				if err != nil {
					return err
				}
				if was := pg.slots[i].rec; was == nil || was.Location != ch.from.Location {
					return corrupt.Errorf("chunk %d was moved twice", ch.num)
				}
				t.setSlot(pg, i, slot{ch.to, pg.slots[i].len})
				ends[ch.to.Pack] = max(ends[ch.to.Pack], ch.to.End())
				changes = changes[1:]
			}
			return t.extendPacks(ends)
		}); err != nil {
			return err
		}
	}
	return nil
}

// purge removes hashes of chunks that are gone, and makes Badger release the space of deleted keys.
func (c *collection) purge(ctx context.Context) error {
	s := c.s
	s.writeMu.Lock()
	stale, chunks := s.state.stale, s.state.chunks
	s.writeMu.Unlock()
	if stale*purgeShare <= chunks || c.exists == nil {
		return nil
	}
	if err := s.pruneSketches(ctx); err != nil {
		return err
	}
	for from := []byte{keyHash}; from != nil; {
		var dead [][]byte
		var err error
		if dead, from, err = c.deadHashes(ctx, from); err != nil {
			return err
		}
		if err := s.pace(ctx); err != nil {
			return err
		}
		if err := c.dropHashes(dead); err != nil {
			return err
		}
	}
	if err := s.update(func(t *writeTxn) error {
		t.state.stale = 0
		return nil
	}); err != nil {
		return err
	}
	s.writeMu.Lock()
	s.hashes.filter.Store(nil) // it would keep the room of what was removed
	s.writeMu.Unlock()
	return s.shrinkIndex(ctx)
}

// deadHashes lists hashes of chunks that are gone, from a key on. It returns where to go on, nil at the end.
func (c *collection) deadHashes(ctx context.Context, from []byte) (dead [][]byte, next []byte, err error) {
	err = c.s.view(func(btx *badger.Txn) error {
		return scan(btx, []byte{keyHash}, from, func(key, value []byte) (bool, error) {
			p := varint.Parser{Rest: value}
			if num := p.Uint(); num < c.below && !c.exists.has(num) {
				if len(dead) == deadMax {
					next = bytes.Clone(key)
					return false, nil
				}
				dead = append(dead, bytes.Clone(key))
			}
			return true, ctx.Err()
		})
	})
	return dead, next, err
}

// dropHashes removes hashes of chunks that are gone.
func (c *collection) dropHashes(keys [][]byte) error {
	for len(keys) > 0 {
		if err := c.s.update(func(t *writeTxn) error {
			t.short()
			for len(keys) > 0 && t.room(1, int64(len(keys[0]))) {
				k := keys[0]
				// A chunk with the same contents may have been added since.
				v, err := get(t.btx, k)
				if err != nil {
					return err
				}
				p := varint.Parser{Rest: v}
				if num := p.Uint(); num < c.below && !c.exists.has(num) {
					if err := t.delete(k); err != nil {
						return err
					}
				}
				keys = keys[1:]
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// allocatedIn sums up the allocated bytes of the files in dir.
func allocatedIn(dir string) (int64, error) {
	total := int64(0)
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		err = unix.Lstat(path, &st)
		if errors.Is(err, unix.ENOENT) {
			return nil // Badger has just removed it
		}
		total += st.Blocks * 512
		return err
	})
	return total, err
}
