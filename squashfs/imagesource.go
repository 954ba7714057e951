package squashfs

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// ImageSource presents an image as a Source, to re-encode it. It is for one writer, and refuses with an error of class ErrCorrupt
// what no tree can be: see [importer]. An image that would take more than ImportMemory is an error of class ErrLimit.
func ImageSource(im *Image) Source { return &imageSource{im: im, guard: importer{im: im}} }

type imageSource struct {
	im    *Image
	guard importer
}

// imageNode is the Handle of an imageSource's entries.
type imageNode struct {
	*Inode
	names []string // of a directory that was listed; the writer's too
	list  []imageName
	cost  int64 // of the two
}

// imageName is what a listing says of a name.
type imageName struct {
	ref    Ref
	number uint32
	typ    uint16
}

func (s *imageSource) Root(context.Context) (*Entry, error) {
	n, err := s.im.Inode(s.im.Root())
	if err != nil {
		return nil, err
	}
	if n.raw.basic() != typeDir {
		return nil, corrupt(n.place(), "root is no directory")
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
	e := &Entry{Name: name, Attr: n.Attr(), Inode: InodeID{Layer: 1, Inode: uint64(n.ref)}, Handle: &imageNode{Inode: n}}
	var err error
	if e.Xattrs, err = n.Xattrs(); err != nil {
		return nil, err
	}
	if err := s.guard.attributes(n, e.Xattrs); err != nil {
		return nil, err
	}
	if e.Attr.Mode&unix.S_IFMT == unix.S_IFLNK {
		if e.Target, err = n.Readlink(); err != nil {
			return nil, err
		}
	}
	return e, nil
}

func (s *imageSource) Open(_ context.Context, file *Entry) (File, error) {
	n, ok := file.Handle.(*imageNode)
	if !ok {
		return nil, errForeign
	}
	return imageFile{n.Inode, &s.guard}, nil
}

type imageFile struct {
	*Inode
	guard *importer
}

func (imageFile) Close() error { return nil }

func (f imageFile) Extents() ([]Extent, error) {
	list, err := f.Inode.Extents()
	if err != nil {
		return nil, err
	}
	return list, f.guard.data(f.Inode, list)
}
