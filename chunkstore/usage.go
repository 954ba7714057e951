package chunkstore

import (
	"context"
	"errors"
)

// Usage is space accounting of a set of manifests, in bytes.
type Usage struct {
	Logical     int64 // sum of the streams' lengths
	Stored      int64 // compressed payload they need, delta bases included
	Unique      int64 // part of Stored that only this set needs
	Shared      int64 // part of Stored that others need too
	Reclaimable int64 // what deleting the set and collecting would free
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

// Stats accounts for the store from incrementally kept figures.
func (s *Store) Stats(ctx context.Context) (Stats, error) {
	if err := s.enter(ctx); err != nil {
		return Stats{}, err
	}
	defer s.leave()
	s.writeMu.Lock()
	st := s.state
	s.writeMu.Unlock()
	return Stats{Manifests: st.manifests, Chunks: st.chunks, Logical: st.logical, Payload: st.payload}, nil
}

// Usage accounts for a set of manifests against all others of the store.
func (s *Store) Usage(ctx context.Context, ids ...ID) (Usage, error) {
	return Usage{}, errors.ErrUnsupported
}
