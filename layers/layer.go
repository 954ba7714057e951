package layers

import (
	"io"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"snapfs/squashfs"
)

// layer is one level of an overlay's stack.
type layer struct {
	lower *Lower // guarded by Overlay.tree; Replace changes it
	share *share // of the overlay; nil: see of. Immutable.
	// opened is the directory that was opened last of a layer in a sealed directory.
	opened atomic.Pointer[part]
}

// part is what one layer has of a node. Fields but ref change only while the layer is the upper, under Overlay.tree.
type part struct {
	layer  *layer
	parent *part  // nil: the layer's root
	name   string // in parent
	ino    uint64 // st_ino as the layer reports it: what callers see, and no identity
	host   uint64 // st_ino that the host has of it, in a directory layer; 0: not known
	// ref is the inode's reference in an image plus one, or in a directory layer notes of its inode info. Neither means
	// not yet resolved, as after a sealed directory was replaced by its image.
	ref atomic.Uint64
}

// rootIno is the inode number of every root directory.
const rootIno = 1

// found is what a backend knows of a name after one look-up.
type found struct {
	attr     Attr
	whiteout bool
	opaque   bool   // directories: nothing below shows through
	redirect string // directories and metacopies: where the layers below have it
	metacopy bool   // the data, or some of it, is in a layer below
	partial  bool   // a metacopy that has some blocks
	bare     bool   // no extended attributes but the overlay's own
	ref      uint64 // for part.ref
	host     uint64 // for part.host
}

// rawEntry is one name of one layer's directory.
type rawEntry struct {
	name     string
	typ      uint32 // S_IFMT bits
	ino      uint64 // st_ino as the layer reports it
	id       uint64 // equal for the names of one inode of the layer
	whiteout bool
}

// content is the data of a regular file in one layer.
type content interface {
	io.ReaderAt
	io.Closer
	Extents() ([]squashfs.Extent, error)
}

// backend is one layer's storage. It is called with Overlay.tree held at least for reading.
type backend interface {
	// find looks one name up; unix.ENOENT.
	find(dir *part, name string) (found, error)
	stat(o *part) (Attr, error)
	list(dir *part, fn func(rawEntry) error) error
	readlink(o *part) (string, error)
	// xattrs gives the raw attributes, those of the overlay included.
	xattrs(o *part) ([]squashfs.Xattr, error)
	open(o *part) (content, error)
	close() error
}

// imageRef is ref if that is a reference to an image, else 0.
func (o *part) imageRef() uint64 {
	if ref := o.ref.Load(); ref&noteDir == 0 {
		return ref
	}
	return 0
}

func (o *part) backend() backend { return o.layer.lower.be }

// dirStore is the directory that o lies in; nil in an image.
func (o *part) dirStore() *dirStore { return o.layer.lower.dir }

// imageStore is the image that o lies in; nil in a directory.
func (o *part) imageStore() *imageStore { return o.layer.lower.image }

// child makes the part of a name that find has found in o.
func (o *part) child(name string, f found) *part {
	c := &part{layer: o.layer, parent: o, name: name, ino: f.attr.Ino, host: f.host}
	c.ref.Store(f.ref)
	return c
}

// path is the slash-separated path of o in its layer, from its root, which is "/".
func (o *part) path() string {
	if o.parent == nil {
		return "/"
	}
	n := 0
	for x := o; x.parent != nil; x = x.parent {
		n += 1 + len(x.name)
	}
	buf := make([]byte, n)
	for x := o; x.parent != nil; x = x.parent {
		n -= len(x.name)
		copy(buf[n:], x.name)
		n--
		buf[n] = '/'
	}
	return string(buf)
}

func isDir(mode uint32) bool { return mode&unix.S_IFMT == unix.S_IFDIR }
func isReg(mode uint32) bool { return mode&unix.S_IFMT == unix.S_IFREG }
func isLnk(mode uint32) bool { return mode&unix.S_IFMT == unix.S_IFLNK }
