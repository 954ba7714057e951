package chunkstore

import (
	"context"
	"errors"
)

// CheckOptions are for Check.
type CheckOptions struct {
	ReadData bool // decode every block and verify every chunk's hash
	Progress func(done, total int64)
}

// Problem is one thing wrong with the store.
type Problem struct {
	Where     string
	What      string
	Manifests []ID // that are hit
}

// Check verifies the store.
func (s *Store) Check(ctx context.Context, opts CheckOptions) ([]Problem, error) {
	return nil, errors.ErrUnsupported
}
