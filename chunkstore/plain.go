package chunkstore

import (
	"encoding/binary"
	"hash/crc32"
	"slices"

	"golang.org/x/sys/unix"
)

// headMax bounds what a record that is read by readPlain has before its chunks: the fixed part, its length, their count,
// and a number and a length for each.
func headMax(chunks int) int64 { return recordFixed + 10 + 10 + 20*int64(chunks) }

// readPlain fills a stretch's dst from a record that has its chunks as they are: the kernel copies them to where they are
// wanted, and what of the record lies around them into scratch memory, for its checksum. false: it is another kind of
// record, or cannot be read; that is for others to find out.
func (s *Store) readPlain(st *stretch) bool {
	lo, hi := s.around(st)
	raw := st.sg.offs[hi] - st.sg.offs[lo]
	head := st.at.len - raw
	if head <= recordFixed || head > headMax(hi-lo) || st.at.len > maxRecord {
		return false
	}
	before := head + st.sg.offs[st.first] + int64(st.skip) - st.sg.offs[lo]
	behind := st.at.len - before - int64(len(st.dst))
	sc := takeScratch()
	defer sc.release()
	sc.record = slices.Grow(sc.record[:0], int(before+behind))[:before+behind]
	parts := [3][]byte{sc.record[:before], st.dst, sc.record[before:]}
	p := s.packs.acquire(st.at.pack)
	if p == nil {
		return false
	}
	defer s.packs.release(p)
	if !readParts(int(p.f.Fd()), parts[:], st.at.off) {
		return false
	}
	b := parts[0]
	if size, err := recordSize(b); err != nil || size != st.at.len || recordKind(b[4]) != recStored {
		return false
	}
	sum := crc32.Checksum(b[4:], castagnoli)
	for _, part := range parts[1:] {
		sum = crc32.Update(sum, castagnoli, part)
	}
	if binary.LittleEndian.Uint32(b) != sum {
		return false
	}
	q := parser{b: b[recordFixed:head]}
	q.uint()
	members, _, err := q.members()
	return err == nil && !q.bad && len(q.b) == 0 && st.sg.are(members, lo, hi)
}

// around gives the chunks of the segment that lie in the record of a stretch, as far as they are side by side.
func (s *Store) around(st *stretch) (lo, hi int) {
	same := func(i int) bool {
		rec, _, err := s.locate(uint64(st.sg.nums[i]))
		return err == nil && rec.place == st.at
	}
	for lo = st.first; lo > 0 && same(lo-1); lo-- {
	}
	for hi = st.end; hi < len(st.sg.nums) && same(hi); hi++ {
	}
	return lo, hi
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
