package layers

import "sync/atomic"

// Lower is one immutable layer: a sealed directory, an image, or a directory of others
// until its image is made (OpenSource). Safe for concurrent use. Reference-counted: who opens
// one calls Close; an overlay that uses it holds a reference of its own.
type Lower struct {
	// Immutable.
	key    string
	dir    *dirStore    // nil: an image
	image  *imageStore  // nil: a directory
	source *sourceStore // nil: no directory of others
	be     backend      // what both can do

	refs atomic.Int64
}

// newDirLower makes a lower of a directory, with one reference.
func newDirLower(key string, s *dirStore) *Lower {
	l := &Lower{key: key, dir: s, be: s}
	l.refs.Store(1)
	return l
}

// newImageLower makes a lower of an image, with one reference.
func newImageLower(key string, s *imageStore) *Lower {
	l := &Lower{key: key, image: s, be: s}
	l.refs.Store(1)
	return l
}

// Key is durable and unique in a home, and the same for a sealed directory and for the image it becomes.
func (l *Lower) Key() string { return l.key }

// Close gives one reference back; the last one closes the storage.
func (l *Lower) Close() error {
	if l.refs.Add(-1) == 0 {
		return l.be.close()
	}
	return nil
}

func (l *Lower) acquire() *Lower {
	l.refs.Add(1)
	return l
}

// OpenSealed opens a sealed upper directory as a lower. inoBase and wide are the Options.InoBase and Options.WideIno of
// the overlay that wrote it.
func OpenSealed(key, dir string, inoBase uint64, wide ...func(base, high uint64) (uint64, error)) (*Lower, error) {
	s, err := openDirStore(dir, inoBase, wide...)
	if err != nil {
		return nil, err
	}
	s.sealed = true
	return newDirLower(key, s), nil
}
