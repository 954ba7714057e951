package pack

import (
	"encoding/binary"
	"hash/crc32"

	"golang.org/x/sys/unix"

	"snapfs/internal/varint"
)

// MaybeStored reports whether the record at a location can be one that has some chunks as they are, behind head bytes:
// the fixed part, its length, the digest, the count of chunks, and a number and a length for each.
func (p Location) MaybeStored(head int64, chunks int) bool {
	return head > recordFixed && head <= recordFixed+10+DigestSize+10+20*int64(chunks) && p.Len <= MaxRecord
}

// ReadStored reads a record that has its chunks as they are into parts, one behind the other, so that chunks can be
// read straight to where they are wanted. The chunks begin at head, which lies in the first part. It gives the record's
// members; false if it is another kind of record, or cannot be read.
func (ps *Set) ReadStored(at Location, head int64, parts [][]byte) ([]Member, bool) {
	p := ps.acquire(at.Pack)
	if p == nil {
		return nil, false
	}
	defer ps.release(p)
	if !readParts(int(p.f.Fd()), parts, at.Off) {
		return nil, false
	}
	b := parts[0]
	if size, err := recordSize(b); err != nil || size != at.Len || Kind(b[4]&^digested) != Stored {
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
	if b[4]&digested != 0 {
		q.Bytes(DigestSize)
	}
	members, _, err := parseMembers(&q, -1)
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
		return err == nil && n == want // what is cut short is read anew by a caller that can say what is wrong
	}
}
