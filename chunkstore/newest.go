package chunkstore

import (
	"context"
	"slices"

	badger "github.com/dgraph-io/badger/v4"
)

// The newest version of a file is what is read most. An ingest cannot store it plain, and what came before as deltas of
// it: that would be to write all of it again with each change. Optimize encodes what was added since the last time
// anew in any case, so there the order is turned round: of each lineage the newest version goes into a block, in the
// place of the oldest, and the others become deltas of newer ones. That takes no more space, since files grow, and a
// delta that leaves something out is shorter than one that adds it.
const (
	lineageMin   = 2       // chunks
	lineageMax   = 64      // chunks
	lineageBytes = 4 << 20 // of chunks
	// Every lineageStep-th version, counted from the newest, is a delta of the one as many versions newer, all others of
	// the next newer. The n-th is n/8 + n%8 deltas deep.
	lineageStep = 8
)

// lineage is the versions of a chunk that are to be stored as deltas of the newest.
type lineage struct {
	root uint64   // the version that is not a delta
	nums []uint64 // of all versions, newest first
	// Sort key of the root among the chunks of blocks.
	order string
}

// lineages finds the lineages among the chunks from..to that can be turned round: those in which every version but one
// is a delta of the one before and that lie in the range as a whole, as does everything that is a delta of them.
func (c *collection) lineages(ctx context.Context, from, to uint64) ([]*lineage, error) {
	type node struct {
		root  uint64
		bytes int
	}
	nodes := map[uint64]*node{}
	versions := map[uint64][]uint64{} // by root, in order of their numbers
	var fixed []uint64                // bases of what is not turned round
	first, _ := pageOf(from)
	err := c.s.view(func(btx *badger.Txn) error {
		return c.s.eachPageFrom(ctx, btx, first, func(no uint64, pg *page) error {
			for i := range pg.slots {
				num, sl := no*pageChunks+uint64(i), &pg.slots[i]
				if num < from || sl.rec == nil {
					continue
				}
				in := num < to && c.live.Contains(num)
				switch {
				case in && !sl.rec.delta:
					nodes[num] = &node{num, sl.len}
					versions[num] = []uint64{num}
				case in && len(sl.rec.bases) == 1 && sl.rec.delta && nodes[sl.rec.bases[0]] != nil:
					base := sl.rec.bases[0]
					root := nodes[base].root
					if list := versions[root]; list[len(list)-1] != base {
						fixed = append(fixed, base) // files that are like each other, not versions of one
					}
					nodes[num] = &node{root, sl.len}
					versions[root] = append(versions[root], num)
				default:
					fixed = append(fixed, sl.rec.chain()...)
				}
			}
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	for _, num := range fixed {
		if n := nodes[num]; n != nil {
			delete(versions, n.root)
		}
	}
	var list []*lineage
	for root, nums := range versions {
		total := 0
		for _, num := range nums {
			total += nodes[num].bytes
		}
		newest := nums[len(nums)-1]
		// What has lost most of its contents does not explain what was there before.
		shrunk := nodes[newest].bytes < nodes[root].bytes/2
		if len(nums) < lineageMin || len(nums) > lineageMax || total > lineageBytes || shrunk {
			continue
		}
		slices.Reverse(nums)
		list = append(list, &lineage{root: root, nums: nums})
	}
	slices.SortFunc(list, func(a, b *lineage) int { return int(int64(a.root) - int64(b.root)) })
	return list, nil
}

// turn stores all versions but the newest as deltas. The newest is in a block of this rewriter already, which the index
// does not name yet: in one flush, or versions would be deltas of each other. It reports false if the lineage has to
// stay as it is.
func (rw *rewriter) turn(l *lineage) (ok bool, err error) {
	head, _, err := rw.locate(l.nums[0])
	if err != nil || head.delta {
		return false, skipLost(err)
	}
	list := make([]*fresh, 0, len(l.nums))
	for i, num := range l.nums {
		data, sum, err := rw.s.verifiedChunk(num)
		if err != nil {
			rw.s.log.Warn("versions of a damaged chunk left alone", "chunk", num, "error", err)
			return false, skipLost(err)
		}
		if i == 0 {
			continue
		}
		f := &fresh{num: num, hash: sum, data: slices.Clone(data), gen: i/lineageStep + i%lineageStep}
		if i%lineageStep == 0 {
			f.bases = []uint64{l.nums[i-lineageStep]}
		} else {
			f.bases = []uint64{l.nums[i-1]}
		}
		list = append(list, f)
	}
	// An ingest that found one of them may have made deltas of it that the index does not have yet.
	if !rw.s.pins.raise(rw.Ingest, l.nums) {
		return false, nil
	}
	for _, f := range list {
		rw.moved.Add(f.num)
		for _, b := range f.bases {
			rw.s.pins.use(rw.Ingest, b)
		}
		rw.s.pins.use(rw.Ingest, f.num)
		if err := rw.dispatch(f); err != nil {
			return false, err
		}
	}
	return true, nil
}

// flushTurned flushes what was moved, after turning round the lineages whose newest versions were.
func (c *collection) flushTurned(ctx context.Context, rw *rewriter, list []*lineage) error {
	defer c.s.pins.lower()
	if len(list) > 0 {
		if err := rw.settle(); err != nil {
			return err
		}
	}
	for _, l := range list {
		if err := ctx.Err(); err != nil {
			return err
		}
		ok, err := rw.turn(l)
		if err != nil {
			return err
		}
		if ok {
			continue
		}
		// Its block is gone but for this version.
		if err := rw.move(move{num: l.root, order: l.order}); err != nil {
			return err
		}
	}
	return rw.flush()
}
