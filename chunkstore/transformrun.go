package chunkstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sort"

	"golang.org/x/sync/singleflight"

	"snapfs/chunkstore/internal/transform"
	"snapfs/internal/varint"
)

// transformRun is a part of a stream that is stored as other bytes.
type transformRun struct {
	codec transform.Codec
	off   int64 // in the stream
	len   int64 // bytes in the stream
	at    int64 // in the stored stream
	inner int64 // bytes in the stored stream

	pieces *transform.Pieces // of codec Deflate, else nil
}

// partAt gives the part of the run that has its byte off, and where the part starts and ends in the run. A run without pieces
// is one part.
func (t *transformRun) partAt(off int64) (i int, start, end int64) {
	if t.pieces == nil {
		return 0, 0, t.len
	}
	i = t.pieces.Find(off)
	start, end = t.pieces.Span(i)
	return i, start, end
}

// needs gives the range of the stored stream that a part is made of.
func (t *transformRun) needs(part int) (lo, hi int64) {
	if t.pieces == nil {
		return t.at, t.at + t.inner
	}
	lo, hi = t.pieces.Needs(part)
	return t.at + lo, t.at + hi
}

// addTransform makes the last chunks, of which are the inner bytes of t, a run. Where it lies is not used.
func (m *chunkList) addTransform(t transformRun) {
	t.off, t.at = m.Size-t.inner, m.stored-t.inner
	m.transforms = append(m.transforms, t)
	m.Size += t.len - t.inner
}

// transformsCost estimates the memory of the list of transform runs.
func (m *chunkList) transformsCost() int64 {
	n := int64(len(m.transforms)) * 48
	for _, t := range m.transforms {
		if t.pieces != nil {
			n += int64(t.pieces.Count()) * transform.PieceCost
		}
	}
	return n
}

// appendTransforms appends the list of transform runs as it stands in the manifest's value.
func (m *chunkList) appendTransforms(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(m.transforms)))
	end := int64(0)
	for _, t := range m.transforms {
		b = append(binary.AppendUvarint(b, uint64(t.off-end)), byte(t.codec))
		b = binary.AppendUvarint(b, uint64(t.len))
		b = binary.AppendUvarint(b, uint64(t.inner))
		if t.codec == transform.Deflate {
			b = t.pieces.Append(b)
		}
		end = t.off + t.len
	}
	return b
}

// parseTransforms reads the list; the runs and segments are known. It reports whether all lengths fit.
func (m *chunkList) parseTransforms(p *varint.Parser) bool {
	n := p.Count(uint64(m.Chunks))
	end, at := int64(0), int64(0)
	for range n {
		gap := p.Uint()
		t := transformRun{codec: transform.Codec(p.Byte())}
		t.len, t.inner = int64(p.Count(transform.MaxInflated)), int64(p.Count(transform.MaxInflated))
		if p.Bad || gap > uint64(m.stored-at) || !t.codec.Fits(t.len, t.inner) {
			return false
		}
		if t.codec == transform.Deflate {
			if t.pieces = transform.ParsePieces(p, t.len, t.inner); t.pieces == nil {
				return false
			}
		}
		t.off, t.at = end+int64(gap), at+int64(gap)
		end, at = t.off+t.len, t.at+t.inner
		m.transforms = append(m.transforms, t)
	}
	return at <= m.stored && m.Size == end+m.stored-at
}

// transformAt finds the run that holds byte off of the stream. If there is none it returns -1, the byte's offset in the
// stored stream, and how many bytes there are until the next run or the end.
func (m *chunkList) transformAt(off int64) (run int, at, n int64) {
	i := sort.Search(len(m.transforms), func(i int) bool { return m.transforms[i].off > off })
	if i > 0 {
		t := m.transforms[i-1]
		if off < t.off+t.len {
			return i - 1, 0, 0
		}
		at = t.at + t.inner - (t.off + t.len)
	}
	n = m.Size - off
	if i < len(m.transforms) {
		n = m.transforms[i].off - off
	}
	return -1, off + at, n
}

// storedRange maps a range of the stream to the stored stream. Runs that it touches are included as a whole.
func (m *chunkList) storedRange(off, n int64) (lo, hi int64) {
	run, lo, _ := m.transformAt(max(0, off))
	if run >= 0 {
		lo = m.transforms[run].at
	}
	if n <= 0 {
		return lo, lo
	}
	run, hi, _ = m.transformAt(off + n - 1)
	if run >= 0 {
		t := m.transforms[run]
		return lo, t.at + t.inner
	}
	return lo, hi + 1
}

