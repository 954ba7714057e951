package zdeflate

import (
	"io"
	"math/bits"
)

// Sizes of the alphabets of RFC 1951, 3.2.5 to 3.2.7.
const (
	literals    = 256
	endOfBlock  = 256
	litLenCodes = literals + 1 + 29
	distCodes   = 30
	lenCodes    = 19

	maxBits    = 15 // of a code
	maxLenBits = 7  // of a code for code lengths
	maxNodes   = 2*litLenCodes + 1
)

// Codes for code lengths that repeat.
const (
	repeatLast  = 16 // 3 to 6 times, 2 extra bits
	repeatZero  = 17 // 3 to 10 times, 3 extra bits
	repeatZeros = 18 // 11 to 138 times, 7 extra bits
)

// lenOrder is the order in which lengths of the codes for code lengths are written.
var lenOrder = [lenCodes]uint8{16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15}

// Kinds of block.
const (
	kindStored  = 0
	kindFixed   = 1
	kindDynamic = 2
)

// node is a symbol, or an inner node while a tree is built.
type node struct {
	freq uint16
	code uint16 // the first bit is the lowest
	dad  uint16
	len  uint16
}

// alphabet is what all trees of a kind have in common.
type alphabet struct {
	fixed []node // nil for code lengths
	extra []uint8
	base  int // the first symbol with extra bits
	count int
	max   int // bits of a code
}

var (
	extraLen  = [29]uint8{0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0}
	extraDist = [distCodes]uint8{
		0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13,
	}
	extraLens = [lenCodes]uint8{repeatLast: 2, repeatZero: 3, repeatZeros: 7}

	baseLen  [29]uint16        // length - minMatch of a length code
	baseDist [distCodes]uint16 // distance - 1 of a distance code
	lenCode  [maxMatch - minMatch + 1]uint8
	nearCode [256]uint8 // of distance - 1 if below 256
	farCode  [256]uint8 // of (distance - 1) / 128

	fixedLitLen [litLenCodes + 2]node
	fixedDist   [distCodes]node

	litLenAlphabet = alphabet{fixedLitLen[:], extraLen[:], literals + 1, litLenCodes, maxBits}
	distAlphabet   = alphabet{fixedDist[:], extraDist[:], 0, distCodes, maxBits}
	lenAlphabet    = alphabet{nil, extraLens[:], 0, lenCodes, maxLenBits}
)

func init() {
	n := 0
	for code := range extraLen {
		baseLen[code] = uint16(n)
		for range 1 << extraLen[code] {
			if n < len(lenCode) {
				lenCode[n] = uint8(code)
			}
			n++
		}
	}
	// The longest match has a code of its own.
	baseLen[28] = maxMatch - minMatch
	lenCode[maxMatch-minMatch] = 28
	n = 0
	for code := range extraDist {
		baseDist[code] = uint16(n)
		for range 1 << extraDist[code] {
			if n < len(nearCode) {
				nearCode[n] = uint8(code)
			}
			farCode[n>>7] = uint8(code)
			n++
		}
	}
	var count [maxBits + 1]uint16
	for i := range fixedLitLen {
		l := uint16(8)
		switch {
		case 144 <= i && i < 256:
			l = 9
		case 256 <= i && i < 280:
			l = 7
		}
		fixedLitLen[i].len = l
		count[l]++
	}
	setCodes(fixedLitLen[:], &count)
	for i := range fixedDist {
		fixedDist[i].len = 5
		fixedDist[i].code = bits.Reverse16(uint16(i)) >> 11
	}
}

// distCode is the code of a distance - 1.
func distCode(d uint32) uint8 {
	if d < 256 {
		return nearCode[d]
	}
	return farCode[(d>>7)&255]
}

// tree is a tree of codes of a block.
type tree struct {
	alphabet
	nodes [maxNodes]node
	top   int // the last symbol that has a code
}

// symbol is a literal, or a match: its distance and length.
type symbol struct {
	dist uint16 // 0: a literal
	val  uint8  // the literal, or length - minMatch
}

// blocks gathers symbols and writes them in blocks.
type blocks struct {
	out   bitWriter
	syms  []symbol
	most  int // symbols of a block
	start int // of the block, in the data

	litLen, dist, lens tree
	dynBits, fixBits   int // of the block with dynamic and with fixed codes

	heap     [maxNodes]uint16 // from 1 on; the upper end has the nodes of a tree in order of frequencies
	heapLen  int
	heapTop  int
	depths   [maxNodes]uint8
	lenCount [maxBits + 1]uint16
}

func (b *blocks) begin(w io.Writer, memLevel int) {
	b.out = bitWriter{w: w, buf: b.out.buf[:0]}
	b.most = 1<<(memLevel+6) - 1
	b.start = 0
	b.litLen.alphabet, b.dist.alphabet, b.lens.alphabet = litLenAlphabet, distAlphabet, lenAlphabet
	b.clear()
}

