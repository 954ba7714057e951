package gitpatch

import (
	"encoding/binary"
	"math/bits"
)

// A delta, as in git's packs (delta.h):
//
//	varint   size of the old contents
//	varint   size of the new contents
//	1oooosss-coded copies: bits 0 to 3 say which bytes of an offset follow, bits 4 to 6 which of a size; little endian
//	0nnnnnnn and n bytes to be inserted
const (
	deltaBlock  = 16      // bytes of the old contents that are found as a whole
	deltaCopy   = 1 << 16 // bytes that a copy may have; a size of 0 means so many
	deltaInsert = 127
	deltaTries  = 16 // places of the old contents that are compared at one place of the new
)

// delta makes to of from; nil if that takes more than most bytes.
func delta(from, to []byte, most int) []byte {
	out := binary.AppendUvarint(nil, uint64(len(from)))
	out = binary.AppendUvarint(out, uint64(len(to)))
	index := newBlockIndex(from)
	inserted := 0 // of to, that no operation has yet
	for at := 0; at < len(to); {
		off, n := index.longest(from, to, at)
		if n < deltaBlock {
			at++
			continue
		}
		for off > 0 && at > inserted && from[off-1] == to[at-1] { // what is to be inserted may match, too
			off, at, n = off-1, at-1, n+1
		}
		out = appendInsert(out, to[inserted:at])
		for end := at + n; at < end; {
			size := min(end-at, deltaCopy)
			out = appendCopy(out, off, size)
			off, at = off+size, at+size
		}
		if inserted = at; len(out) > most {
			return nil
		}
	}
	if out = appendInsert(out, to[inserted:]); len(out) > most {
		return nil
	}
	return out
}

func appendInsert(out, data []byte) []byte {
	for len(data) > 0 {
		n := min(len(data), deltaInsert)
		out = append(append(out, byte(n)), data[:n]...)
		data = data[n:]
	}
	return out
}

func appendCopy(out []byte, off, size int) []byte {
	op := len(out)
	out = append(out, 0x80)
	for i := range 4 {
		if b := byte(off >> (8 * i)); b != 0 {
			out[op] |= 1 << i
			out = append(out, b)
		}
	}
	for i := range 2 {
		if b := byte(size >> (8 * i)); b != 0 { // none for deltaCopy
			out[op] |= 0x10 << i
			out = append(out, b)
		}
	}
	return out
}

// blockIndex finds blocks by what they hold.
type blockIndex struct {
	shift uint
	first []int32 // by hash: a block's number + 1, or 0
	next  []int32 // by block: another one with its hash, as above
}

func newBlockIndex(data []byte) blockIndex {
	blocks := len(data) / deltaBlock
	width := max(bits.Len(uint(blocks)), 1)
	x := blockIndex{shift: uint(64 - width), first: make([]int32, 1<<width), next: make([]int32, blocks)}
	for i := blocks - 1; i >= 0; i-- { // so that the first one is found first
		h := x.hash(data[i*deltaBlock:])
		x.next[i], x.first[h] = x.first[h], int32(i+1)
	}
	return x
}

// hash is that of the first block of data.
func (x *blockIndex) hash(data []byte) uint64 {
	a, b := binary.LittleEndian.Uint64(data), binary.LittleEndian.Uint64(data[8:])
	return ((a*0x9e3779b97f4a7c15 ^ bits.RotateLeft64(b, 31)) * 0xff51afd7ed558ccd) >> x.shift
}

// longest finds the longest piece of from that to has at a place.
func (x *blockIndex) longest(from, to []byte, at int) (off, n int) {
	if len(to)-at < deltaBlock {
		return 0, 0
	}
	for tries, b := 0, x.first[x.hash(to[at:])]; b > 0 && tries < deltaTries; tries, b = tries+1, x.next[b-1] {
		start := int(b-1) * deltaBlock
		k := 0
		for most := min(len(from)-start, len(to)-at); k < most && from[start+k] == to[at+k]; {
			k++
		}
		if k > n {
			off, n = start, k
		}
	}
	return off, n
}
