package chunkstore

import (
	"maps"
	"math/bits"
	"slices"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
)

// bitset is a set of numbers, as bits in blocks of consecutive numbers. It is faster to fill than a bitmap if most
// numbers beside one that it has are in it, too. Its memory follows how many it has, not how high they are. The zero
// value is empty.
type bitset struct {
	blocks map[uint64]*bitBlock
	no     uint64    // of the last block that was used
	last   *bitBlock // nil = none
}

const (
	blockWords = 64
	blockBits  = blockWords * 64
)

type bitBlock [blockWords]uint64

// block returns the block of a number, or nil.
func (b *bitset) block(num uint64) *bitBlock {
	if no := num / blockBits; no != b.no || b.last == nil {
		b.no, b.last = no, b.blocks[no]
	}
	return b.last
}

// grow returns the block of a number.
func (b *bitset) grow(num uint64) *bitBlock {
	in := b.block(num)
	if in == nil {
		if b.blocks == nil {
			b.blocks = map[uint64]*bitBlock{}
		}
		in = &bitBlock{}
		b.blocks[b.no], b.last = in, in
	}
	return in
}

func (b *bitset) has(num uint64) bool {
	in := b.block(num)
	return in != nil && in[num%blockBits/64]&(1<<(num%64)) != 0
}

// add reports whether num was not in the set.
func (b *bitset) add(num uint64) bool {
	w, m := &b.grow(num)[num%blockBits/64], uint64(1)<<(num%64)
	if *w&m != 0 {
		return false
	}
	*w |= m
	return true
}

// addRange adds the numbers from first to before end.
func (b *bitset) addRange(first, end uint64) {
	for first < end {
		n := min(64-first%64, end-first) // in one word
		b.grow(first)[first%blockBits/64] |= (^uint64(0) >> (64 - n)) << (first % 64)
		first += n
	}
}

// addList adds the chunks of a manifest.
func (b *bitset) addList(m *chunkList) {
	for _, r := range m.runs {
		b.addRange(r.first, r.first+r.count)
	}
}

func (b *bitset) clone() *bitset {
	c := &bitset{blocks: make(map[uint64]*bitBlock, len(b.blocks))}
	for no, in := range b.blocks {
		own := *in
		c.blocks[no] = &own
	}
	return c
}

func (b *bitset) bitmap() *roaring64.Bitmap {
	to := roaring64.New()
	var first, end uint64 // of a run of whole words
	nums := make([]uint64, 0, blockBits)
	for _, no := range slices.Sorted(maps.Keys(b.blocks)) {
		nums = nums[:0]
		for i, w := range b.blocks[no] {
			at := no*blockBits + uint64(i*64)
			switch {
			case w == ^uint64(0) && at == end:
				end += 64
				continue
			case w == ^uint64(0):
				to.AddRange(first, end)
				first, end = at, at+64
				continue
			}
			for ; w != 0; w &= w - 1 {
				nums = append(nums, at+uint64(bits.TrailingZeros64(w)))
			}
		}
		to.AddMany(nums)
	}
	to.AddRange(first, end)
	return to
}
