package chunkstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sort"
	"sync"

	badger "github.com/dgraph-io/badger/v4"

	"snapfs/chunkstore/internal/corrupt"
	"snapfs/chunkstore/internal/pack"
)

// readAhead is how many records WriteTo decodes in advance.
const readAhead = 8

// Reader reads a stored stream. It is safe for concurrent use. It pins the manifest against collection until Close.
type Reader struct {
	s *Store
	m *chunkList

	closeOnce sync.Once
}

// segment is the expansion of segmentChunks chunks of a manifest; immutable.
type segment struct {
	nums []uint64
	offs []int64 // first byte of each chunk in the stored stream, and the end
}

// chunkAt finds the chunk that holds byte off of the stored stream, which lies in the segment.
func (sg *segment) chunkAt(off int64) int {
	return sort.Search(len(sg.offs), func(i int) bool { return sg.offs[i] > off }) - 1
}

// OpenManifest opens a stream for reading.
func (s *Store) OpenManifest(ctx context.Context, id ID) (*Reader, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	m, err := s.manifest(id)
	if err != nil {
		s.leave()
		return nil, err
	}
	r := &Reader{s: s, m: m}
	s.pins.addReader(r)
	// If the manifest is still there after it was pinned, every collection that did not see the pin saw the manifest.
	if err := s.view(func(btx *badger.Txn) error {
		_, err := get(btx, manifestKey(id))
		return err
	}); err != nil {
		return nil, errors.Join(fmt.Errorf("manifest %d: %w", id, err), r.Close())
	}
	return r, nil
}

// Size is the stream's length in bytes.
func (r *Reader) Size() int64 { return r.m.Size }

// Close unpins the manifest.
func (r *Reader) Close() error {
	r.closeOnce.Do(func() {
		r.s.pins.dropReader(r)
		r.s.leave()
	})
	return nil
}

type segmentKey struct {
	id ID
	no int
}

// segment expands segment no.
func (s *Store) segment(m *chunkList, no int) (*segment, error) {
	key := segmentKey{m.ID, no}
	sg, epoch, ok := s.segments.get(key)
	if ok {
		return sg, nil
	}
	first := int64(no) * segmentChunks
	count := min(segmentChunks, m.Chunks-first)
	sg = &segment{nums: make([]uint64, 0, count), offs: make([]int64, 0, count+1)}
	at := m.starts[no]
	i := sort.Search(len(m.firsts), func(i int) bool { return m.firsts[i] > first }) - 1
	skip := uint64(first - m.firsts[i])
	for ; int64(len(sg.nums)) < count; i++ {
		run := m.runs[i]
		for num := run.first + skip; num < run.first+run.count && int64(len(sg.nums)) < count; num++ {
			_, n, err := s.locate(num)
			if err != nil {
				return nil, err
			}
			sg.nums = append(sg.nums, num)
			sg.offs = append(sg.offs, at)
			at += int64(n)
		}
		skip = 0
	}
	if sg.offs = append(sg.offs, at); at != m.starts[no+1] {
		return nil, corrupt.Errorf("segment %d has %d bytes instead of %d", no, at-m.starts[no],
			m.starts[no+1]-m.starts[no])
	}
	s.segments.put(key, sg, int64(len(sg.nums))*16+100, epoch)
	return sg, nil
}

// ReadAt implements io.ReaderAt.
func (r *Reader) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fmt.Errorf("read at %d: negative offset", off)
	}
	n := 0
	if off < int64(len(r.m.header)) {
		n = copy(p, r.m.header[off:])
	}
	for n < len(p) {
		at := off + int64(n)
		if at >= r.m.Size {
			return n, io.EOF
		}
		k, err := r.readSome(p[n:], at)
		n += k
		if err != nil {
			return n, &DamageError{r.m.ID, at + int64(k), err}
		}
	}
	return n, nil
}

// readSome reads bytes from off on, at least up to the end of the chunk, or the part of a transform run, that holds off.
func (r *Reader) readSome(p []byte, off int64) (int, error) {
	run, at, n := r.m.transformAt(off)
	if run < 0 {
		if p = p[:min(int64(len(p)), n)]; len(p) >= directMin {
			return r.s.readMany(r.m, p, at)
		}
		return r.s.readStored(r.m, p, at)
	}
	off -= r.m.transforms[run].off
	if len(p) >= directMin {
		return r.s.readParts(r.m, run, p, off)
	}
	b, start, err := r.s.transformed(r.m, run, off)
	if err != nil {
		return 0, err
	}
	return copy(p, b[off-start:]), nil
}

// readStored reads up to the end of the chunk that holds byte at of the stored stream.
func (s *Store) readStored(m *chunkList, p []byte, at int64) (int, error) {
	sg, err := s.segment(m, m.segmentAt(at))
	if err != nil {
		return 0, err
	}
	i := sg.chunkAt(at)
	b, err := s.block(s.locate, sg.nums[i])
	if err != nil {
		return 0, err
	}
	if origin := b.takeOrigin(); origin != blockUsed && b.isOfSmall() {
		s.noteFirstRead(m, at, origin)
	}
	c, err := b.need(sg.nums[i])
	if err != nil {
		return 0, err
	}
	if int64(len(c)) != sg.offs[i+1]-sg.offs[i] {
		return 0, corrupt.Errorf("chunk %d has %d bytes instead of %d", sg.nums[i], len(c), sg.offs[i+1]-sg.offs[i])
	}
	return copy(p, c[at-sg.offs[i]:]), nil
}

