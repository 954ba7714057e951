package squashfs

import "context"

// Home tells which home has given out the inode numbers of the image, as StoreOptions.Home; 0 if the image does not say. It is a claim: who
// made the image wrote it.
func (im *Image) Home() (uint64, error) {
	x, err := im.section()
	if err != nil || x == nil {
		return 0, err
	}
	return x.home, nil
}

// Numbers calls fn with the inode number of every inode, in the order of the image, the root's last.
func (im *Image) Numbers(ctx context.Context, fn func(ino uint64) error) error {
	for i := range im.sb.inodes {
		if i%4096 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		ino, err := im.ino(i + 1)
		if err != nil {
			return err
		}
		if err := fn(ino); err != nil {
			return err
		}
	}
	return nil
}
