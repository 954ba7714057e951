package squashfs

import (
	"context"
	"iter"
)

// Home returns the home that assigned the inode numbers of the image, as in StoreOptions.Home; 0 if the image does not
// say. It is a claim of the image's writer, which need not be true.
func (im *Image) Home() (uint64, error) {
	x, err := im.section()
	if err != nil || x == nil {
		return 0, err
	}
	return x.home, nil
}

// Numbers yields the inode number of every inode, in the order of the image, the root's last. Nothing follows an error.
func (im *Image) Numbers(ctx context.Context) iter.Seq2[uint64, error] {
	return func(yield func(uint64, error) bool) {
		for i := range im.sb.inodes {
			if i%4096 == 0 && ctx.Err() != nil {
				yield(0, ctx.Err())
				return
			}
			ino, err := im.ino(i + 1)
			if !yield(ino, err) || err != nil {
				return
			}
		}
	}
}
