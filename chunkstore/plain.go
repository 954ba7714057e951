package chunkstore

import (
	"slices"

	"snapfs/chunkstore/internal/pack"
)

// readPlain fills a stretch's dst from a record that has its chunks uncompressed. The wanted bytes are read directly
// into dst, and the rest of the record into scratch memory, for its checksum. It returns false if the record is of
// another kind or cannot be read; the caller then tries the other ways.
func (s *Store) readPlain(st *stretch) bool {
	lo, hi := s.neighbours(st)
	raw := st.sg.offs[hi] - st.sg.offs[lo]
	head := st.at.Len - raw
	if !st.at.MaybeStored(head, hi-lo) {
		return false
	}
	before := head + st.sg.offs[st.first] + int64(st.skip) - st.sg.offs[lo]
	behind := st.at.Len - before - int64(len(st.dst))
	sc := pack.TakeScratch()
	defer sc.Release()
	sc.Record = slices.Grow(sc.Record[:0], int(before+behind))[:before+behind]
	parts := [3][]byte{sc.Record[:before], st.dst, sc.Record[before:]}
	members, ok := s.packs.ReadStored(st.at, head, parts[:])
	return ok && st.sg.are(members, lo, hi)
}

// neighbours returns the range of consecutive chunks of the segment that lie in the record of a stretch.
func (s *Store) neighbours(st *stretch) (lo, hi int) {
	same := func(i int) bool {
		rec, _, err := s.locate(st.sg.nums[i])
		return err == nil && rec.Location == st.at
	}
	for lo = st.first; lo > 0 && same(lo-1); lo-- {
	}
	for hi = st.end; hi < len(st.sg.nums) && same(hi); hi++ {
	}
	return lo, hi
}
