package chunkstore

import (
	"context"
	"errors"

	"github.com/RoaringBitmap/roaring/v2/roaring64"

	"snapfs/chunkstore/internal/pack"
)

// rebasing finds the chunks that are encoded without bases that no manifest names.
//
// A dead chunk that is a base can go when all that need it are encoded anew. So chunks with a dead ancestor in common
// belong to one family: it is encoded anew as a whole, or not at all. Of the members below one dead root (an ancestor
// without bases), the first becomes a plain chunk, and the others its deltas. A family of one dead root and its deltas
// gains nothing by it; one with many dead versions in between does.
type rebasing struct {
	c    *collection
	dead *roaring64.Bitmap

	parent   map[uint64]uint64 // of dead chunks, towards the one that stands for their family
	families map[uint64]*family
	firsts   map[uint64]uint64 // per dead root, the chunk that is encoded plain instead
}

// family is what depends on the same dead chunks. Sizes are estimates, in bytes of records.
type family struct {
	members []member
	dead    int64 // of the dead chunks
	written int64 // of what replaces them, and of the members
	plain   int64 // of members that become plain, in written
}

// member is a chunk with dead ancestors.
type member struct {
	num   uint64
	bases []uint64 // the nearest ancestors that are named
	roots []uint64 // the dead ancestors without bases
}

// deadBases finds the chunks to be encoded anew, if dead bases take much space.
func (c *collection) deadBases(ctx context.Context) ([]move, error) {
	dead := roaring64.AndNot(c.live, c.named)
	if dead.IsEmpty() {
		return nil, nil
	}
	dead.AndNot(c.prefixes)
	if dead.IsEmpty() {
		return nil, nil
	}
	sizes, all, err := c.weigh(ctx, dead)
	if err != nil {
		return nil, err
	}
	total := int64(0)
	for _, n := range sizes {
		total += n
	}
	if total*100 <= all*c.policy.baseShare {
		return nil, nil
	}
	b := &rebasing{
		c: c, dead: dead, parent: map[uint64]uint64{}, families: map[uint64]*family{}, firsts: map[uint64]uint64{},
	}
	members, err := b.members(ctx)
	if err != nil {
		return nil, err
	}
	for num, n := range sizes {
		b.family(num).dead += n
	}
	for _, m := range members {
		if err := b.join(m, sizes); err != nil {
			return nil, err
		}
	}
	return b.moves(members)
}

// members finds the named chunks with dead bases, and the families of these.
func (b *rebasing) members(ctx context.Context) ([]member, error) {
	var list []member
	for it := b.c.named.Iterator(); it.HasNext(); {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		num := it.Next()
		rec, _, err := b.c.s.locate(num)
		if errors.Is(err, errNoChunk) {
			continue
		}
		if err != nil {
			return nil, err
		}
		m, err := b.ancestors(num, rec.chain())
		if err != nil {
			return nil, err
		}
		if m != nil {
			list = append(list, *m)
		}
	}
	return list, nil
}

// ancestors walks from bases over dead chunks, and unites them in one family. It returns nil if there is none.
func (b *rebasing) ancestors(num uint64, bases []uint64) (*member, error) {
	m := &member{num: num}
	var first uint64
	seen := map[uint64]bool{}
	var walk func(num uint64) error
	walk = func(num uint64) error {
		if seen[num] {
			return nil
		}
		if !b.dead.Contains(num) {
			seen[num] = true
			m.bases = append(m.bases, num)
			return nil
		}
		if len(seen) == len(m.bases) {
			first = num
		}
		seen[num] = true
		b.parent[b.find(num)] = b.find(first)
		rec, _, err := b.c.s.locate(num)
		if err != nil {
			return err
		}
		if len(rec.chain()) == 0 {
			m.roots = append(m.roots, num)
		}
		for _, base := range rec.chain() {
			if err := walk(base); err != nil {
				return err
			}
		}
		return nil
	}
	for _, base := range bases {
		if err := walk(base); err != nil {
			return nil, err
		}
	}
	if len(seen) == len(m.bases) {
		return nil, nil
	}
	return m, nil
}

