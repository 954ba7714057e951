package layers

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"snapfs/chunkstore"
	"snapfs/squashfs"
)

// imageStore is a layer in a squashfs image.
type imageStore struct {
	im       *squashfs.Image
	closer   io.Closer
	ordered  orderer       // nil: not known
	manifest chunkstore.ID // 0: no stored image
	size     int64
	rootNum  uint64 // number of the root in the image, see number
	// attributeless reports whether no inode has attributes but the overlay's own. If in doubt some have.
	attributeless func() bool
}

// maxAttributeSets bounds how many sets of attributes are read to find out that none is of interest.
const maxAttributeSets = 1 << 14

// unpacked caches the metadata of all images of the process.
var unpacked = squashfs.NewCache(64 << 20)

// ImageReader reads an image, as a chunkstore.Reader does.
type ImageReader interface {
	io.ReaderAt
	io.Closer
	Size() int64
}

// orderer is an ImageReader that knows in which order the bytes of images are read fastest, as chunkstore.Reader does.
type orderer interface{ Order(off int64) uint64 }

// OpenImage opens an image as a lower; it closes r when it is closed. id is what the image has in the store that later
// layers are stored in, which find their previous versions by it; 0 is none.
func OpenImage(key string, r ImageReader, id chunkstore.ID) (*Lower, error) {
	s, err := openImageStore(r, r.Size())
	if err != nil {
		return nil, fmt.Errorf("open image of layer %s: %w", key, err)
	}
	s.manifest, s.closer = id, r
	s.ordered, _ = r.(orderer)
	return newImageLower(key, s), nil
}

func openImageStore(r io.ReaderAt, size int64) (*imageStore, error) {
	im, err := squashfs.Open(r, size, squashfs.Options{Cache: unpacked})
	if err != nil {
		return nil, err
	}
	root, err := im.Inode(im.Root())
	if err != nil {
		return nil, err
	}
	if !isDir(root.Attr().Mode) {
		return nil, fmt.Errorf("%w: the root is no directory", squashfs.ErrCorrupt)
	}
	return &imageStore{
		im: im, size: size, rootNum: root.Attr().Ino,
		attributeless: sync.OnceValue(func() bool { return im.XattrsOnly(maxAttributeSets, ownXattr) }),
	}, nil
}

// number is an inode's number. Every overlay's root is number 1, so what has that number in an image of another tool
// gets the one of its root, which nobody else has.
func (s *imageStore) number(ino uint64) uint64 {
	if ino == rootIno {
		return s.rootNum
	}
	return ino
}

func (s *imageStore) close() error { return s.closer.Close() }

