package layers

import (
	"errors"
	"sync/atomic"
)

// Lower is one immutable layer: a sealed directory or an image. Safe for concurrent use. Reference-counted: whoever
// opened it calls Close; an overlay that uses it holds its own reference.
type Lower interface {
	// Key is durable and unique in a home, and the same for the sealed directory and for the image it becomes.
	Key() string
	Close() error
}

// lower is the only Lower.
type lower struct {
	key  string
	be   backend
	refs atomic.Int64
}

func newLower(key string, be backend) *lower {
	l := &lower{key: key, be: be}
	l.refs.Store(1)
	return l
}

func (l *lower) Key() string { return l.key }

// Close gives one reference back; the last one closes the storage.
func (l *lower) Close() error {
	if l.refs.Add(-1) == 0 {
		return l.be.close()
	}
	return nil
}

func (l *lower) acquire() *lower {
	l.refs.Add(1)
	return l
}

var errForeignLower = errors.New("a lower that this package did not open")

// OpenSealed opens a sealed upper directory as a lower. inoBase and wide are the Options.InoBase and Options.WideIno of the overlay
// that wrote it.
func OpenSealed(key, dir string, inoBase uint64, wide ...func(base, high uint64) (uint64, error)) (Lower, error) {
	s, err := openDirStore(dir, inoBase, wide...)
	if err != nil {
		return nil, err
	}
	s.sealed = true
	return newLower(key, s), nil
}
