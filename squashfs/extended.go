package squashfs

import "golang.org/x/sys/unix"

// extend adds to an inode what the extension section knows of it.
func (im *Image) extend(*Inode) {}

// ino is the inode number that callers see.
func (im *Image) ino(number uint32) uint64 { return uint64(number) }

// Extents lists where the file has data, from the extension section or else by whole sparse blocks.
func (n *Inode) Extents() ([]Extent, error) {
	if n.raw.basic() != typeFile {
		return nil, unix.EINVAL
	}
	return n.blockExtents()
}

// Xattrs lists all extended attributes, ACLs of the extension section included.
func (n *Inode) Xattrs() ([]Xattr, error) {
	if n.raw.xattr == noXattr {
		return nil, nil
	}
	return n.im.xattrSet(n.raw.xattr)
}
