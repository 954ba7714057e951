package chunkstore

import (
	"fmt"
	"sync"
	"sync/atomic"

	"snapfs/chunkstore/internal/corrupt"
	"snapfs/chunkstore/internal/pack"
)

// directMin is the size of reads from which on records are decoded into the caller's memory. Callers with reads that
// large usually have a cache, such as the kernel's. Ours would hold a second copy of data that is not read again.
const directMin = 64 << 10

// stretch is a sequence of chunks that a read wants and that lie in one record.
type stretch struct {
	at         pack.Location
	sg         *segment
	first, end int    // of the chunks in the segment
	dst        []byte // for the wanted bytes
	skip       int    // bytes of the first chunk before them
}

func (st *stretch) nums() []uint64 { return st.sg.nums[st.first:st.end] }

// offs returns the offsets of the chunks in the stored stream, and their end.
func (st *stretch) offs() []int64 { return st.sg.offs[st.first : st.end+1] }

// whole reports whether all bytes of the chunks are wanted.
func (st *stretch) whole() bool { return int64(len(st.dst)) == st.sg.offs[st.end]-st.sg.offs[st.first] }

// readMany reads from byte at of the stored stream until p is full or a segment ends. Records that it needs as a whole
// are decoded into p, several at a time if processors are idle. The rest goes through the cache.
func (s *Store) readMany(m *chunkList, p []byte, at int64) (int, error) {
	sg, err := s.segment(m, m.segmentAt(at))
	if err != nil {
		return 0, err
	}
	list, n, err := s.stretches(sg, p, at)
	if err != nil {
		return 0, err
	}
	for i, err := range s.each(list) {
		if err != nil {
			return int(max(0, sg.offs[list[i].first]-at)), err
		}
	}
	return n, nil
}

// stretches divides a read by records. n is the number of bytes that they cover.
func (s *Store) stretches(sg *segment, p []byte, at int64) (list []stretch, n int, err error) {
	for i := sg.chunkAt(at); i < len(sg.nums) && n < len(p); i++ {
		rec, size, err := s.locate(sg.nums[i])
		if err != nil {
			return nil, 0, err
		}
		if int64(size) != sg.offs[i+1]-sg.offs[i] {
			return nil, 0, corrupt.Errorf("chunk %d has %d bytes instead of %d", sg.nums[i], size,
				sg.offs[i+1]-sg.offs[i])
		}
		skip := int(max(0, at-sg.offs[i]))
		k := min(size-skip, len(p)-n)
		if last := len(list) - 1; last >= 0 && list[last].at == rec.Location {
			st := &list[last]
			st.end = i + 1
			st.dst = st.dst[:len(st.dst)+k]
		} else {
			list = append(list, stretch{at: rec.Location, sg: sg, first: i, end: i + 1, dst: p[n : n+k], skip: skip})
		}
		n += k
	}
	return list, n, nil
}

// each reads all stretches and returns their errors. Uncompressed data is read in less time than it takes to wake a
// goroutine.
func (s *Store) each(list []stretch) []error {
	packed := 0
	for i := range list {
		if st := &list[i]; st.at.Len < st.sg.offs[st.end]-st.sg.offs[st.first] {
			packed++
		}
	}
	return s.together(len(list), packed, func(i int) error { return s.readStretch(&list[i]) })
}

// together calls fn for 0 to n - 1 and returns the errors. Helper goroutines join in if they are idle and more than one
// of the calls takes long.
func (s *Store) together(n, long int, fn func(i int) error) []error {
	errs := make([]error, n)
	var next atomic.Int64
	work := func() {
		for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
			errs[i] = fn(int(i))
		}
	}
	var helpers sync.WaitGroup
	for range long - 1 {
		select {
		case s.helpers <- struct{}{}:
			helpers.Go(func() {
				defer func() { <-s.helpers }()
				work()
			})
			continue
		default: // the helpers are busy
		}
		break
	}
	work()
	helpers.Wait()
	return errs
}

// readStretch fills a stretch's dst.
func (s *Store) readStretch(st *stretch) error {
	if b, _, ok := s.blocks.get(st.at); ok {
		return st.copy(b)
	}
	if s.readPlain(st) {
		return nil
	}
	if st.whole() {
		done, err := s.decodeInto(st)
		if done || err != nil {
			return err
		}
	}
	b, err := s.block(s.locate, st.sg.nums[st.first])
	if err != nil {
		return err
	}
	return st.copy(b)
}

// copy copies the wanted bytes out of the block that holds the chunks.
func (st *stretch) copy(b *block) error {
	dst, skip, offs := st.dst, st.skip, st.offs()
	for i, num := range st.nums() {
		c, err := b.need(uint64(num))
		if err != nil {
			return err
		}
		if int64(len(c)) != offs[i+1]-offs[i] {
			return corrupt.Errorf("chunk %d has %d bytes instead of %d", num, len(c), offs[i+1]-offs[i])
		}
		dst = dst[copy(dst, c[skip:]):]
		skip = 0
	}
	return nil
}

// decodeInto decodes a record that has the chunks of a stretch and no others, in this order. It decodes any other
// record into a block for the cache, and done is false. done is also false if the record cannot be read: the caller's
// next attempt reports that.
func (s *Store) decodeInto(st *stretch) (done bool, err error) {
	sc := pack.TakeScratch()
	defer sc.Release()
	r, err := s.packs.ReadInto(sc, st.at)
	if err != nil {
		return false, nil //nolint:nilerr // a collection may have moved it
	}
	num := st.sg.nums[st.first]
	rec, _, err := s.locate(num)
	if err != nil || rec.Location != st.at {
		return false, nil //nolint:nilerr // as above
	}
	if !st.sg.are(r.Members, st.first, st.end) {
		_, err := s.blocks.load(st.at, func() (*block, error) { return s.unpack(s.locate, rec, r, num) })
		return false, err
	}
	if r.Kind == pack.Stored {
		copy(st.dst, r.Frame)
		return true, nil
	}
	got, err := s.unframe(st.dst[:0:len(st.dst)], s.locate, rec, r, num)
	if err == nil && len(got) != len(st.dst) {
		err = corrupt.Errorf("%d bytes instead of %d", len(got), len(st.dst))
	}
	if err != nil {
		return false, fmt.Errorf("pack %d at %d: %w", st.at.Pack, st.at.Off, err)
	}
	return true, nil
}

// are reports whether a record's members are chunks first to end of the segment and no others.
func (sg *segment) are(members []pack.Member, first, end int) bool {
	if len(members) != end-first {
		return false
	}
	for i, m := range members {
		if i += first; m.Num != sg.nums[i] || int64(m.Len) != sg.offs[i+1]-sg.offs[i] {
			return false
		}
	}
	return true
}