// find returns the chunk that stands for the family of a dead chunk.
func (b *rebasing) find(num uint64) uint64 {
	for {
		up, ok := b.parent[num]
		if !ok || up == num {
			return num
		}
		if next, ok := b.parent[up]; ok {
			b.parent[num] = next
		}
		num = up
	}
}

func (b *rebasing) family(num uint64) *family {
	top := b.find(num)
	f := b.families[top]
	if f == nil {
		f = &family{}
		b.families[top] = f
	}
	return f
}

// join adds a member to its family.
func (b *rebasing) join(m member, sizes map[uint64]int64) error {
	rec, _, err := b.c.s.locate(m.num)
	if err != nil {
		return err
	}
	f := b.familyOf(m, rec.chain())
	f.members = append(f.members, m)
	f.written += rec.Len
	if len(m.bases) > 0 {
		return nil
	}
	for _, root := range m.roots {
		if _, ok := b.firsts[root]; ok {
			return nil
		}
	}
	for _, root := range m.roots {
		b.firsts[root] = m.num
		f.plain += sizes[root]
		f.written += sizes[root]
	}
	return nil
}

// familyOf finds the family of a chunk with these bases, of which one is dead.
func (b *rebasing) familyOf(m member, bases []uint64) *family {
	for _, base := range bases {
		if b.dead.Contains(base) {
			return b.family(base)
		}
	}
	return &family{}
}

// pays reports whether encoding a family anew returns enough for what it writes.
func (b *rebasing) pays(f *family) bool {
	return f.dead > f.plain && (f.dead-f.plain)*100 >= f.written*b.c.policy.basePays
}

// moves lists what is encoded anew.
func (b *rebasing) moves(members []member) ([]move, error) {
	var list []move
	chosen := map[uint64]bool{}
	for _, f := range b.families {
		if b.pays(f) {
			for _, m := range f.members {
				chosen[m.num] = true
			}
		}
	}
	for _, m := range members {
		if !chosen[m.num] {
			continue
		}
		mv := move{num: m.num, bases: m.bases}
		for _, root := range m.roots {
			first, ok := b.firsts[root]
			if ok && first == m.num {
				rec, _, err := b.c.s.locate(root)
				if err != nil {
					return nil, err
				}
				mv.order = blockOrder(rec.Location, int(root%pageChunks))
				break
			}
			if ok {
				mv.bases = append(mv.bases, first)
			}
		}
		list = append(list, mv)
	}
	return list, nil
}

// weigh returns the payload of all records, and the part of each chunk of a set. Chunks of a block share it by their
// lengths.
func (c *collection) weigh(ctx context.Context, set *roaring64.Bitmap) (parts map[uint64]int64, all int64, err error) {
	type chunk struct {
		num uint64
		len int64
	}
	type share struct {
		all, bytes int64
		chunks     []chunk
	}
	parts = map[uint64]int64{}
	blocks := map[pack.Location]*share{}
	btx := c.s.db.NewTransaction(false)
	defer btx.Discard()
	err = c.s.eachPage(ctx, btx, func(no uint64, pg *page) error {
		for i := range pg.slots {
			sl := pg.slots[i]
			if sl.rec == nil {
				continue
			}
			num := no*pageChunks + uint64(i)
			in := set.Contains(num)
			if sl.rec.delta {
				all += sl.rec.Len
				if in {
					parts[num] = sl.rec.Len
				}
				continue
			}
			b := blocks[sl.rec.Location]
			if b == nil {
				b = &share{bytes: sl.rec.Len}
				blocks[sl.rec.Location] = b
				all += sl.rec.Len
			}
			b.all += int64(sl.len)
			if in {
				b.chunks = append(b.chunks, chunk{num, int64(sl.len)})
			}
		}
		return nil
	})
	for _, b := range blocks {
		for _, ch := range b.chunks {
			parts[ch.num] = b.bytes * ch.len / max(b.all, 1)
		}
	}
	return parts, all, err
}
