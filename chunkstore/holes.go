package chunkstore

import (
	"context"
	"encoding/binary"
	"hash/maphash"
	"sort"

	badger "github.com/dgraph-io/badger/v4"

	"snapfs/chunkstore/internal/pack"
)

var holesSeed = maphash.MakeSeed()

// punch makes holes where nothing is live in the first bytes of packs: of what lies between two live records, if that
// has a whole page. On some file systems that takes space: on a full disk, other packs may have some to give.
func (c *collection) punch(ctx context.Context, inv *inventory, settled map[uint32]int64) error {
	packs := map[uint32]*pack.Holes{}
	for num, size := range settled {
		in := inv.packs[num]
		if in == nil {
			continue
		}
		h := &pack.Holes{Spans: in.gaps(size)}
		if h.Mark = markOf(h.Spans); len(h.Spans) > 0 && !c.s.packs.Punched(num, h.Mark) {
			packs[num] = h
		}
	}
	if len(packs) == 0 {
		return nil
	}
	if err := c.widen(ctx, packs, settled); err != nil {
		return err
	}
	for num, h := range packs {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := c.s.packs.Punch(num, *h)
		if isFull(err) {
			c.noRoom = err
		} else if err != nil {
			return err
		}
	}
	return nil
}

// gaps lists the whole pages in the first size bytes of a pack in which nothing is live.
func (p *inPack) gaps(size int64) []pack.Span {
	var list []pack.Span
	start := int64(-1)
	end := size / pack.PageSize
	for no := int64(1); no <= end; no++ { // the first page has the header
		switch free := no < end && !p.pages.has(uint64(no)); {
		case free && start < 0:
			start = no
		case !free && start >= 0:
			list = append(list, pack.Span{Off: start * pack.PageSize, End: no * pack.PageSize})
			start = -1
		}
	}
	return list
}

// markOf tells the holes of a pack from those of an earlier collection of this process.
func markOf(spans []pack.Span) uint64 {
	var h maphash.Hash
	h.SetSeed(holesSeed)
	var b [16]byte
	for _, s := range spans {
		binary.LittleEndian.PutUint64(b[:], uint64(s.Off))
		binary.LittleEndian.PutUint64(b[8:], uint64(s.End))
		_, _ = h.Write(b[:]) // cannot fail
	}
	return h.Sum64() | 1
}

// widen makes the holes of packs reach to the records beside them.
func (c *collection) widen(ctx context.Context, packs map[uint32]*pack.Holes, settled map[uint32]int64) error {
	pages := map[uint32][]pack.Span{}
	for num, h := range packs {
		pages[num] = append([]pack.Span{}, h.Spans...)
		for i := range h.Spans {
			h.Spans[i] = pack.Span{Off: pack.HeaderSize, End: settled[num]}
		}
	}
	return c.s.view(func(btx *badger.Txn) error {
		return c.s.eachPage(ctx, btx, func(_ uint64, pg *page) error {
			var last *located
			for i := range pg.slots {
				r := pg.slots[i].rec
				if r == nil || r == last || packs[r.Pack] == nil {
					continue
				}
				last = r
				near, wide := pages[r.Pack], packs[r.Pack].Spans
				k := sort.Search(len(near), func(k int) bool { return near[k].Off >= r.End() })
				if k < len(near) {
					wide[k].Off = max(wide[k].Off, r.End())
				}
				if k > 0 {
					wide[k-1].End = min(wide[k-1].End, r.Off)
				}
			}
			return nil
		})
	})
}
