package chunkstore

import (
	"encoding/binary"

	"snapfs/chunkstore/internal/corrupt"
	"snapfs/chunkstore/internal/pack"
	"snapfs/internal/varint"
)

// A page of the index says where pageChunks chunks of consecutive numbers lie. Chunks are numbered in the order of
// their streams, so that manifests are a few runs. Blocks hold them in another order. So a page first lists the records
// that its chunks lie in:
//
//	records uvarint count, then per record:
//	        uvarint flags: bit 0 delta, bit 1 begins where the record before it in the page ends, bits 2.. generation
//	        without bit 1: uvarint pack, uvarint offset
//	        uvarint length
//	        of a delta, or if the generation is 1: uvarint count of bases, per base: varint number of its first chunk
//	        in the page - number of the base. Blocks have generation 0; 1 says that there is a base
//	slots   per number: uvarint 0 if there is no such chunk, 1 if it lies in the record after the newest one that a
//	        slot before it names, else 2 + index of the record; then uvarint length of the chunk
//
// Trailing empty slots are left out.
const pageChunks = 256

const (
	pageDelta    = 1 << 0
	pageAdjacent = 1 << 1
	pageGenShift = 2
)

// located is a record as the index knows it.
type located struct {
	pack.Location
	delta bool
	gen   int
	bases []uint64 // of a block: its prefix, if it has one
	// counted says, while an ingest names its chunks, that state.payload has it. Guarded by Store.writeMu.
	counted bool
}

// rank orders records: the bases of a record have lower ranks than it has.
func (r *located) rank() int { return rankOf(r.delta, r.gen, r.bases) }

func rankOf(delta bool, gen int, bases []uint64) int {
	switch {
	case delta:
		return gen + 1
	case len(bases) > 0:
		return 1
	}
	return 0
}

// chain returns the bases of a delta.
func (r *located) chain() []uint64 {
	if r.delta {
		return r.bases
	}
	return nil
}

// prefix returns the base of a block.
func (r *located) prefix() (uint64, bool) {
	if r.delta || len(r.bases) == 0 {
		return 0, false
	}
	return r.bases[0], true
}

// slot is a chunk in a page; rec is nil if there is no such chunk.
type slot struct {
	rec *located
	len int
}

// page is a decoded page; immutable once cached.
type page struct {
	slots [pageChunks]slot
}

// cost estimates its memory.
func (pg *page) cost() int64 { return pageChunks*(16+48) + 64 }

func pageOf(num uint64) (no uint64, i int) { return num / pageChunks, int(num % pageChunks) }

func (pg *page) empty() bool {
	for i := range pg.slots {
		if pg.slots[i].rec != nil {
			return false
		}
	}
	return true
}

// appendPage encodes page no.
func appendPage(dst []byte, no uint64, pg *page) []byte {
	index := map[pack.Location]int{}
	var recs []byte
	var prev pack.Location
	last := 0
	for i := range pg.slots {
		r := pg.slots[i].rec
		if r == nil {
			continue
		}
		last = i + 1
		if _, ok := index[r.Location]; ok {
			continue
		}
		index[r.Location] = len(index)
		flags := uint64(r.gen) << pageGenShift
		if r.delta {
			flags |= pageDelta
		} else if len(r.bases) > 0 {
			flags |= 1 << pageGenShift
		}
		adjacent := len(index) > 1 && r.Pack == prev.Pack && r.Off == prev.End()
		if adjacent {
			flags |= pageAdjacent
		}
		recs = binary.AppendUvarint(recs, flags)
		if !adjacent {
			recs = binary.AppendUvarint(recs, uint64(r.Pack))
			recs = binary.AppendUvarint(recs, uint64(r.Off))
		}
		recs = binary.AppendUvarint(recs, uint64(r.Len))
		if r.delta || len(r.bases) > 0 {
			recs = binary.AppendUvarint(recs, uint64(len(r.bases)))
			for _, b := range r.bases {
				recs = binary.AppendVarint(recs, int64(no*pageChunks+uint64(i)-b))
			}
		}
		prev = r.Location
	}
	dst = binary.AppendUvarint(dst, uint64(len(index)))
	dst = append(dst, recs...)
	newest := -1
	for i := range last {
		s := &pg.slots[i]
		if s.rec == nil {
			dst = append(dst, 0)
			continue
		}
		k := index[s.rec.Location]
		if k == newest+1 {
			dst = append(dst, 1)
			newest = k
		} else {
			dst = binary.AppendUvarint(dst, uint64(k)+2)
		}
		dst = binary.AppendUvarint(dst, uint64(s.len))
	}
	return dst
}

// parsePage decodes page no.
func parsePage(b []byte, no uint64) (*page, error) {
	p := varint.Parser{Rest: b}
	type raw struct {
		located
		back []int64 // distances of the bases, until the chunk is known
	}
	recs := make([]*raw, p.Count(pageChunks))
	var prev pack.Location
	for i := range recs {
		flags := p.Uint()
		r := &raw{located: located{delta: flags&pageDelta != 0, gen: int(flags >> pageGenShift)}}
		if flags&pageAdjacent != 0 {
			r.Pack, r.Off = prev.Pack, prev.End()
		} else {
			r.Pack, r.Off = uint32(p.Count(1<<32-1)), int64(p.Uint())
		}
		r.Len = int64(p.Count(pack.MaxRecord + 32))
		if r.Off < pack.HeaderSize || r.Off > pack.MaxOffset || r.Len == 0 {
			p.Bad = true
		}
		if r.delta || r.gen > 0 {
			for range p.Count(pack.MaxBases) {
				r.back = append(r.back, p.Int())
			}
		}
		if !r.delta {
			p.Bad = p.Bad || r.gen != len(r.back)
			r.gen = 0
		}
		recs[i], prev = r, r.Location
	}
	pg := &page{}
	newest := -1
	for i := 0; i < pageChunks && len(p.Rest) > 0; i++ {
		k := p.Count(pageChunks + 2)
		if k == 0 {
			continue
		}
		if k -= 2; k < 0 {
			newest++
			k = newest
		}
		n := p.Count(pack.MaxRaw)
		if p.Bad || k >= len(recs) {
			return nil, corrupt.Errorf("index page %d is malformed", no)
		}
		num := no*pageChunks + uint64(i)
		r := recs[k]
		for _, d := range r.back {
			r.bases = append(r.bases, num-uint64(d))
		}
		r.back = nil
		pg.slots[i] = slot{&r.located, n}
	}
	if p.Bad || len(p.Rest) > 0 {
		return nil, corrupt.Errorf("index page %d is malformed", no)
	}
	return pg, nil
}
