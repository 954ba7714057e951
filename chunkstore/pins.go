package chunkstore

import (
	"github.com/RoaringBitmap/roaring/v2"

	"snapfs/internal/lockorder"
)

// pins holds what a collection must not remove, besides what manifests name: the manifests of open readers, deleted or
// not, and the chunks that ingests under way have found or written. What a collection has decided to remove is doomed:
// look-ups do not find it any more, so that nothing new can need it.
type pins struct {
	mu      lockorder.Mutex[lockorder.Pins]
	readers map[*Reader]struct{} // guarded by mu
	ingests map[*Ingest]struct{} // guarded by mu
	doomed  *roaring.Bitmap      // nil = none; guarded by mu, its contents are immutable
	recent  *roaring.Bitmap      // what ingests that ended during the collection used, nil if none runs; guarded by mu
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

// use pins a chunk for an ingest. It returns false if the chunk is doomed.
func (p *pins) use(in *Ingest, num uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.doomed != nil && p.doomed.Contains(uint32(num)) {
		return false
	}
	in.used.Add(uint32(num))
	return true
}
