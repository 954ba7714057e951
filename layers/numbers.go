package layers

import (
	"context"
	"iter"

	"snapfs/chunkstore"
	"snapfs/squashfs"
)

// Numbers yields the inode number of every inode of a stored image. Nothing follows an error.
func Numbers(ctx context.Context, r *chunkstore.Reader) iter.Seq2[uint64, error] {
	im, err := squashfs.Open(r, r.Size(), squashfs.Options{})
	if err != nil {
		return func(yield func(uint64, error) bool) { yield(0, err) }
	}
	return im.Numbers(ctx)
}