// inode parses o's inode. A part that comes from the sealed directory which the image has replaced is found by its
// path in the layer first.
func (s *imageStore) inode(o *part) (*squashfs.Inode, error) {
	if ref := o.imageRef(); ref != 0 {
		return s.im.Inode(squashfs.Ref(ref - 1))
	}
	if o.parent == nil {
		return s.im.Inode(s.im.Root())
	}
	var chain []*part
	x := o
	for ; x.parent != nil && x.imageRef() == 0; x = x.parent {
		chain = append(chain, x)
	}
	n, err := s.inode(x)
	for i := len(chain) - 1; i >= 0 && err == nil; i-- {
		var e squashfs.DirEntry
		if e, err = n.Lookup(chain[i].name); err == nil {
			chain[i].ref.Store(uint64(e.Ref) + 1)
			n, err = s.im.Inode(e.Ref)
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s is missing in the image of layer %s", o.path(), o.layer.lower.key)
	}
	return n, err
}

func (s *imageStore) find(dir *part, name string) (found, error) {
	room := inodePairs.Get().(*inodePair)
	defer inodePairs.Put(room)
	d, n := &room[0], &room[1]
	var err error
	if ref := dir.imageRef(); ref != 0 {
		err = s.im.Load(d, squashfs.Ref(ref-1))
	} else {
		d, err = s.inode(dir)
	}
	if err != nil {
		return found{}, err
	}
	e, err := d.Lookup(name)
	if errors.Is(err, fs.ErrNotExist) {
		return found{}, unix.ENOENT
	}
	if err != nil {
		return found{}, err
	}
	if err := s.im.Load(n, e.Ref); err != nil {
		return found{}, err
	}
	return s.examine(n)
}

// inodePair is memory for a directory and what is found in it.
type inodePair [2]squashfs.Inode

var inodePairs = sync.Pool{New: func() any { return new(inodePair) }}

// examine gives an inode's attributes and what the overlay's own ones say.
func (s *imageStore) examine(n *squashfs.Inode) (found, error) {
	f := found{attr: s.attr(n), ref: uint64(n.Ref()) + 1}
	if isWhiteoutDevice(f.attr.Mode, f.attr.Rdev) {
		f.whiteout = true
		return f, nil
	}
	xattrs, err := n.XattrsOf(ownXattr)
	if err != nil {
		return found{}, err
	}
	f.bare = true
	for _, x := range xattrs {
		switch {
		case !ownXattr(x.Name):
			f.bare = false
		case x.Name != xattrIno:
			f.note(x.Name, x.Value)
		}
	}
	if f.redirect != "" {
		return f, checkRedirect(f.redirect)
	}
	return f, nil
}

// isMetacopy reports whether a file's data is in a layer below.
func (s *imageStore) isMetacopy(o *part) (bool, error) {
	n, err := s.inode(o)
	if err != nil {
		return false, err
	}
	f, err := s.examine(n)
	return f.metacopy, err
}

// attr turns an image's attributes into a host's. Images keep no access times.
func (s *imageStore) attr(n *squashfs.Inode) Attr {
	a := n.Attr()
	out := Attr{
		Ino: s.number(a.Ino), Size: uint64(a.Size), Mode: a.Mode, Nlink: a.Nlink, UID: a.UID, GID: a.GID, Rdev: a.Rdev, Blksize: 4096,
		Atime: a.Mtime, Mtime: a.Mtime, Ctime: a.Ctime, Btime: a.Btime,
	}
	if !isReg(a.Mode) {
		return out
	}
	out.Blocks = (out.Size + 511) / 512
	if a.Size > 4096 {
		var room [4]squashfs.Extent // enough for nearly all
		if extents, err := n.ExtentsIn(room[:0]); err == nil {
			out.Blocks = 0
			for _, e := range extents {
				out.Blocks += uint64(e.Len+511) / 512
			}
		}
	}
	return out
}

func (s *imageStore) stat(o *part) (Attr, error) {
	n, err := s.inode(o)
	if err != nil {
		return Attr{}, err
	}
	return s.attr(n), nil
}

func (s *imageStore) readlink(o *part) (string, error) {
	n, err := s.inode(o)
	if err != nil {
		return "", err
	}
	target, err := n.Readlink()
	if err == nil && (target == "" || strings.IndexByte(target, 0) >= 0) {
		err = fmt.Errorf("%w: symlink target %q", squashfs.ErrCorrupt, target)
	}
	return target, err
}

func (s *imageStore) xattrs(o *part) ([]squashfs.Xattr, error) { return s.xattrsOf(o, nil) }

// xattrsOf is xattrs, but those that want says no to may come without their values.
func (s *imageStore) xattrsOf(o *part, want func(name string) bool) ([]squashfs.Xattr, error) {
	n, err := s.inode(o)
	if err != nil {
		return nil, err
	}
	return n.XattrsOf(want)
}

// xattrSet tells what other inodes of the image with the same attributes have in common, 0 if that is not known.
func xattrSet(n *squashfs.Inode) (uint32, error) {
	set, ok, err := n.XattrSet()
	if !ok || err != nil {
		return 0, err
	}
	return set + 1, nil
}

func (s *imageStore) open(o *part) (content, error) {
	n, err := s.inode(o)
	if err != nil {
		return nil, err
	}
	return imageFile{n, s.manifest}, nil
}

func (s *imageStore) list(dir *part, fn func(rawEntry) error) error {
	d, err := s.inode(dir)
	if err != nil {
		return err
	}
	n := new(squashfs.Inode)
	for e, err := range d.ReadDir("") {
		if err != nil {
			return err
		}
		raw := rawEntry{name: e.Name, typ: e.Mode, id: uint64(e.Ref) + 1}
		if err := s.im.Load(n, e.Ref); err != nil {
			return err
		}
		raw.ino = s.number(n.Attr().Ino)
		if e.Mode == unix.S_IFCHR || e.Mode == unix.S_IFREG && n.Attr().Size == 0 {
			f, err := s.examine(n)
			if err != nil {
				return err
			}
			raw.whiteout, raw.typ = f.whiteout, f.attr.Mode&unix.S_IFMT
		}
		if err := fn(raw); err != nil {
			return err
		}
	}
	return nil
}

// imageFile is a regular file of an image.
type imageFile struct {
	*squashfs.Inode
	manifest chunkstore.ID // 0: no stored image
}

func (imageFile) Close() error { return nil }

// CopyTo implements squashfs.Copier: what lies in a stored image need not be read to be stored again.
func (f imageFile) CopyTo(to squashfs.Sink, off, n int64) (int64, bool, error) {
	k, ok := to.(*sink)
	if !ok || f.manifest == 0 {
		return n, false, nil
	}
	at, count, err := f.Place(off, n)
	if err != nil || at == 0 {
		return max(count, 1), false, err
	}
	return count, true, k.Copy(chunkstore.Range{Manifest: f.manifest, Off: at, Len: count})
}
