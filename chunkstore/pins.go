package chunkstore

import (
	"slices"

	"github.com/RoaringBitmap/roaring/v2/roaring64"

	"snapfs/internal/lockorder"
)

// pins holds what a collection must not remove, besides what manifests name: the manifests of open readers, deleted or
// not, and the chunks that ingests under way have found or written. What a collection has decided to remove is doomed:
// look-ups do not find it any more, so that nothing new can need it.
type pins struct {
	mu      lockorder.Mutex[lockorder.Pins]
	readers map[*Reader]struct{} // guarded by mu
	ingests map[*Ingest]struct{} // guarded by mu
	doomed  *roaring64.Bitmap    // nil = none; guarded by mu, its contents are immutable
	recent  *roaring64.Bitmap    // what ingests that ended during the collection used, nil if none runs; guarded by mu
	raised  *roaring64.Bitmap    // chunks whose generation is about to grow; nil = none; guarded by mu
}

func (p *pins) addReader(r *Reader) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.readers == nil {
		p.readers = map[*Reader]struct{}{}
	}
	p.readers[r] = struct{}{}
}

func (p *pins) dropReader(r *Reader) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.readers, r)
}

func (p *pins) addIngest(in *Ingest) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ingests == nil {
		p.ingests = map[*Ingest]struct{}{}
	}
	p.ingests[in] = struct{}{}
}

func (p *pins) dropIngest(in *Ingest) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.ingests, in)
	if p.recent != nil {
		p.recent.Or(in.used)
	}
	in.used = nil
}

// use pins a chunk for an ingest. It returns false if the chunk is doomed, or the ingest has ended.
func (p *pins) use(in *Ingest, num uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if in.used == nil || p.doomed != nil && p.doomed.Contains(num) {
		return false
	}
	in.used.Add(num)
	return true
}

// useAsBase pins a chunk as a base. It returns false if the chunk is doomed, or cannot be a base now. What the chunk's
// generation is must be read after that.
func (p *pins) useAsBase(in *Ingest, num uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.raised != nil && p.raised.Contains(num) || p.doomed != nil && p.doomed.Contains(num) {
		return false
	}
	in.used.Add(num)
	return true
}

// watch has raise consider ingests that end from now on, until unwatch. A collection runs.
func (p *pins) watch() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.recent = roaring64.New()
}

// unwatch ends watch, and what raise announced.
func (p *pins) unwatch() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.recent, p.raised = nil, nil
}

// raise announces that the generations of chunks grow, so that no ingest makes them bases until lower is called. It
// returns false if an ingest, other than that of the caller, has used one of them since watch.
func (p *pins) raise(by *Ingest, nums []uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if slices.ContainsFunc(nums, func(n uint64) bool { return p.recent.Contains(n) }) {
		return false
	}
	for in := range p.ingests {
		if in == by {
			continue
		}
		if slices.ContainsFunc(nums, func(n uint64) bool { return in.used.Contains(n) }) {
			return false
		}
	}
	if p.raised == nil {
		p.raised = roaring64.New()
	}
	for _, n := range nums {
		p.raised.Add(n)
	}
	return true
}

// lower ends what raise announced.
func (p *pins) lower() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.raised = nil
}
