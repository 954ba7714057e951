package chunkstore

import (
	"errors"
	"slices"
	"sort"

	"snapfs/chunkstore/internal/cdc"
	"snapfs/chunkstore/internal/pack"
)

// predictSlack is how many bytes before and after its offset the old chunks that predict a new one may lie.
const predictSlack = 8 << 10

// radix says of which earlier version of a chunk a version is a delta. The n-th version, of generation n, is one of the
// version with that number in which the last digit that is not 0 is less by one: of the one before, but for one of radix
// versions, which is a delta of the one radix versions before, and so on. The sum of the digits is the length of the
// chain. Small files are read as a whole: their chains may be longer. Large ones need many chunks for one read.
type radix int

const (
	smallRadix radix = 32
	largeRadix radix = 2
	chainMax         = 48 // deltas
)

// base is the generation of the version that a version is a delta of.
func (r radix) base(gen int) int {
	step := 1
	for gen > 0 && gen/step%int(r) == 0 {
		step *= int(r)
	}
	return max(gen-step, 0)
}

// depth is how many deltas are decoded to read a version.
func (r radix) depth(gen int) int {
	n := 0
	for ; gen > 0; gen /= int(r) {
		n += gen % int(r)
	}
	return n
}

// dictionaryMax bounds the bytes of the bases of a delta, all of which are decoded to read it. Four times as much makes
// no corpus smaller.
const dictionaryMax = 512 << 10

// predictor follows a part of an ingest along its previous version. When a chunk of the previous version is found
// again, the two are aligned again; in between they are assumed to run in parallel.
//
// The previous version is loaded when a chunk first needs it: most parts that are stored again are known completely.
type predictor struct {
	in     *Ingest
	prev   []Range        // where the previous version lies; not loaded yet unless empty
	passed []passed       // known chunks before it was loaded
	old    []oldChunk     // the previous version
	index  map[uint64]int // by number, into old
	at     int64          // bytes of the part so far
	shift  int64          // offset in the previous version - offset in the part

	runs []oldRun // transform runs of the previous version
	run  int      // how many runs the part has had

	// near, if set, is the stream that has the previous version in place. Then only the chunks around the offset are
	// considered, and shift is the offset in its stored stream - offset in the part.
	near *chunkList
}

// oldRun is the range of the inner bytes of a transform run of the previous version. Like all offsets here, it is in
// the stored stream.
type oldRun struct{ off, end int64 }

// passed is a chunk that the store had, and its offset in the part.
type passed struct {
	num uint64
	at  int64
}

type oldChunk struct {
	num uint64
	off int64 // in the previous version
	len int
}

// begin starts a part.
func (p *predictor) begin(h Hint) {
	p.prev, p.passed = h.Prev, p.passed[:0]
	p.old, p.index, p.at, p.shift = p.old[:0], nil, 0, 0
	p.runs, p.run = p.runs[:0], 0
	p.near = nil
	if h.InPlace && len(h.Prev) == 1 {
		if m, err := p.in.s.manifest(h.Prev[0].Manifest); err == nil {
			p.follow(m, h.Prev[0].Off, 0)
		}
	}
}

// follow says that the part continues like a stream from off on, except for what is overwritten, behind held bytes that
// are not in chunks yet.
func (p *predictor) follow(m *chunkList, off, held int64) {
	p.prev, p.old, p.index = nil, p.old[:0], nil
	lo, _ := m.storedRange(off, 0)
	p.near, p.shift = m, lo-(p.at+held)
}

// load reads the locations of the previous version's chunks, and aligns it with the part so far.
func (p *predictor) load() {
	if len(p.prev) == 0 {
		return
	}
	prev := p.prev
	p.prev = nil
	off := int64(0)
	for _, r := range prev {
		// Without the prediction the chunks are stored all the same.
		chunks, runs, err := p.in.s.chunksOf(r)
		if err != nil {
			continue
		}
		for _, t := range runs {
			p.runs = append(p.runs, oldRun{off + t.off, off + t.end})
		}
		for _, c := range chunks {
			c.off = off
			off += int64(c.len)
			p.old = append(p.old, c)
		}
	}
	for _, c := range slices.Backward(p.passed) {
		if p.align(c.num, c.at) {
			break
		}
	}
}

// align reports whether the previous version has the chunk at offset at of the part. If so, it aligns the two.
func (p *predictor) align(num uint64, at int64) bool {
	if len(p.old) == 0 {
		return false
	}
	if p.index == nil {
		p.index = make(map[uint64]int, len(p.old))
		for i, c := range p.old {
			p.index[c.num] = i
		}
	}
	i, ok := p.index[num]
	if ok {
		p.shift = p.old[i].off - at
	}
	return ok
}

// seen reports a chunk that the store had.
func (p *predictor) seen(num uint64, n int) {
	if len(p.prev) > 0 {
		p.passed = append(p.passed, passed{num, p.at})
	} else {
		p.align(num, p.at)
	}
	p.at += int64(n)
}

// enterRun reports that a transform run starts. It is predicted from the run of the previous version with the same
// index.
func (p *predictor) enterRun() {
	p.load()
	if p.run < len(p.runs) {
		p.shift = p.runs[p.run].off - p.at
	}
}

// leaveRun reports that the run ends.
func (p *predictor) leaveRun() {
	if p.run < len(p.runs) {
		p.shift = p.runs[p.run].end - p.at
	}
	p.run++
}

