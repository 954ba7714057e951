package goflate

import (
	"encoding/binary"
	"math/bits"
	"slices"
	"sync"
)

// FastBlock is how many bytes of contents the blocks of a stream of level 1 have. The last block but one, which is the
// last with contents, may have fewer.
const FastBlock = maxStoreBlockSize

// Beyond is how many bytes AppendFast may use behind what it appends.
const Beyond = 16

// AppendFast appends to dst a part of a deflate stream of level 1. data is its contents, behind context bytes of what
// comes before them. The part starts with a block, so unless the stream ends with it, it has a multiple of FastBlock
// bytes of contents.
//
// Bits: lead has those before the part in its first byte, and a 1 above them; 1 is none. The bits behind the last whole
// byte are not appended but returned, as the lead of what comes next. The last part ends with a whole byte.
//
// With all that comes before as context, the part is exactly that of the whole stream. With less it may differ: the
// encoder enters into its table what it looks at, which depends on what it found before. It is the same again after
// some 10 kB of most data, and looks back for 32 KiB.
//
// It does what DeflateWithin does, some two times as fast. Safe for concurrent use.
func AppendFast(dst, data []byte, context int, lead byte, last bool) (out []byte, tail byte) {
	e := fasts.Get().(*fast)
	defer fasts.Put(e)
	clear(e.table[:])
	e.out = dst
	e.data = data
	for at := 0; at < context; {
		end := at + (context-at-1)%FastBlock + 1
		e.seqs = e.seqs[:0]
		e.parse(at, end)
		at = end
	}
	e.nbits = uint(bits.Len8(lead)) - 1
	e.bits = uint64(lead) &^ (1 << e.nbits)
	for at := context; at < len(data); {
		end := min(at+FastBlock, len(data))
		e.block(at, end)
		at = end
	}
	if last {
		e.framed(func(w *huffmanBitWriter) {
			w.writeStoredHeader(0, true)
			w.flush()
		})
	}
	e.flush()
	out, tail = e.out, byte(e.bits)|1<<e.nbits
	e.out, e.data = nil, nil
	return out, tail
}

var fasts = sync.Pool{New: func() any {
	e := &fast{}
	e.w = newHuffmanBitWriter(e)
	return e
}}

// fast is an encoder of level 1. Unlike deflateFast it has all data at hand, and makes no tokens of literals.
type fast struct {
	data  []byte
	table [tableSize]uint32 // by hash: a position plus tableBias, 0 for none
	seqs  []seq

	out   []byte
	bits  uint64 // the lowest nbits, to be written
	nbits uint
	w     *huffmanBitWriter // makes codes and headers of blocks

	lengths [256]wide // codes of the lengths of matches, with their extra bits
	offsets [offsetCodeCount]offset
}

// tableBias lets 0 be farther away than any match.
const tableBias = maxMatchOffset + 1

// seq is a number of literals, and behind them a match.
type seq struct {
	literals uint16
	offset   uint16 // - baseMatchOffset
	length   uint8  // - baseMatchLength
}

// wide is a code with extra bits.
type wide struct {
	bits, n uint32
}

// offset is a code of an offset of matches, with how many extra bits behind it, which tell the distance to base.
type offset struct {
	bits, n, extra, base uint32
}

// Write takes what huffmanBitWriter writes.
func (e *fast) Write(p []byte) (int, error) {
	e.out = append(e.out, p...)
	return len(p), nil
}

// parse appends the matches of a block, data[start:end], and returns how many bytes are behind the last one. See
// deflateFast.encode.
func (e *fast) parse(start, end int) (rest int) {
	if end-start < minNonLiteralBlockSize {
		return end - start
	}
	data := e.data[:end]
	limit := end - inputMargin
	emitted, s := start, start
	cv := binary.LittleEndian.Uint32(data[s:])
	h := hash(cv)
	for {
		skip, nextS := 32, s
		var cand int
		for {
			s = nextS
			step := skip >> 5
			nextS = s + step
			skip += step
			if nextS > limit {
				return end - emitted
			}
			slot := &e.table[h&tableMask]
			cand = int(*slot) - tableBias
			now := binary.LittleEndian.Uint32(data[nextS:])
			*slot = uint32(s + tableBias)
			h = hash(now)
			if s-cand <= maxMatchOffset && cv == binary.LittleEndian.Uint32(data[cand:]) {
				break
			}
			cv = now
		}
		for {
			n := 4 + common(data[s+4:min(s+maxMatchLength, end)], data[cand+4:])
			e.seqs = append(e.seqs, seq{
				uint16(s - emitted), uint16(s - cand - baseMatchOffset), uint8(n - baseMatchLength),
			})
			s += n
			emitted = s
			if s >= limit {
				return end - emitted
			}
			x := binary.LittleEndian.Uint64(data[s-1:])
			e.table[hash(uint32(x))&tableMask] = uint32(s - 1 + tableBias)
			x >>= 8
			slot := &e.table[hash(uint32(x))&tableMask]
			cand = int(*slot) - tableBias
			*slot = uint32(s + tableBias)
			if s-cand > maxMatchOffset || uint32(x) != binary.LittleEndian.Uint32(data[cand:]) {
				cv = uint32(x >> 8)
				h = hash(cv)
				s++
				break
			}
		}
	}
}

