package chunkstore

import (
	"cmp"
	"slices"
)

// policy says how much a collection moves. Garbage that a hole can be made of costs nothing to return. The rest lies
// between live data, which must be moved. How much space that returns for each byte written depends on how much of it
// is garbage: so a collection leaves what is mostly live until more of it has died.
//
// Three kinds of garbage, each with its bound:
//
//	packs    small dead records between live ones. While they take more than packShare of the payload, the packs with
//	         the largest share of garbage are rewritten. All that take no more than a share of packLeast stay. A repack
//	         goes below packShare as far as that moves little beside what it has written itself.
//	blocks   dead chunks of blocks. A block is rewritten when more than blockShare of its bytes is dead.
//	bases    chunks that no manifest names, but deltas need. While they take more than baseShare of the payload, deltas
//	         are encoded anew without them if that returns at least basePays of what it writes.
//
// Shares are percentages.
type policy struct {
	packShare, packLeast int64
	blockShare           int64
	baseShare, basePays  int64
	sparse               int64 // packs of which less than this share of the file's length is live are rewritten, too
	spare                int64 // bytes that may be moved whatever share of the payload garbage takes
}

var (
	// automatic bounds what is written, too: TestWear and `bench scale` measure both.
	automatic = policy{packShare: 6, packLeast: 5, blockShare: 15, baseShare: 3, basePays: 10, sparse: 10}
	// thorough returns all that moving data can return.
	thorough = policy{packLeast: 2, blockShare: 2, basePays: 1, sparse: 10}
)

// sparseLeast is the length from which on a pack is rewritten if little in it is live. Otherwise a store would keep a
// file for each 64 MiB that were ever written, and maps of their holes.
const sparseLeast = 8 << 20

// packLoad is a pack to be rewritten.
type packLoad struct {
	num           uint32
	live, garbage int64 // bytes
}

// choose lists the packs to be rewritten. Those with the least to copy come first: on a full disk they make room for
// the others.
func (p policy) choose(inv *inventory, lengths, occupied map[uint32]int64) []packLoad {
	var packs, chosen []packLoad
	total := int64(0)
	for num, n := range occupied {
		l := packLoad{num: num}
		if in := inv.packs[num]; in != nil {
			l.live = in.live
		}
		l.garbage = max(n-l.live, 0)
		if lengths[num] >= sparseLeast && l.live*100 < lengths[num]*p.sparse {
			chosen = append(chosen, l)
			continue
		}
		packs = append(packs, l)
		total += l.garbage
	}
	slices.SortFunc(packs, func(a, b packLoad) int {
		return cmp.Or(cmp.Compare(b.garbage*(a.live+1), a.garbage*(b.live+1)), cmp.Compare(a.num, b.num))
	})
	for _, l := range packs {
		if l.garbage*100 <= (l.live+l.garbage)*p.packLeast {
			break
		}
		if total*100 <= inv.payload*p.packShare {
			if l.live > p.spare {
				continue
			}
			p.spare -= l.live
		}
		chosen = append(chosen, l)
		total -= l.garbage
	}
	slices.SortFunc(chosen, func(a, b packLoad) int {
		return cmp.Or(cmp.Compare(a.live, b.live), cmp.Compare(a.num, b.num))
	})
	return chosen
}