// transformsIn lists the runs within a range of the stored stream.
func (m *chunkList) transformsIn(lo, hi int64) []transformRun {
	i := sort.Search(len(m.transforms), func(i int) bool { return m.transforms[i].at >= lo })
	j := sort.Search(len(m.transforms), func(j int) bool { return m.transforms[j].at >= hi })
	return m.transforms[i:max(i, j)]
}

// transformCacheMin lets the longest possible run stay in the cache.
const transformCacheMin = transform.MaxInflated + 1<<20

// runPart names a part of a transform run.
type runPart struct {
	id   ID
	run  int
	part int
}

// transformCache holds the bytes of transform runs and of their pieces. Each is made once, however many readers ask for
// it at the same time.
type transformCache struct {
	*lru[runPart, []byte]
	flights singleflight.Group
	// One token per run or piece that is being made: their inner bytes are in memory. Long runs, which take long, have
	// their own.
	long, short chan struct{}
}

// shortRun is how many inner bytes a short run, or most pieces, are made of at most.
const shortRun = 512 << 10

func newTransformCache(limit int64) *transformCache {
	const longAtOnce, shortAtOnce = 2, 32
	return &transformCache{
		lru:   newLRU[runPart, []byte](max(limit, transformCacheMin)),
		long:  make(chan struct{}, longAtOnce),
		short: make(chan struct{}, shortAtOnce),
	}
}

// turns gives the tokens for what is made of n inner bytes.
func (c *transformCache) turns(n int64) chan struct{} {
	if n <= shortRun {
		return c.short
	}
	return c.long
}

// transformed returns the part of a run that has byte off of the run, and where it starts in the run. Callers must not
// change its bytes.
func (s *Store) transformed(m *chunkList, run int, off int64) (b []byte, start int64, err error) {
	part, start, end := m.transforms[run].partAt(off)
	key := runPart{m.ID, run, part}
	b, epoch, ok := s.transforms.get(key)
	if ok {
		return b, start, nil
	}
	v, err, _ := s.transforms.flights.Do(fmt.Sprint(key), func() (any, error) {
		out, err := s.transform(m, run, part)
		if err == nil {
			s.transforms.put(key, out, int64(cap(out)), epoch)
		}
		return out, err
	})
	b, ok = v.([]byte)
	if err == nil && (!ok || int64(len(b)) != end-start) {
		err = errors.New("transform run has no bytes")
	}
	return b, start, err
}

// transform makes a part of a run.
func (s *Store) transform(m *chunkList, run, part int) ([]byte, error) {
	t := &m.transforms[run]
	lo, hi := t.needs(part)
	turns := s.transforms.turns(hi - lo)
	turns <- struct{}{}
	defer func() { <-turns }()
	inner := make([]byte, hi-lo)
	for n := int64(0); n < hi-lo; {
		k, err := s.readStored(m, inner[n:], lo+n)
		if err != nil {
			return nil, err
		}
		n += int64(k)
	}
	if t.pieces != nil {
		return t.pieces.Make(part, inner) //nolint:wrapcheck // of our class
	}
	return t.codec.Undo(nil, inner, t.len) //nolint:wrapcheck // as above
}

// readParts reads from byte off of a run until p is full or the run ends. Several parts are made at a time if processors
// are idle.
func (s *Store) readParts(m *chunkList, run int, p []byte, off int64) (int, error) {
	t := &m.transforms[run]
	p = p[:min(int64(len(p)), t.len-off)]
	var starts []int64 // of parts
	for at := off; at < off+int64(len(p)); {
		_, start, end := t.partAt(at)
		starts = append(starts, start)
		at = end
	}
	errs := s.together(len(starts), len(starts), func(i int) error {
		b, start, err := s.transformed(m, run, starts[i])
		if err != nil {
			return err
		}
		if start < off {
			copy(p, b[off-start:])
		} else {
			copy(p[start-off:], b)
		}
		return nil
	})
	for i, err := range errs {
		if err != nil {
			return int(max(0, starts[i]-off)), err
		}
	}
	return len(p), nil
}
