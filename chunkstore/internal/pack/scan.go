package pack

import (
	"bytes"

	"snapfs/internal/varint"
)

// Scan calls fn for the records of a pack or journal in order, and damaged for what lies between them and is
// none. Behind a damaged record it goes on where that says it ends, if there is a record, else at the next
// byte at which there is one. Holes of a pack (Set.Punch) are damaged, too; see HasHole.
//
// A record is sure if only records and zeros lie before it. Any other may be part of what a damaged record held: whoever
// stored that may have put a record of a chunk that is not theirs into it.
func Scan(b []byte, fn func(off int64, r *Record, sure bool), damaged func(off, n int64)) {
	at := func(off int) (*Record, int) {
		size, err := recordSize(b[off:])
		if err != nil || size > int64(len(b)-off) || !plausible(b[off:off+int(size)]) {
			return nil, 0
		}
		r, err := ParseRecord(b[off : off+int(size)])
		if err != nil {
			return nil, int(size)
		}
		return r, int(size)
	}
	sure := true
	for off := HeaderSize; off < len(b); {
		r, size := at(off)
		if r != nil {
			fn(int64(off), r, sure)
			off += size
			continue
		}
		bad := off
		off += size
		if size > 0 && off < len(b) {
			r, _ = at(off)
		}
		if r == nil && (size == 0 || off < len(b)) {
			for off = bad + 1; off < len(b); off++ {
				off += zeros(b[off:])
				if r, _ = at(off); r != nil {
					break
				}
			}
		}
		sure = sure && allZero(b[bad:off])
		damaged(int64(bad), int64(off-bad))
	}
}

var zeroPage [PageSize]byte

// zeros gives the number of zeros at the beginning of b that no record can begin with: a hole has so many that looking
// for a record at each of them would take long.
func zeros(b []byte) int {
	n := 0
	for len(b)-n >= PageSize && bytes.Equal(b[n:n+PageSize], zeroPage[:]) {
		n += PageSize
	}
	return max(n-recordFixed, 0) // the checksum of the next record may begin with zeros
}

// allZero reports whether all bytes of b are zero.
func allZero(b []byte) bool {
	for ; len(b) > PageSize; b = b[PageSize:] {
		if !bytes.Equal(b[:PageSize], zeroPage[:]) {
			return false
		}
	}
	return bytes.Equal(b, zeroPage[:len(b)])
}

// HasHole reports whether n bytes of a pack that are no record may be dead space: they have a whole page of zeros.
func HasHole(b []byte, off, n int64) bool {
	for at := (off + PageSize - 1) / PageSize * PageSize; at+PageSize <= off+n; at += PageSize {
		if bytes.Equal(b[at:at+PageSize], zeroPage[:]) {
			return true
		}
	}
	return false
}

// plausible reports whether the bytes of a record's length begin like one. It saves the checksum of what is none.
func plausible(b []byte) bool {
	kind, short := Kind(b[4]&^digested), b[4]&digested != 0
	p := varint.Parser{Rest: b[recordFixed:]}
	p.Uint()
	members := 1
	if short {
		p.Bytes(DigestSize)
	}
	if !short || kind != Delta {
		members = p.Count(MaxMembers)
	}
	switch kind {
	case Stored, Block, prefixed:
		return !p.Bad && members > 0
	case Delta:
		return !p.Bad && members == 1
	case Journal:
		return !p.Bad && members == 0
	}
	return false
}

// ScanEntries calls fn for the records that follow each other from the first byte of b on, until one is none, or fn
// returns false.
func ScanEntries(b []byte, fn func(r *Record) bool) {
	for {
		size, err := recordSize(b)
		if err != nil || size > int64(len(b)) {
			return
		}
		r, err := ParseRecord(b[:size])
		if err != nil || !fn(r) {
			return
		}
		b = b[size:]
	}
}
