package chunkstore

import (
	"slices"
)

// readPlain fills a stretch's dst from a record that has its chunks as they are: the kernel copies them to where they are
// wanted, and what of the record lies around them into scratch memory, for its checksum. false: it is another kind of
// record, or cannot be read; that is for others to find out.
func (s *Store) readPlain(st *stretch) bool {
	lo, hi := s.around(st)
	raw := st.sg.offs[hi] - st.sg.offs[lo]
	head := st.at.len - raw
	if !st.at.maybeStored(head, hi-lo) {
		return false
	}
	before := head + st.sg.offs[st.first] + int64(st.skip) - st.sg.offs[lo]
	behind := st.at.len - before - int64(len(st.dst))
	sc := takeScratch()
	defer sc.release()
	sc.record = slices.Grow(sc.record[:0], int(before+behind))[:before+behind]
	parts := [3][]byte{sc.record[:before], st.dst, sc.record[before:]}
	members, ok := s.packs.readStored(st.at, head, parts[:])
	return ok && st.sg.are(members, lo, hi)
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