// common is the length of the prefix that a shares with b, which is not shorter.
func common(a, b []byte) int {
	n := 0
	b = b[:len(a)]
	for ; n+8 <= len(a); n += 8 {
		if x := binary.LittleEndian.Uint64(a[n:]) ^ binary.LittleEndian.Uint64(b[n:]); x != 0 {
			return n + bits.TrailingZeros64(x)>>3
		}
	}
	for ; n < len(a) && a[n] == b[n]; n++ {
	}
	return n
}

// block writes a block. See compressor.encSpeed.
func (e *fast) block(start, end int) {
	const stored, huffman = 16, 128 // shorter blocks are written without a search for matches
	input := e.data[start:end]
	if n := end - start; n < huffman {
		e.framed(func(w *huffmanBitWriter) {
			if n > stored {
				w.writeBlockHuff(false, input)
				return
			}
			w.writeStoredHeader(n, false)
			w.writeBytes(input)
		})
		return
	}
	e.seqs = e.seqs[:0]
	rest := e.parse(start, end)
	literals := rest
	for _, q := range e.seqs {
		literals += int(q.literals)
	}
	if literals+len(e.seqs) > len(input)-len(input)>>4 {
		e.framed(func(w *huffmanBitWriter) { w.writeBlockHuff(false, input) })
		return
	}
	e.count(input, rest)
	w := e.w
	numLiterals, numOffsets := w.codes()
	w.generateCodegen(numLiterals, numOffsets, w.literalEncoding, w.offsetEncoding)
	w.codegenEncoding.generate(w.codegenFreq[:], 7)
	size, numCodegens := w.dynamicSize(w.literalEncoding, w.offsetEncoding, 0)
	if ssize, storable := w.storedSize(input); storable && ssize < size+size>>4 {
		e.framed(func(w *huffmanBitWriter) {
			w.writeStoredHeader(len(input), false)
			w.writeBytes(input)
		})
		return
	}
	e.framed(func(w *huffmanBitWriter) { w.writeDynamicHeader(numLiterals, numOffsets, numCodegens, false) })
	e.symbols(input, (size+w.extraBits())/8)
}

// framed lets fn write with the frozen code.
func (e *fast) framed(fn func(w *huffmanBitWriter)) {
	w := e.w
	w.reset(e)
	e.flush()
	w.bits, w.nbits = e.bits, e.nbits
	fn(w)
	e.out = append(e.out, w.bytes[:w.nbytes]...)
	e.bits, e.nbits = w.bits, w.nbits
}

// flush writes the whole bytes.
func (e *fast) flush() {
	for ; e.nbits >= 8; e.nbits -= 8 {
		e.out = append(e.out, byte(e.bits))
		e.bits >>= 8
	}
}

// count counts the symbols of a block, which has rest literals behind its last match.
func (e *fast) count(input []byte, rest int) {
	lit, off := (*[maxNumLit]int32)(e.w.literalFreq), (*[offsetCodeCount]int32)(e.w.offsetFreq)
	clear(lit[:])
	clear(off[:])
	var lengths [256]int32
	at := 0
	for _, q := range e.seqs {
		for _, c := range input[at : at+int(q.literals)] {
			lit[c]++
		}
		at += int(q.literals) + int(q.length) + baseMatchLength
		lengths[q.length]++
		off[shortOffsetCode(q.offset)]++
	}
	for _, c := range input[len(input)-rest:] {
		lit[c]++
	}
	lit[endBlockMarker]++
	for i, n := range lengths {
		lit[lengthCodesStart+lengthCode(uint32(i))] += n
	}
}

