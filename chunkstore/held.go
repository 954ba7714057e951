package chunkstore

import (
	"context"
	"errors"

	"github.com/RoaringBitmap/roaring/v2/roaring64"

	"snapfs/chunkstore/internal/pack"
)

// Held accounts for what open readers keep that no manifest of the store needs: a collection leaves it alone until they
// are closed. Each set lists manifests, deleted ones as a rule, of which readers are open; others count nothing. The
// result is the compressed bytes that each set keeps, and all of them together, where what several keep counts once.
func (s *Store) Held(ctx context.Context, sets ...[]ID) (each []int64, all int64, err error) {
	each = make([]int64, len(sets))
	if err := s.enter(ctx); err != nil {
		return each, 0, err
	}
	defer s.leave()
	open := map[ID]*chunkList{}
	s.pins.mu.Lock()
	for r := range s.pins.readers {
		open[r.m.ID] = r.m
	}
	s.pins.mu.Unlock()
	l := &s.liveSet
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := s.livePayloadLocked(ctx); err != nil {
		return each, 0, err
	}
	met := map[pack.Location]bool{}
	for i, ids := range sets {
		keeps := roaring64.New()
		for _, id := range ids {
			if m := open[id]; m != nil {
				keeps.Or(m.bitmap())
			}
		}
		records, err := s.deadRecords(keeps)
		if err != nil {
			return each, all, err
		}
		for at := range records {
			each[i] += at.Len
			if !met[at] {
				met[at] = true
				all += at.Len
			}
		}
	}
	return each, all, nil
}

// deadRecords lists the records that some chunks and their bases need and no manifest does. The caller holds
// liveSet.mu.
func (s *Store) deadRecords(front *roaring64.Bitmap) (map[pack.Location]bool, error) {
	l := &s.liveSet
	records := map[pack.Location]bool{}
	met := l.chunks.Clone()
	for front.AndNot(met); !front.IsEmpty(); front.AndNot(met) {
		met.Or(front)
		next := roaring64.New()
		for it := front.Iterator(); it.HasNext(); {
			rec, _, err := s.locate(it.Next())
			if errors.Is(err, errNoChunk) {
				continue // lost, which Check reports
			}
			if err != nil {
				return nil, err
			}
			if rec.delta || !l.records[rec.Location] {
				records[rec.Location] = true
			}
			for _, b := range rec.bases {
				next.Add(b)
			}
		}
		front = next
	}
	return records, nil
}
