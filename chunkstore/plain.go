package chunkstore

import (
	"slices"

	"snapfs/chunkstore/internal/pack"
)

// readPlain fills a stretch's dst from a record that has its chunks as they are: the kernel copies them to where they
// are wanted, and what of the record lies around them into scratch memory, for its checksum. false: it is another kind
// of record, or cannot be read; that is for others to find out.
func (s *Store) readPlain(st *stretch) bool {
	lo, hi := s.around(st)
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

// around gives the chunks of the segment that lie in the record of a stretch, as far as they are side by side.
func (s *Store) around(st *stretch) (lo, hi int) {
	same := func(i int) bool {
		rec, _, err := s.locate(uint64(st.sg.nums[i]))
		return err == nil && rec.Place == st.at
	}
	for lo = st.first; lo > 0 && same(lo-1); lo-- {
	}
	for hi = st.end; hi < len(st.sg.nums) && same(hi); hi++ {
	}
	return lo, hi
}
