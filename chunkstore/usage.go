package chunkstore

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/RoaringBitmap/roaring/v2"
)

// Usage is space accounting of a set of manifests, in bytes. A block, or a delta, counts as a whole for everything that
// needs a chunk in it.
type Usage struct {
	Logical     int64 // sum of the streams' lengths
	Stored      int64 // compressed payload they need, delta bases included
	Unique      int64 // part of Stored that only this set needs
	Shared      int64 // part of Stored that others need too
	Reclaimable int64 // what deleting the set and collecting would free, at least
}

// Stats is the whole store.
type Stats struct {
	Manifests int64
	Chunks    int64
	Logical   int64 // of all manifests
	Payload   int64 // live compressed bytes
	Garbage   int64 // compressed bytes that no manifest needs
	Packs     int64 // allocated bytes of packs
	Index     int64 // allocated bytes of Badger
}

// liveSet caches what manifests need, for Stats: commits add to it, a deletion drops it.
type liveSet struct {
	mu      sync.Mutex
	chunks  *roaring.Bitmap // nil = unknown; guarded by mu
	records map[place]bool  // the blocks among their records; guarded by mu
	payload int64           // bytes of their records; guarded by mu
	last    ID              // manifests up to here are in it; guarded by mu
}

// liveChanged is called after a manifest was deleted or chunks were moved.
func (s *Store) liveChanged() {
	s.liveSet.mu.Lock()
	defer s.liveSet.mu.Unlock()
	s.liveSet.chunks, s.liveSet.records, s.liveSet.payload, s.liveSet.last = nil, nil, 0, 0
}

// livePayload sums the records that manifests need; only manifests that came since the last call are looked at.
func (s *Store) livePayload(ctx context.Context) (int64, error) {
	l := &s.liveSet
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.chunks == nil {
		l.chunks, l.records = roaring.New(), map[place]bool{}
	}
	front := roaring.New()
	if err := s.eachManifestAfter(ctx, l.last, func(m *chunkList) error {
		front.Or(m.bitmap())
		l.last = m.ID
		return nil
	}); err != nil {
		return 0, err
	}
	front.AndNot(l.chunks)
	for !front.IsEmpty() {
		l.chunks.Or(front)
		next := roaring.New()
		for it := front.Iterator(); it.HasNext(); {
			rec, _, err := s.locate(uint64(it.Next()))
			if errors.Is(err, errNoChunk) {
				continue
			}
			if err != nil {
				return 0, err
			}
			if !rec.delta {
				if l.records[rec.place] {
					continue
				}
				l.records[rec.place] = true
			}
			l.payload += rec.len
			for _, b := range rec.bases {
				if !l.chunks.Contains(uint32(b)) {
					next.Add(uint32(b))
				}
			}
		}
		front = next
	}
	return l.payload, nil
}

// Stats accounts for the store from incrementally kept figures.
func (s *Store) Stats(ctx context.Context) (Stats, error) {
	if err := s.enter(ctx); err != nil {
		return Stats{}, err
	}
	defer s.leave()
	payload, err := s.livePayload(ctx)
	if err != nil {
		return Stats{}, err
	}
	s.writeMu.Lock()
	st := s.state
	s.writeMu.Unlock()
	packs, err := s.packs.allocated()
	if err != nil {
		return Stats{}, err
	}
	index, err := allocatedIn(s.guard.dir)
	if err != nil {
		return Stats{}, err
	}
	garbage := -payload
	for _, n := range s.packs.sizes() {
		garbage += n - packHeader
	}
	return Stats{
		Manifests: st.manifests, Chunks: st.chunks, Logical: st.logical,
		Payload: payload, Garbage: max(garbage, 0), Packs: packs, Index: index,
	}, nil
}

// Usage accounts for a set of manifests against all others of the store.
func (s *Store) Usage(ctx context.Context, ids ...ID) (Usage, error) {
	if err := s.enter(ctx); err != nil {
		return Usage{}, err
	}
	defer s.leave()
	var u Usage
	asked := map[ID]bool{}
	set, others := roaring.New(), roaring.New()
	for _, id := range ids {
		m, err := s.manifest(id)
		if err != nil {
			return Usage{}, err
		}
		if !asked[id] {
			asked[id] = true
			u.Logical += m.Size
			set.Or(m.bitmap())
		}
	}
	if err := s.eachManifest(ctx, func(m *chunkList) error {
		if !asked[m.ID] {
			others.Or(m.bitmap())
		}
		return nil
	}); err != nil {
		return Usage{}, fmt.Errorf("account: %w", err)
	}
	mine, err := s.recordsOf(set)
	if err != nil {
		return Usage{}, err
	}
	theirs, err := s.recordsOf(others)
	if err != nil {
		return Usage{}, err
	}
	for at := range mine {
		u.Stored += at.len
		if theirs[at] {
			u.Shared += at.len
		}
	}
	u.Unique = u.Stored - u.Shared
	u.Reclaimable = u.Unique
	return u, nil
}

// recordsOf lists the records that a set of chunks needs, bases included; set is closed over them.
func (s *Store) recordsOf(set *roaring.Bitmap) (map[place]bool, error) {
	if err := s.closure(set, set.Clone()); err != nil {
		return nil, err
	}
	recs := map[place]bool{}
	for it := set.Iterator(); it.HasNext(); {
		rec, _, err := s.locate(uint64(it.Next()))
		if errors.Is(err, errNoChunk) {
			continue
		}
		if err != nil {
			return nil, err
		}
		recs[rec.place] = true
	}
	return recs, nil
}