// clear starts a block.
func (b *blocks) clear() {
	b.syms = b.syms[:0]
	for i := range litLenCodes {
		b.litLen.nodes[i].freq = 0
	}
	for i := range distCodes {
		b.dist.nodes[i].freq = 0
	}
	for i := range lenCodes {
		b.lens.nodes[i].freq = 0
	}
	b.litLen.nodes[endOfBlock].freq = 1
	b.dynBits, b.fixBits = 0, 0
}

// literal takes a byte, and reports whether the block is full.
func (b *blocks) literal(c byte) bool {
	b.syms = append(b.syms, symbol{0, c})
	b.litLen.nodes[c].freq++
	return len(b.syms) == b.most
}

// match takes a match, and reports whether the block is full.
func (b *blocks) match(length, dist int) bool {
	b.syms = append(b.syms, symbol{uint16(dist), uint8(length - minMatch)})
	b.litLen.nodes[literals+1+int(lenCode[length-minMatch])].freq++
	b.dist.nodes[distCode(uint32(dist-1))].freq++
	return len(b.syms) == b.most
}

// endBlock writes what was gathered since the block before.
func (c *compressor) endBlock(last bool) {
	b := &c.blocks
	raw := c.data[b.start:c.pos]
	inWindow := b.start >= c.base
	b.start = c.pos
	b.build(&b.litLen)
	b.build(&b.dist)
	topLen := b.buildLens()
	dynamic := (b.dynBits + 3 + 7) >> 3
	fixed := (b.fixBits + 3 + 7) >> 3
	least := min(dynamic, fixed)
	final := uint32(0)
	if last {
		final = 1
	}
	switch {
	case len(raw)+4 <= least && inWindow:
		b.out.put(kindStored<<1|final, 3)
		b.out.align()
		b.out.stored(raw)
	case fixed == least:
		b.out.put(kindFixed<<1|final, 3)
		b.symbols(fixedLitLen[:], fixedDist[:])
	default:
		b.out.put(kindDynamic<<1|final, 3)
		b.out.put(uint32(b.litLen.top+1-257), 5)
		b.out.put(uint32(b.dist.top), 5)
		b.out.put(uint32(topLen+1-4), 4)
		for _, i := range lenOrder[:topLen+1] {
			b.out.put(uint32(b.lens.nodes[i].len), 3)
		}
		b.runs(&b.litLen, b.putLen)
		b.runs(&b.dist, b.putLen)
		b.symbols(b.litLen.nodes[:], b.dist.nodes[:])
	}
	b.clear()
	if last {
		b.out.align()
		b.out.flush(0)
	} else {
		b.out.flush(flushSize)
	}
}

// symbols writes the symbols of the block.
func (b *blocks) symbols(litLen, dist []node) {
	out := &b.out
	for _, s := range b.syms {
		if s.dist == 0 {
			n := &litLen[s.val]
			out.put(uint32(n.code), uint(n.len))
			continue
		}
		code := lenCode[s.val]
		n := &litLen[literals+1+int(code)]
		out.put(uint32(n.code)|uint32(uint16(s.val)-baseLen[code])<<n.len, uint(n.len)+uint(extraLen[code]))
		d := uint32(s.dist) - 1
		code = distCode(d)
		n = &dist[code]
		out.put(uint32(n.code)|(d-uint32(baseDist[code]))<<n.len, uint(n.len)+uint(extraDist[code]))
	}
	n := &litLen[endOfBlock]
	out.put(uint32(n.code), uint(n.len))
}

// build makes the codes of a tree from its frequencies, and adds to the sizes of the block. Where two nodes are equal,
// the shallower one goes first; what is left undecided is decided by the order of a binary heap, as in zlib.
func (b *blocks) build(t *tree) {
	b.heapLen, b.heapTop = 0, maxNodes
	t.top = -1
	for i := range t.count {
		n := &t.nodes[i]
		n.len = 0
		if n.freq == 0 {
			continue
		}
		b.heapLen++
		b.heap[b.heapLen] = uint16(i)
		b.depths[i] = 0
		t.top = i
	}
	// RFC 1951 wants at least one code of one bit; some decoders want two codes.
	for b.heapLen < 2 {
		i := 0
		if t.top < 2 {
			t.top++
			i = t.top
		}
		b.heapLen++
		b.heap[b.heapLen] = uint16(i)
		t.nodes[i].freq = 1
		b.depths[i] = 0
		b.dynBits--
		if t.fixed != nil {
			b.fixBits -= int(t.fixed[i].len)
		}
	}
	for i := b.heapLen / 2; i >= 1; i-- {
		b.sift(t, i)
	}
	next := t.count
	for {
		x := b.heap[1]
		b.heap[1] = b.heap[b.heapLen]
		b.heapLen--
		b.sift(t, 1)
		y := b.heap[1]
		b.heapTop -= 2
		b.heap[b.heapTop+1], b.heap[b.heapTop] = x, y
		t.nodes[next].freq = t.nodes[x].freq + t.nodes[y].freq
		b.depths[next] = max(b.depths[x], b.depths[y]) + 1
		t.nodes[x].dad, t.nodes[y].dad = uint16(next), uint16(next)
		b.heap[1] = uint16(next)
		next++
		b.sift(t, 1)
		if b.heapLen < 2 {
			break
		}
	}
	b.heapTop--
	b.heap[b.heapTop] = b.heap[1]
	b.lengths(t)
	setCodes(t.nodes[:t.top+1], &b.lenCount)
}