// missed reports a chunk that the store did not have.
func (p *predictor) missed(n int) { p.at += int64(n) }

// bases finds the chunks from which a new chunk at the current offset is predicted.
func (p *predictor) bases(f *fresh) error {
	p.load()
	lo := p.at + p.shift - predictSlack
	hi := p.at + p.shift + int64(len(f.data)) + predictSlack
	var preds []uint64
	if p.near != nil {
		chunks, err := p.in.s.chunksIn(p.near, lo, hi)
		if err != nil {
			return skipLost(err)
		}
		for _, c := range chunks {
			preds = append(preds, c.num)
		}
	}
	i := sort.Search(len(p.old), func(i int) bool { return p.old[i].off+int64(p.old[i].len) > lo })
	for ; i < len(p.old) && p.old[i].off < hi; i++ {
		preds = append(preds, p.old[i].num)
	}
	if len(preds) == 0 && len(p.old) > 0 {
		preds = append(preds, p.old[len(p.old)-1].num) // the part has grown
	}
	if len(preds) == 0 {
		return nil
	}
	return p.in.resolve(f, preds)
}

// resolve chooses the bases of a delta among the predecessors of a chunk and their bases, so that chains stay short: see
// radix. A chunk without bases is stored plain.
func (in *Ingest) resolve(f *fresh, preds []uint64) error {
	step := radix(smallRadix)
	if f.off > 0 || len(f.data) >= cdc.WholePart {
		step = largeRadix
	}
	gen := 0
	for _, n := range preds {
		rec, _, err := in.locate(n)
		if err != nil {
			return skipLost(err)
		}
		gen = max(gen, rec.gen+1)
	}
	limit := step.base(gen)
	seen := map[uint64]bool{}
	total, depth := 0, 0
	var bases []uint64
	var add func(num uint64) error
	add = func(num uint64) error {
		if seen[num] {
			return nil
		}
		seen[num] = true
		rec, n, err := in.locate(num)
		if err != nil {
			return err
		}
		if rec.delta && rec.gen > limit {
			for _, b := range rec.bases {
				if err := add(b); err != nil {
					return err
				}
			}
			return nil
		}
		if total+n > dictionaryMax || len(bases) == pack.MaxBases || !in.s.pins.useAsBase(in, num) {
			return nil
		}
		// Until it was pinned, its generation could grow.
		if rec, _, err = in.locate(num); err != nil {
			return err
		}
		total += n
		depth = max(depth, rec.gen)
		bases = append(bases, num)
		return nil
	}
	for _, n := range preds {
		if err := add(n); err != nil {
			return skipLost(err)
		}
	}
	gen = max(gen, depth+1)
	behind, err := in.behind(bases)
	if err != nil {
		return skipLost(err)
	}
	if behind > pack.MaxBehind || f.bound && gen > f.maxGen || step.depth(gen) > chainMax {
		bases = nil
	}
	in.mu.Lock() // a decoder may be looking for the chunk
	defer in.mu.Unlock()
	f.bases, f.gen = bases, gen
	return nil
}

// skipLost ignores a lost or damaged predecessor: the chunk is stored without it.
func skipLost(err error) error {
	if errors.Is(err, ErrCorrupt) || errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// behind sums the bytes that must be decoded before a delta with these bases.
func (in *Ingest) behind(bases []uint64) (int, error) {
	seen := map[uint64]bool{}
	var walk func(num uint64) (int, error)
	walk = func(num uint64) (int, error) {
		if seen[num] {
			return 0, nil
		}
		seen[num] = true
		rec, n, err := in.locate(num)
		if err != nil {
			return 0, err
		}
		if !rec.delta {
			n = max(n, blockSize) // its whole block
		}
		for _, b := range rec.bases {
			k, err := walk(b)
			if err != nil {
				return 0, err
			}
			if n += k; n > pack.MaxBehind {
				break
			}
		}
		return n, nil
	}
	total := 0
	for _, b := range bases {
		n, err := walk(b)
		if err != nil {
			return 0, err
		}
		total += n
	}
	return total, nil
}

// chunksOf lists the chunks that overlap a range of a manifest, and the transform runs in it, relative to its start.
func (s *Store) chunksOf(rg Range) ([]oldChunk, []oldRun, error) {
	m, err := s.manifest(rg.Manifest)
	if err != nil {
		return nil, nil, err
	}
	lo, hi := m.storedRange(rg.Off, rg.Len)
	list, err := s.chunksIn(m, lo, hi)
	if err != nil {
		return nil, nil, err
	}
	var runs []oldRun
	for _, t := range m.transformsIn(lo, hi) {
		runs = append(runs, oldRun{t.at - lo, t.at + t.inner - lo})
	}
	return list, runs, nil
}

// chunksIn lists the chunks that overlap a range of a stored stream.
func (s *Store) chunksIn(m *chunkList, lo, hi int64) ([]oldChunk, error) {
	var list []oldChunk
	for no := max(0, m.segmentAt(lo)); no < len(m.segments) && m.starts[no] < hi; no++ {
		sg, err := s.segment(m, no)
		if err != nil {
			return nil, err
		}
		from := sort.Search(len(sg.nums), func(i int) bool { return sg.offs[i+1] > lo })
		for i := from; i < len(sg.nums) && sg.offs[i] < hi; i++ {
			list = append(list, oldChunk{num: sg.nums[i], len: int(sg.offs[i+1] - sg.offs[i])})
		}
	}
	return list, nil
}
