package layers

import (
	"context"
	"errors"
	"io"
	"iter"

	"snapfs/chunkstore"
	"snapfs/squashfs"
)

// OpenImage opens a stored image as a lower; it closes r when it is closed.
func OpenImage(key string, r *chunkstore.Reader, id chunkstore.ID) (Lower, error) {
	return nil, errors.ErrUnsupported
}

// OpenFile opens an image file of any origin as a lower.
func OpenFile(key string, r io.ReaderAt, size int64) (Lower, error) {
	return nil, errors.ErrUnsupported
}

// PackOptions are for Pack.
type PackOptions struct {
	NoSync   bool
	Progress func(files, bytes int64)
}

// Pack stores a sealed layer as an image: writes its store form into the chunk store, predicting every file and the
// metadata tables from the layers below, and commits together with the records fn writes.
func Pack(ctx context.Context, s *chunkstore.Store, layer Lower, below []Lower, opts PackOptions,
	fn func(tx *chunkstore.Tx, m chunkstore.Manifest) error) (chunkstore.Manifest, error) {
	return chunkstore.Manifest{}, errors.ErrUnsupported
}

// PackTree stores a host directory (read once, nothing copied) as a base image.
func PackTree(ctx context.Context, s *chunkstore.Store, dir string, opts PackOptions,
	fn func(tx *chunkstore.Tx, m chunkstore.Manifest) error) (chunkstore.Manifest, error) {
	return chunkstore.Manifest{}, errors.ErrUnsupported
}

// Merged presents a whole stack (topmost first) as one tree without whiteouts, for export.
func Merged(stack []Lower) (squashfs.Source, error) { return nil, errors.ErrUnsupported }

// Delta presents one layer as it is, whiteouts and overlay attributes included, as the kernel's overlayfs reads them.
func Delta(layer Lower) (squashfs.Source, error) { return nil, errors.ErrUnsupported }

// Kind of change in a diff.
type Kind byte

// A added, M contents or metadata modified, D deleted, T type changed, R renamed.
const (
	Added    Kind = 'A'
	Modified Kind = 'M'
	Deleted  Kind = 'D'
	Retyped  Kind = 'T'
	Renamed  Kind = 'R'
)

// Change is one line of a diff, in path order.
type Change struct {
	Kind    Kind
	Path    string // relative, slash-separated, raw bytes
	OldPath string // of a rename
	Mode    uint32 // new mode, or the old one if deleted
	Size    int64
}

// Diff compares two stacks (topmost first), skipping what they share, in time proportional to what differs.
func Diff(ctx context.Context, a, b []Lower) iter.Seq2[Change, error] { return nil }
