package chunkstore

import "github.com/RoaringBitmap/roaring/v2"

// bitset is a dense set of chunk numbers. It is faster to fill than a bitmap if it holds most of a store.
type bitset []uint64

func newBitset(top uint64) bitset { return make(bitset, (top+63)/64) }

func (b bitset) has(num uint64) bool { return num/64 < uint64(len(b)) && b[num/64]&(1<<(num%64)) != 0 }

// add reports whether num, which must be below the set's top, was not in it.
func (b bitset) add(num uint64) bool {
	w, m := num/64, uint64(1)<<(num%64)
	if w >= uint64(len(b)) || b[w]&m != 0 {
		return false
	}
	b[w] |= m
	return true
}

// addList adds the chunks of a manifest.
func (b bitset) addList(m *chunkList) {
	for _, r := range m.runs {
		for num := r.first; num < r.first+r.count; num++ {
			b.add(num)
		}
	}
}

func (b bitset) bitmap() *roaring.Bitmap { return roaring.FromDense(b, true) }
