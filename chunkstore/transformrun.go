package chunkstore

import (
	"encoding/binary"
	"errors"
	"sort"
	"strconv"

	"golang.org/x/sync/singleflight"

	"snapfs/chunkstore/internal/transform"
	"snapfs/chunkstore/internal/varint"
)

// transformRun is a part of a stream that is stored as other bytes.
type transformRun struct {
	codec transform.Codec
	off   int64 // in the stream
	len   int64 // bytes in the stream
	at    int64 // in the stored stream
	inner int64 // bytes in the stored stream
}

// addTransform makes the last chunks, inner bytes of them, a run of n bytes.
func (m *chunkList) addTransform(t transform.Codec, n, inner int64) {
	m.transforms = append(m.transforms,
		transformRun{codec: t, off: m.Size - inner, len: n, at: m.stored - inner, inner: inner})
	m.Size += n - inner
}

// appendTransforms appends the list of transform runs as it stands in the manifest's value.
func (m *chunkList) appendTransforms(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(m.transforms)))
	end := int64(0)
	for _, t := range m.transforms {
		b = append(binary.AppendUvarint(b, uint64(t.off-end)), byte(t.codec))
		b = binary.AppendUvarint(b, uint64(t.len))
		b = binary.AppendUvarint(b, uint64(t.inner))
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

// transformCache holds the undone bytes of transform runs. Each is made once, however many readers ask for it at the
// same time, and only few at a time.
type transformCache struct {
	*lru[segmentKey, []byte]
	flights singleflight.Group
	// One token per run that is being made: their inner bytes are in memory. Long runs, which take long, have their own.
	long, short chan struct{}
}

// shortRun is how many inner bytes a short run has at most.
const shortRun = 512 << 10

func newTransformCache(limit int64) *transformCache {
	const longAtOnce, shortAtOnce = 2, 32
	return &transformCache{
		lru:   newLRU[segmentKey, []byte](max(limit, transformCacheMin)),
		long:  make(chan struct{}, longAtOnce),
		short: make(chan struct{}, shortAtOnce),
	}
}

// turns gives the tokens for runs as long as one.
func (c *transformCache) turns(r transformRun) chan struct{} {
	if r.inner <= shortRun {
		return c.short
	}
	return c.long
}

// transformed returns the bytes of a run. Callers must not change them.
func (s *Store) transformed(m *chunkList, run int) ([]byte, error) {
	key := segmentKey{m.ID, run}
	b, epoch, ok := s.transforms.get(key)
	if ok {
		return b, nil
	}
	v, err, _ := s.transforms.flights.Do(strconv.FormatUint(uint64(m.ID), 36)+"/"+strconv.Itoa(run),
		func() (any, error) {
			t := m.transforms[run]
			turns := s.transforms.turns(t)
			turns <- struct{}{}
			defer func() { <-turns }()
			inner := make([]byte, t.inner)
			for n := int64(0); n < t.inner; {
				k, err := s.readStored(m, inner[n:], t.at+n)
				if err != nil {
					return nil, err
				}
				n += int64(k)
			}
			out, err := t.codec.Undo(nil, inner, t.len)
			if err == nil {
				s.transforms.put(key, out, int64(cap(out)), epoch)
			}
			return out, err
		})
	b, ok = v.([]byte)
	if err == nil && !ok {
		err = errors.New("transform run has no bytes")
	}
	return b, err
}
