package squashfs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"golang.org/x/sys/unix"
)

// This file joins images with their extension section. A section that is damaged or of another version leaves a plain
// squashfs: its data is left out, and Check says why.

// Complete fails with ErrCorrupt if the image has an extension section of ours that is cut short, has a damaged header,
// or claims more inodes than fit into it. It fails with ErrLimit if its tables would take too much memory. Reading
// ignores the former and continues without the section's data; callers that import an image must call Complete first.
func (im *Image) Complete() error {
	if _, err := im.claims(); err != nil {
		return err
	}
	base := int64(im.sb.bytesUsed+padding-1) / padding * padding
	head := make([]byte, len(extMagic))
	if _, err := im.r.ReadAt(head, base); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read extension header: %w", err)
	}
	if string(head) != extMagic {
		return nil // data of another program behind the image
	}
	x, err := openExtension(im.r, im.size, &im.sb)
	switch {
	case errors.Is(err, errExtVersion):
		return nil
	case err == nil && x == nil:
		return fmt.Errorf("%w: extension section of %d bytes", ErrCorrupt, im.size-base)
	}
	return err
}

// section returns the extension section, nil if there is none that is valid.
func (im *Image) section() (*extension, error) {
	x, err := im.ext.get(func() (**extension, error) {
		x, err := openExtension(im.r, im.size, &im.sb)
		return &x, unlessDamaged(err)
	})
	if err != nil {
		return nil, err
	}
	return *x, nil
}

// unlessDamaged ignores all errors except those of reading.
func unlessDamaged(err error) error {
	if errors.Is(err, ErrCorrupt) || errors.Is(err, errExtVersion) {
		return nil
	}
	return err
}

// extend adds the data of the extension section to an inode's attributes.
func (im *Image) extend(n *Inode) error {
	x, err := im.section()
	if err != nil || x == nil {
		return err
	}
	return unlessDamaged(x.attr(n.raw.number, &n.attr))
}

// ino is the inode number that callers see.
func (im *Image) ino(number uint32) (uint64, error) {
	x, err := im.section()
	if err != nil || x == nil {
		return uint64(number), err
	}
	v, err := x.value(extIno, uint64(number)-1)
	if err != nil {
		return uint64(number), unlessDamaged(err)
	}
	return uint64(v), nil
}

// extra is what the extension section has for few inodes.
func (n *Inode) extra() (extra, error) {
	x, err := n.im.section()
	if err != nil || x == nil {
		return extra{}, err
	}
	e, err := x.extra(n.raw.number)
	if err != nil {
		return extra{}, unlessDamaged(err)
	}
	return e, nil
}

// Extents lists where the file has data, from the extension section or else by whole sparse blocks. It returns
// unix.EINVAL if n is not a regular file.
func (n *Inode) Extents() ([]Extent, error) { return n.ExtentsIn(nil) }

// ExtentsIn is Extents that uses list, which is empty, if it has enough room and the list was not built before.
func (n *Inode) ExtentsIn(list []Extent) ([]Extent, error) {
	if n.raw.basic() != typeFile {
		return nil, unix.EINVAL
	}
	e, err := n.extra()
	if err != nil {
		return nil, err
	}
	return n.extents(context.Background(), &e, list)
}

// extents is ExtentsIn for callers that have read the inode's extra.
func (n *Inode) extents(ctx context.Context, e *extra, list []Extent) ([]Extent, error) {
	if last := len(e.extents) - 1; e.hasExtents &&
		(last < 0 || e.extents[last].Off+e.extents[last].Len <= n.attr.Size) {
		return e.extents, nil
	}
	return n.blockExtents(ctx, list)
}

// Xattrs lists all extended attributes, ACLs of the extension section included.
func (n *Inode) Xattrs() ([]Xattr, error) { return n.XattrsOf(nil) }

// XattrsOf is Xattrs, except that attributes for which want returns false may come without their values, which are then
// not read.
func (n *Inode) XattrsOf(want func(name string) bool) ([]Xattr, error) {
	e, err := n.extra()
	if err != nil {
		return nil, err
	}
	return n.xattrs(&e, want)
}

// xattrs is XattrsOf for callers that have read the inode's extra.
func (n *Inode) xattrs(e *extra, want func(name string) bool) ([]Xattr, error) {
	var list []Xattr
	if n.raw.xattr != noXattr {
		var err error
		if list, err = n.im.xattrSet(n.raw.xattr, want); err != nil {
			return nil, err
		}
	}
	if len(e.xattrs) == 0 {
		return slices.Clip(list), nil
	}
	return slices.Concat(list, e.xattrs), nil
}

// XattrSet identifies the set of attributes of the inode without reading it: inodes of an image with the same set have
// the same attributes. ok is false for an inode without attributes, and for one that has further ones in the extension
// section.
func (n *Inode) XattrSet() (set uint32, ok bool, err error) {
	if n.raw.xattr == noXattr {
		return 0, false, nil
	}
	e, err := n.extra()
	return n.raw.xattr, err == nil && len(e.xattrs) == 0, err
}