// Order gives a number for the byte at off, which is in the stream: streams are read fastest in the order of the numbers
// of what is wanted, because what was compressed together has the same one. 0 if it is not known.
func (r *Reader) Order(off int64) uint64 {
	const offsetBits = 44 // of an offset in a pack
	if off < int64(len(r.m.header)) || off >= r.m.Size {
		return 0
	}
	run, at, _ := r.m.transformAt(off)
	if run >= 0 {
		t := &r.m.transforms[run]
		part, _, _ := t.partAt(off - t.off)
		at, _ = t.needs(part)
	}
	sg, err := r.s.segment(r.m, r.m.segmentAt(at))
	if err != nil {
		return 0 // who reads it gets the error
	}
	i := sg.chunkAt(at)
	if i < 0 || i >= len(sg.nums) {
		return 0
	}
	rec, _, err := r.s.locate(sg.nums[i])
	if err != nil {
		return 0
	}
	return uint64(rec.Pack)<<offsetBits | uint64(rec.Off)&(1<<offsetBits-1)
}

// WriteTo streams the whole manifest with read-ahead.
func (r *Reader) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(r.m.header)
	total := int64(n)
	if err != nil {
		return total, err
	}
	prefetch := newPrefetcher(r)
	defer prefetch.stop()
	run, inner := 0, int64(0) // the next transform run, and the end of the last one's inner bytes
	for no := range r.m.segments {
		sg, err := r.s.segment(r.m, no)
		if err != nil {
			return total, &DamageError{r.m.ID, total, err}
		}
		for i, num := range sg.nums {
			prefetch.passed(uint64(num))
			if sg.offs[i] < inner {
				continue
			}
			var c []byte
			if run < len(r.m.transforms) && r.m.transforms[run].at == sg.offs[i] {
				inner = sg.offs[i] + r.m.transforms[run].inner
				n, err := r.writeRun(w, run)
				total += n
				if err != nil {
					return total, err
				}
				run++
				continue
			}
			c, err = r.s.chunk(r.s.locate, uint64(num))
			if err == nil && int64(len(c)) != sg.offs[i+1]-sg.offs[i] {
				err = corrupt.Errorf("chunk %d has a false length", num)
			}
			if err != nil {
				return total, &DamageError{r.m.ID, total, err}
			}
			n, err := w.Write(c)
			total += int64(n)
			if err != nil {
				return total, err
			}
		}
	}
	return total, nil
}

// writeRun writes a transform run.
func (r *Reader) writeRun(w io.Writer, run int) (int64, error) {
	t := &r.m.transforms[run]
	const atOnce = 1 << 20 // bytes
	buf := make([]byte, min(t.len, atOnce))
	for total := int64(0); total < t.len; {
		n, err := r.s.readParts(r.m, run, buf, total)
		if err != nil {
			return total, &DamageError{r.m.ID, t.off + total, err}
		}
		n, err = w.Write(buf[:n])
		total += int64(n)
		if err != nil {
			return total, err
		}
	}
	return t.len, nil
}

// prefetcher decodes records before they are needed. Its goroutine ends before the WriteTo that started it.
type prefetcher struct {
	r    *Reader
	want chan struct{} // one token per record to decode ahead
	quit chan struct{}
	done chan struct{}
	last pack.Location
}

func newPrefetcher(r *Reader) *prefetcher {
	a := &prefetcher{r: r, want: make(chan struct{}, readAhead), quit: make(chan struct{}), done: make(chan struct{})}
	for range readAhead {
		a.want <- struct{}{}
	}
	go a.run()
	return a
}

func (a *prefetcher) run() {
	defer close(a.done)
	var last pack.Location
	for no := range a.r.m.segments {
		sg, err := a.r.s.segment(a.r.m, no)
		if err != nil {
			return // the writer meets the same error
		}
		for _, num := range sg.nums {
			rec, _, err := a.r.s.locate(uint64(num))
			if err != nil {
				return
			}
			if rec.Location == last {
				continue
			}
			last = rec.Location
			select {
			case <-a.quit:
				return
			case <-a.want:
			}
			_, _ = a.r.s.block(a.r.s.locate, uint64(num)) // the writer meets the same error
		}
	}
}

// passed is called for each chunk in order. Each further record allows another one to be decoded.
func (a *prefetcher) passed(num uint64) {
	rec, _, err := a.r.s.locate(num)
	if err != nil || rec.Location == a.last {
		return
	}
	a.last = rec.Location
	select {
	case a.want <- struct{}{}:
	default:
	}
}

func (a *prefetcher) stop() {
	close(a.quit)
	<-a.done
}
