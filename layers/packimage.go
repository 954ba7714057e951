package layers

import (
	"context"

	"golang.org/x/sys/unix"

	"snapfs/chunkstore"
	"snapfs/squashfs"
)

// PackImage stores the tree of an image file, whoever made it, as a base image. What would mean something to an overlay
// is escaped, as in PackTree: the file is a tree of its own, not a layer.
func PackImage(
	ctx context.Context, s *chunkstore.Store, im *squashfs.Image, opts PackOptions,
	fn func(tx *chunkstore.Tx, m chunkstore.Manifest) error,
) (chunkstore.Manifest, error) {
	return store(ctx, s, &foreign{Source: squashfs.ImageSource(im)}, &sink{}, opts, false, fn)
}

// foreign presents another tool's image as the source of a base image.
type foreign struct {
	squashfs.Source
	rootNum uint64 // number of the root in the image; set by Root
}

func (f *foreign) Root(ctx context.Context) (*squashfs.Entry, error) {
	e, err := f.Source.Root(ctx)
	if err != nil {
		return nil, err
	}
	f.rootNum, e.Attr.Ino = e.Attr.Ino, rootIno
	escape(e)
	return e, nil
}

func (f *foreign) Entry(ctx context.Context, dir *squashfs.Entry, name string) (*squashfs.Entry, error) {
	e, err := f.Source.Entry(ctx, dir, name)
	if err != nil || e == nil {
		return nil, err
	}
	if e.Attr.Ino == rootIno {
		e.Attr.Ino = f.rootNum
	}
	escape(e)
	return e, nil
}

// escape keeps an entry of a plain tree from being taken for something of an overlay: its attributes trusted.overlay.*
// get another name, and a character device 0/0 becomes the file that stands for one.
func escape(e *squashfs.Entry) {
	xattrs := make([]squashfs.Xattr, 0, len(e.Xattrs)+1)
	for _, x := range e.Xattrs {
		xattrs = append(xattrs, squashfs.Xattr{Name: escapeXattr(x.Name), Value: x.Value})
	}
	if isWhiteoutDevice(e.Attr.Mode, e.Attr.Rdev) {
		e.Attr.Mode = e.Attr.Mode&^unix.S_IFMT | unix.S_IFREG
		e.Attr.Size = 0
		xattrs = append(xattrs, squashfs.Xattr{Name: xattrNode, Value: []byte("c")})
	}
	e.Xattrs = xattrs
}
