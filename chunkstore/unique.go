package chunkstore

import (
	"context"
	"fmt"
	"slices"

	"github.com/RoaringBitmap/roaring/v2/roaring64"

	"snapfs/chunkstore/internal/pack"
)

// severalSets marks a record that more than one set needs.
const severalSets = -1

// Unique returns for each of several disjoint sets of manifests how many bytes of payload, delta bases included, only
// that set needs: neither another set nor a manifest in no set. It makes one pass over all manifests, however many sets
// there are, and none if the same was asked since the last one was stored or deleted.
func (s *Store) Unique(ctx context.Context, sets [][]ID) ([]int64, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	in, q := s.accounted(), questionOf(sets...)
	if unique, ok := s.rememberedUnique(in, q); ok {
		return unique, nil
	}
	of := map[ID]int{} // set of a manifest, from 1; 0 is the set of those in none
	for i, set := range sets {
		for _, id := range set {
			of[id] = i + 1
		}
	}
	chunks := make([]*roaring64.Bitmap, len(sets)+1)
	for i := range chunks {
		chunks[i] = roaring64.New()
	}
	if err := s.eachManifest(ctx, func(m *chunkList) error {
		chunks[of[m.ID]].Or(m.bitmap())
		return nil
	}); err != nil {
		return nil, fmt.Errorf("account: %w", err)
	}
	owner := map[pack.Location]int{}
	for i, set := range chunks {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		records, err := s.recordsOf(set)
		if err != nil {
			return nil, err
		}
		for at := range records {
			if _, known := owner[at]; known {
				owner[at] = severalSets
			} else {
				owner[at] = i
			}
		}
	}
	unique := make([]int64, len(sets))
	for at, i := range owner {
		if i > 0 {
			unique[i-1] += at.Len
		}
	}
	s.remember(in, q, nil, slices.Clone(unique))
	return unique, nil
}
