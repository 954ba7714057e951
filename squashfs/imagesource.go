package squashfs

import (
	"context"
	"errors"
	"fmt"
)

// ImageSource presents an image as a Source, to import or re-encode it. It is for one writer. It refuses what cannot be
// a tree with an error of class ErrCorrupt: see [importer]. An image that would take more than ImportMemory is an error
// of class ErrLimit.
func ImageSource(im *Image) Source { return &imageSource{im: im, guard: importer{im: im}} }

type imageSource struct {
	im    *Image
	guard importer
}

// imageNode is the Handle of an imageSource's entries.
type imageNode struct {
	*Inode
	extra *extra   // of a file
	names []string // of a directory that was listed; the writer's too
	list  []imageName
	cost  int64 // of the two
}

// imageName is what a listing has about a name.
type imageName struct {
	ref    Ref
	number uint32
	typ    uint16
}

func (s *imageSource) Root(context.Context) (*Entry, error) {
	if err := s.guard.begin(); err != nil {
		return nil, err
	}
	n, err := s.im.Inode(s.im.Root())
	if err != nil {
		return nil, err
	}
	if n.raw.basic() != typeDir {
		return nil, corrupt(n.location(), "root is no directory")
	}
	return s.entry("", n)
}

func (s *imageSource) Names(ctx context.Context, dir *Entry) ([]string, error) {
	n, ok := dir.Handle.(*imageNode)
	if !ok {
		return nil, errForeign
	}
	if err := s.guard.list(n); err != nil {
		return nil, err
	}
	n.names, n.list = nil, nil
	var failed error
	err := n.Inode.list("", func(e listed) bool {
		if failed = errors.Join(ctx.Err(), s.guard.name(n, e)); failed != nil {
			return false
		}
		n.names = append(n.names, string(e.name))
		n.list = append(n.list, imageName{e.ref, e.number, e.typ})
		return true
	})
	return n.names, errors.Join(err, failed)
}

func (s *imageSource) Entry(_ context.Context, dir *Entry, name string) (*Entry, error) {
	d, ok := dir.Handle.(*imageNode)
	if !ok {
		return nil, errForeign
	}
	i, ok := d.find(name)
	if !ok {
		return nil, fmt.Errorf("%q was not listed", name)
	}
	n, err := s.im.Inode(d.list[i].ref)
	if err != nil {
		return nil, err
	}
	if err := s.guard.entry(d.Inode, n, d.list[i]); err != nil {
		return nil, err
	}
	return s.entry(name, n)
}

func (s *imageSource) entry(name string, n *Inode) (*Entry, error) {
	x, err := s.guard.extra(n)
	if err != nil {
		return nil, err
	}
	h := &imageNode{Inode: n}
	e := &Entry{Name: name, Attr: n.Attr(), Inode: InodeID{Layer: 1, Inode: uint64(n.ref)}, Handle: h}
	switch {
	case len(x.xattrs) > 0:
		e.Xattrs, err = s.guard.read(n, x)
	case n.raw.xattr != noXattr:
		e.Shared = XattrSet{
			ID:   uint64(n.raw.xattr) + 1,
			Read: func() ([]Xattr, error) { return s.guard.read(n, &extra{}) },
		}
	}
	if err != nil {
		return nil, err
	}
	switch n.raw.basic() {
	case typeFile:
		h.extra = x
	case typeSymlink:
		e.Target, err = n.Readlink()
	}
	return e, err
}

func (s *imageSource) Open(ctx context.Context, file *Entry) (File, error) {
	n, ok := file.Handle.(*imageNode)
	if !ok || n.extra == nil {
		return nil, errForeign
	}
	return imageFile{n, ctx, &s.guard}, nil
}

// imageFile is open for the duration of one call.
type imageFile struct {
	*imageNode
	ctx   context.Context //nolint:containedctx // of the call that opened it
	guard *importer
}

func (imageFile) Close() error { return nil }

func (f imageFile) Extents() ([]Extent, error) {
	list, err := f.extents(f.ctx, f.extra, nil)
	if err != nil {
		return nil, err
	}
	return list, f.guard.data(f.Inode, list)
}

// ContentsID implements Sharer.
func (f imageFile) ContentsID(ctx context.Context) (ContentsID, error) {
	return f.contentsID(ctx, f.extra)
}
