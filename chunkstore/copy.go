package chunkstore

import (
	"fmt"
	"sort"

	"snapfs/chunkstore/internal/corrupt"
)

// resyncMax bounds how many bytes are cut again before the chunks of a copied range are taken as they are.
const resyncMax = 1 << 20

// Copy takes a range of a stored stream as the next bytes. Its chunks are named again, and their data is not read,
// except at the ends of the range if it does not begin or end with a chunk, and until the cuts agree with those of what
// was written before. Callers must keep a Reader of the manifest open until Commit, and must have called Hint.
func (in *Ingest) Copy(r Range) error {
	if err := in.check(); err != nil {
		return err
	}
	in.err = in.copy(r)
	return in.err
}

func (in *Ingest) copy(r Range) error {
	m, err := in.s.manifest(r.Manifest)
	if err != nil {
		return err
	}
	if r.Off < 0 || r.Len < 0 || r.Off > m.Size-r.Len {
		return fmt.Errorf("range of %d bytes at %d of manifest %d, which has %d", r.Len, r.Off, r.Manifest, m.Size)
	}
	if err := in.parts.Flush(); err != nil {
		return err
	}
	in.parts.Begin(-1)
	in.cut.Continue()
	if err := in.pipe.drain(); err != nil {
		return err
	}
	in.list.copied = true
	in.pred.follow(m, r.Off, int64(in.cut.Held()))
	fed := int64(0)
	for off, end := r.Off, r.Off+r.Len; off < end; {
		if err := in.ctx.Err(); err != nil {
			return err
		}
		u, err := in.s.unitAt(m, off)
		if err != nil {
			return err
		}
		whole := off == u.off && u.end <= end && (u.chunks != nil || u.run >= 0)
		if whole && !in.cut.Idle() && fed >= resyncMax {
			if err := in.cut.Flush(); err != nil {
				return err
			}
			in.cut.Continue()
		}
		if whole && in.cut.Idle() {
			if err := in.pipe.drain(); err != nil {
				return err
			}
			n, ok, err := in.reuse(m, u, end)
			if err != nil {
				return err
			}
			if ok {
				off += n
				continue
			}
		}
		n, err := in.feed(m, u, off, end, whole)
		if err != nil {
			return err
		}
		off += n
		fed += n
	}
	if err := in.pipe.drain(); err != nil {
		return err
	}
	in.pred.follow(m, r.Off+r.Len, int64(in.cut.Held()))
	return nil
}

// unit is a part of a stream that is stored as a chunk, as a transform run, or in the header.
type unit struct {
	off, end int64 // in the stream
	run      int   // transform run, or -1

	chunks *segment // that of the chunk
	i      int      // of the chunk, in it
}

// unitAt finds the unit that holds byte off of a stream.
func (s *Store) unitAt(m *chunkList, off int64) (unit, error) {
	if off < int64(len(m.header)) {
		return unit{end: int64(len(m.header)), run: -1}, nil
	}
	run, at, _ := m.transformAt(off)
	if run >= 0 {
		t := m.transforms[run]
		return unit{off: t.off, end: t.off + t.len, run: run}, nil
	}
	sg, err := s.segment(m, m.segmentAt(at))
	if err != nil {
		return unit{}, err
	}
	i := sort.Search(len(sg.offs), func(i int) bool { return sg.offs[i] > at }) - 1
	start := off - (at - sg.offs[i])
	return unit{off: start, end: start + sg.offs[i+1] - sg.offs[i], run: -1, chunks: sg, i: i}, nil
}

// reuse names chunks again, from a unit on, as far as its segment and the range go. It returns the length of the stream
// that they make up; false if a collection has doomed one of them.
func (in *Ingest) reuse(m *chunkList, u unit, end int64) (int64, bool, error) {
	if u.run >= 0 {
		t := m.transforms[u.run]
		chunks, err := in.s.chunksIn(m, t.at, t.at+t.inner)
		if err != nil || !in.s.pins.useAll(in, chunks) {
			return 0, false, err
		}
		for _, c := range chunks {
			in.list.add(c.num, c.len)
			in.pred.missed(c.len)
		}
		in.list.addTransform(t)
		return t.len, true, nil
	}
	_, _, plain := m.transformAt(u.off)
	most := min(plain, end-u.off)
	var chunks []oldChunk
	n := int64(0)
	for i := u.i; i < len(u.chunks.nums); i++ {
		size := u.chunks.offs[i+1] - u.chunks.offs[i]
		if n+size > most {
			break
		}
		chunks = append(chunks, oldChunk{num: u.chunks.nums[i], len: int(size)})
		n += size
	}
	if !in.s.pins.useAll(in, chunks) {
		return 0, false, nil
	}
	for _, c := range chunks {
		in.list.add(c.num, c.len)
		in.pred.missed(c.len)
	}
	return n, true, nil
}

// feed sends the bytes of a unit, or of a part of a transform run, from off on to be cut again. If they begin where the
// part is cut anyway, it takes none of them.
func (in *Ingest) feed(m *chunkList, u unit, off, end int64, whole bool) (int64, error) {
	var data []byte
	var err error
	switch {
	case u.run >= 0:
		var part int
		t := &m.transforms[u.run]
		part, u.off, u.end = t.partAt(off - t.off)
		u.off, u.end = u.off+t.off, u.end+t.off
		if err = in.s.verifyPart(m, u.run, part); err == nil {
			data, _, err = in.s.transformed(m, u.run, off-t.off)
		}
	case u.chunks != nil:
		data, _, err = in.s.verifiedChunk(u.chunks.nums[u.i])
	default:
		data = m.header
	}
	if err != nil {
		return 0, err
	}
	if int64(len(data)) != u.end-u.off {
		return 0, corrupt.Errorf("%d bytes at %d of manifest %d instead of %d", len(data), u.off, m.ID, u.end-u.off)
	}
	data = data[off-u.off : min(u.end, end)-u.off]
	if whole && !in.cut.Idle() {
		if ok, err := in.cut.Resync(data); ok || err != nil {
			return 0, err
		}
	}
	n, err := in.cut.Write(data)
	return int64(n), err
}

// useAll pins chunks for an ingest. It returns false if one is doomed.
func (p *pins) useAll(in *Ingest, chunks []oldChunk) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.doomed != nil {
		for _, c := range chunks {
			if p.doomed.Contains(c.num) {
				return false
			}
		}
	}
	for i := 0; i < len(chunks); {
		k := i + 1
		for k < len(chunks) && chunks[k].num == chunks[k-1].num+1 {
			k++
		}
		in.used.AddRange(chunks[i].num, chunks[k-1].num+1)
		i = k
	}
	return true
}
