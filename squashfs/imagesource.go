package squashfs

import (
	"context"

	"golang.org/x/sys/unix"
)

// ImageSource presents an image as a Source, to re-encode it. Entry.Handle is the *Inode.
func ImageSource(im *Image) Source { return imageSource{im} }

type imageSource struct{ im *Image }

func (s imageSource) Root(context.Context) (*Entry, error) { return s.entry("", s.im.Root()) }

func (s imageSource) ReadDir(ctx context.Context, dir *Entry) ([]*Entry, error) {
	n, ok := dir.Handle.(*Inode)
	if !ok {
		return nil, errForeign
	}
	var entries []*Entry
	for e, err := range n.ReadDir("") {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, err
		}
		entry, err := s.entry(e.Name, e.Ref)
		if err != nil {
			return nil, err
		}
		entries = append(entries, entry)
	}
	return entries, nil
}

func (s imageSource) entry(name string, ref Ref) (*Entry, error) {
	n, err := s.im.Inode(ref)
	if err != nil {
		return nil, err
	}
	e := &Entry{Name: name, Attr: n.Attr(), Inode: InodeID{Layer: 1, Inode: uint64(ref)}, Handle: n}
	if e.Xattrs, err = n.Xattrs(); err != nil {
		return nil, err
	}
	if e.Attr.Mode&unix.S_IFMT == unix.S_IFLNK {
		if e.Target, err = n.Readlink(); err != nil {
			return nil, err
		}
	}
	return e, nil
}

func (s imageSource) Open(_ context.Context, file *Entry) (File, error) {
	n, ok := file.Handle.(*Inode)
	if !ok {
		return nil, errForeign
	}
	return imageFile{n}, nil
}

type imageFile struct{ *Inode }

func (imageFile) Close() error { return nil }
