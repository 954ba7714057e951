package chunkstore

import (
	"encoding/binary"
	"hash/crc32"

	"golang.org/x/sys/unix"

	"snapfs/chunkstore/internal/varint"
)

// maybeStored reports whether the record at a place can be one that has some chunks as they are, behind head bytes: the
// fixed part, its length, the count of chunks, and a number and a length for each.
func (p place) maybeStored(head int64, chunks int) bool {
	return head > recordFixed && head <= recordFixed+10+10+20*int64(chunks) && p.len <= maxRecord
}

// readStored reads a record that has its chunks as they are into parts, one behind the other, so that chunks can be read
// straight to where they are wanted. The chunks begin at head, which lies in the first part. It gives the record's
// members; false if it is another kind of record, or cannot be read.
func (ps *packs) readStored(at place, head int64, parts [][]byte) ([]member, bool) {
	p := ps.acquire(at.pack)
	if p == nil {
		return nil, false
	}
	defer ps.release(p)
	if !readParts(int(p.f.Fd()), parts, at.off) {
		return nil, false
	}
	b := parts[0]
	if size, err := recordSize(b); err != nil || size != at.len || recordKind(b[4]) != recStored {
		return nil, false
	}
	sum := crc32.Checksum(b[4:], crcTable)
	for _, part := range parts[1:] {
		sum = crc32.Update(sum, crcTable, part)
	}
	if binary.LittleEndian.Uint32(b) != sum {
		return nil, false
	}
	q := varint.Parser{Rest: b[recordFixed:head]}
	q.Uint()
	members, _, err := parseMembers(&q)
	return members, err == nil && !q.Bad && len(q.Rest) == 0
}

// readParts fills the parts, one behind the other, from off on.
func readParts(fd int, parts [][]byte, off int64) bool {
	want := 0
	for _, p := range parts {
		want += len(p)
	}
	for {
		n, err := unix.Preadv(fd, parts, off)
		if err == unix.EINTR { //nolint:errorlint // raw errno
			continue
		}
		return err == nil && n == want // what is cut short is read anew by who can say what is wrong
	}
}