// shortOffsetCode is offsetCode.
func shortOffsetCode(off uint16) uint32 {
	if off < 256 {
		return offsetCodes[off]
	}
	return offsetCodes[off>>7] + 14
}

// codes makes the codes of what was counted. See huffmanBitWriter.indexTokens.
func (w *huffmanBitWriter) codes() (numLiterals, numOffsets int) {
	numLiterals, numOffsets = len(w.literalFreq), len(w.offsetFreq)
	for w.literalFreq[numLiterals-1] == 0 {
		numLiterals--
	}
	for numOffsets > 0 && w.offsetFreq[numOffsets-1] == 0 {
		numOffsets--
	}
	if numOffsets == 0 {
		w.offsetFreq[0] = 1
		numOffsets = 1
	}
	w.literalEncoding.generate(w.literalFreq, 15)
	w.offsetEncoding.generate(w.offsetFreq, 15)
	return numLiterals, numOffsets
}

// extraBits counts the extra bits of what was counted.
func (w *huffmanBitWriter) extraBits() int {
	n := 0
	for i, bits := range lengthExtraBits {
		n += int(w.literalFreq[lengthCodesStart+i]) * int(bits)
	}
	for i, bits := range offsetExtraBits {
		n += int(w.offsetFreq[i]) * int(bits)
	}
	return n
}

// symbols writes the literals and matches of a block, and its end: size bytes with its header.
func (e *fast) symbols(input []byte, size int) {
	litCodes := (*[maxNumLit]hcode)(e.w.literalEncoding.codes)
	for i, c := range e.w.offsetEncoding.codes {
		e.offsets[i] = offset{uint32(c.code), uint32(c.len), uint32(offsetExtraBits[i]), offsetBase[i]}
	}
	for i := range e.lengths {
		code := lengthCode(uint32(i))
		c := litCodes[lengthCodesStart+code]
		e.lengths[i] = wide{
			uint32(c.code) | (uint32(i)-lengthBase[code])<<c.len, uint32(c.len) + uint32(lengthExtraBits[code]),
		}
	}
	e.flush()
	e.out = slices.Grow(e.out, size+Beyond)
	out := e.out[len(e.out):cap(e.out)]
	b, nb, n := e.bits, e.nbits, 0
	for _, q := range e.seqs {
		b, nb, n = writeLiterals(out, b, nb, n, input[:q.literals], litCodes)
		input = input[int(q.literals)+int(q.length)+baseMatchLength:]
		l := &e.lengths[q.length]
		b |= uint64(l.bits) << (nb & 63)
		nb += uint(l.n)
		code := shortOffsetCode(q.offset)
		o := &e.offsets[code]
		b |= uint64(o.bits|(uint32(q.offset)-o.base)<<(o.n&31)) << (nb & 63)
		nb += uint(o.n) + uint(o.extra)
		binary.LittleEndian.PutUint64(out[n:], b)
		n += int(nb >> 3)
		b >>= nb & 56
		nb &= 7
	}
	b, nb, n = writeLiterals(out, b, nb, n, input, litCodes)
	c := litCodes[endBlockMarker]
	b |= uint64(c.code) << (nb & 63)
	e.out, e.bits, e.nbits = e.out[:len(e.out)+n], b, nb+uint(c.len)
}

// writeLiterals writes the codes of p behind the n bytes in out and the nb bits in b.
func writeLiterals(out []byte, b uint64, nb uint, n int, p []byte, codes *[maxNumLit]hcode) (uint64, uint, int) {
	for ; len(p) >= 3; p = p[3:] {
		x, y, z := codes[p[0]], codes[p[1]], codes[p[2]]
		b |= uint64(x.code) << (nb & 63)
		nb += uint(x.len)
		b |= uint64(y.code) << (nb & 63)
		nb += uint(y.len)
		b |= uint64(z.code) << (nb & 63)
		nb += uint(z.len)
		binary.LittleEndian.PutUint64(out[n:], b)
		n += int(nb >> 3)
		b >>= nb & 56
		nb &= 7
	}
	for _, c := range p {
		x := codes[c]
		b |= uint64(x.code) << (nb & 63)
		nb += uint(x.len)
	}
	binary.LittleEndian.PutUint64(out[n:], b)
	return b >> (nb & 56), nb & 7, n + int(nb>>3)
}
