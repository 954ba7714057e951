package layers

import (
	"context"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
	"golang.org/x/sys/unix"

	"snapfs/chunkstore"
	"snapfs/squashfs"
)

// StoreImage stores the tree of an image file, of any origin, as a base image. What would mean something to an overlay
// is escaped, as in StoreTree: the file is a tree of its own, not a layer. Inodes get numbers of their own, unless the
// image was exported by the same home.
func StoreImage(
	ctx context.Context, s *chunkstore.Store, im *squashfs.Image, opts StoreOptions,
	fn func(tx *chunkstore.Tx, m chunkstore.Manifest) error,
) (chunkstore.Manifest, error) {
	keep, err := ours(ctx, im, opts)
	if err != nil {
		return chunkstore.Manifest{}, err
	}
	opts.renumber = !keep
	return storeSource(ctx, s, foreign{squashfs.ImageSource(im)}, &sink{}, opts, false, fn)
}

// ours reports whether the inode numbers of an image are those that this home has given to its inodes. That the image
// says so is not enough.
func ours(ctx context.Context, im *squashfs.Image, opts StoreOptions) (bool, error) {
	home, err := im.Home()
	if err != nil || home == 0 || home != opts.Home || opts.Ours == nil {
		return false, err
	}
	seen := roaring64.New()
	known := map[uint32]bool{0: true} // what was imported has numbers below 2^32, and nothing else
	last := uint64(0)
	for ino, err := range im.Numbers(ctx) {
		if err != nil {
			return false, err
		}
		last = ino
		if ino == 0 || ino >= spareIDs || !seen.CheckedAdd(ino) {
			return false, nil
		}
		space := uint32(ino >> 32)
		if !known[space] && !opts.Ours(space) {
			return false, nil
		}
		known[space] = true
	}
	return last == rootIno, nil
}

// foreign presents another tool's image as the source of a base image.
type foreign struct{ squashfs.Source }

func (f foreign) Root(ctx context.Context) (*squashfs.Entry, error) {
	e, err := f.Source.Root(ctx)
	if err != nil {
		return nil, err
	}
	return e, escape(e)
}

func (f foreign) Entry(ctx context.Context, dir *squashfs.Entry, name string) (*squashfs.Entry, error) {
	e, err := f.Source.Entry(ctx, dir, name)
	if err != nil || e == nil {
		return nil, err
	}
	return e, escape(e)
}

// escape keeps an entry of a plain tree from being taken for something of an overlay: its attributes trusted.overlay.*
// get another name, and a character device 0/0 becomes the file that stands for one.
func escape(e *squashfs.Entry) error {
	device := isWhiteoutDevice(e.Attr.Mode, e.Attr.Rdev)
	if read := e.Shared.Read; e.Shared.ID != 0 && !device {
		e.Shared.Read = func() ([]squashfs.Xattr, error) {
			list, err := read()
			return escaped(list), err
		}
		return nil
	}
	list, err := e.Attributes()
	if err != nil {
		return err
	}
	e.Xattrs, e.Shared = escaped(list), squashfs.XattrSet{}
	if device {
		e.Attr.Mode = e.Attr.Mode&^unix.S_IFMT | unix.S_IFREG
		e.Attr.Size = 0
		e.Xattrs = append(e.Xattrs, squashfs.Xattr{Name: xattrNode, Value: []byte("c")})
	}
	return nil
}

// escaped gives attributes the names that they have in a layer.
func escaped(list []squashfs.Xattr) []squashfs.Xattr {
	out := make([]squashfs.Xattr, 0, len(list)+1)
	for _, x := range list {
		out = append(out, squashfs.Xattr{Name: escapeXattr(x.Name), Value: x.Value})
	}
	return out
}