// sift moves the entry k of the heap down to its place.
func (b *blocks) sift(t *tree, k int) {
	v := b.heap[k]
	for j := k << 1; j <= b.heapLen; j <<= 1 {
		if j < b.heapLen && b.smaller(t, b.heap[j+1], b.heap[j]) {
			j++
		}
		if b.smaller(t, v, b.heap[j]) {
			break
		}
		b.heap[k] = b.heap[j]
		k = j
	}
	b.heap[k] = v
}

func (b *blocks) smaller(t *tree, x, y uint16) bool {
	fx, fy := t.nodes[x].freq, t.nodes[y].freq
	return fx < fy || fx == fy && b.depths[x] <= b.depths[y]
}

// lengths computes the lengths of the codes from the tree. Codes that are too long are made shorter by moving others
// down, so that the code stays complete.
func (b *blocks) lengths(t *tree) {
	b.lenCount = [maxBits + 1]uint16{}
	t.nodes[b.heap[b.heapTop]].len = 0
	over := 0
	for _, i := range b.heap[b.heapTop+1:] {
		n := &t.nodes[i]
		l := t.nodes[n.dad].len + 1
		if int(l) > t.max {
			l = uint16(t.max)
			over++
		}
		n.len = l
		if int(i) > t.top {
			continue
		}
		b.lenCount[l]++
		extra := 0
		if int(i) >= t.base {
			extra = int(t.extra[int(i)-t.base])
		}
		b.dynBits += int(n.freq) * (int(l) + extra)
		if t.fixed != nil {
			b.fixBits += int(n.freq) * (int(t.fixed[i].len) + extra)
		}
	}
	if over == 0 {
		return
	}
	for ; over > 0; over -= 2 {
		l := t.max - 1
		for b.lenCount[l] == 0 {
			l--
		}
		b.lenCount[l]--
		b.lenCount[l+1] += 2
		b.lenCount[t.max]--
	}
	at := len(b.heap)
	for l := t.max; l > 0; l-- {
		for left := b.lenCount[l]; left > 0; {
			at--
			i := b.heap[at]
			if int(i) > t.top {
				continue
			}
			n := &t.nodes[i]
			b.dynBits += (l - int(n.len)) * int(n.freq)
			n.len = uint16(l)
			left--
		}
	}
}

// setCodes gives codes to nodes by their lengths (RFC 1951, 3.2.2).
func setCodes(nodes []node, count *[maxBits + 1]uint16) {
	var next [maxBits + 1]uint16
	code := uint16(0)
	for l := 1; l <= maxBits; l++ {
		code = (code + count[l-1]) << 1
		next[l] = code
	}
	for i := range nodes {
		if l := nodes[i].len; l > 0 {
			nodes[i].code = bits.Reverse16(next[l]) >> (16 - l)
			next[l]++
		}
	}
}

// buildLens makes the tree for the code lengths of the two others, and gives the last index into lenOrder that is
// written.
func (b *blocks) buildLens() int {
	count := func(sym int, _ uint32, _ uint) { b.lens.nodes[sym].freq++ }
	b.runs(&b.litLen, count)
	b.runs(&b.dist, count)
	b.build(&b.lens)
	top := lenCodes - 1
	for top >= 3 && b.lens.nodes[lenOrder[top]].len == 0 {
		top--
	}
	b.dynBits += 3*(top+1) + 5 + 5 + 4
	return top
}

func (b *blocks) putLen(sym int, extra uint32, n uint) {
	code := &b.lens.nodes[sym]
	b.out.put(uint32(code.code), uint(code.len))
	if n > 0 {
		b.out.put(extra, n)
	}
}

// runs calls fn for the symbols that tell a tree's code lengths.
func (b *blocks) runs(t *tree, fn func(sym int, extra uint32, n uint)) {
	last := -1
	count, most, least := 0, 7, 4
	if t.nodes[0].len == 0 {
		most, least = 138, 3
	}
	for i := 0; i <= t.top; i++ {
		l := int(t.nodes[i].len)
		next := -1
		if i < t.top {
			next = int(t.nodes[i+1].len)
		}
		if count++; count < most && l == next {
			continue
		}
		switch {
		case count < least:
			for range count {
				fn(l, 0, 0)
			}
		case l != 0:
			if l != last {
				fn(l, 0, 0)
				count--
			}
			fn(repeatLast, uint32(count-3), 2)
		case count <= 10:
			fn(repeatZero, uint32(count-3), 3)
		default:
			fn(repeatZeros, uint32(count-11), 7)
		}
		count, last = 0, l
		switch next {
		case 0:
			most, least = 138, 3
		case l:
			most, least = 6, 3
		default:
			most, least = 7, 4
		}
	}
}
