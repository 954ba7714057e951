package layers

import (
	"context"

	"snapfs/chunkstore"
	"snapfs/squashfs"
)

// Numbers calls fn with the inode number of every inode of a stored image.
func Numbers(ctx context.Context, r *chunkstore.Reader, fn func(ino uint64) error) error {
	im, err := squashfs.Open(r, r.Size(), squashfs.Options{})
	if err != nil {
		return err
	}
	return im.Numbers(ctx, fn)
}
