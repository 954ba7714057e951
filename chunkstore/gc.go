package chunkstore

import (
	"context"
	"errors"
)

// GCStats says what a collection did. Bytes are allocated bytes.
type GCStats struct {
	Chunks    int64 // collected
	Bytes     int64 // given back to the file system
	Rewritten int64 // bytes of live payload moved
}

// GC collects what no manifest needs and gives the bytes back; runs beside readers and writers.
func (s *Store) GC(ctx context.Context, progress func(done, total int64)) (GCStats, error) {
	return GCStats{}, errors.ErrUnsupported
}

// Optimize re-orders, re-bases and recompresses cold blocks; interruptible by ctx and crash-safe.
func (s *Store) Optimize(ctx context.Context, progress func(done, total int64)) (GCStats, error) {
	return GCStats{}, errors.ErrUnsupported
}

// liveChanged is called after a manifest was deleted.
func (s *Store) liveChanged() {}

type usageCache struct{}
