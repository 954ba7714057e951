// Package part presents a part of a tree as a tree of its own: what a treefilter.Filter takes of a squashfs.Source.
//
// A name that is left out has no entry, which every user of a source understands: it might just have been removed. It
// stays in the listing of its directory. A directory that is taken stays, also if nothing in it does.
package part

import (
	"context"
	"errors"
	"io"

	"golang.org/x/sys/unix"

	"snapfs/internal/treefilter"
	"snapfs/squashfs"
)

// Of is the part of src that f takes; all of it if f is nil. What src allows of concurrency, the part allows, too.
func Of(src squashfs.Source, f *treefilter.Filter) squashfs.Source {
	if f == nil {
		return src
	}
	s := &source{src: src, filter: f}
	if o, ok := src.(orderer); ok {
		return &ordered{s, o}
	}
	return s
}

// source is a part of another source. The handles of its directories are dirs; files have those of the other.
type source struct {
	src    squashfs.Source
	filter *treefilter.Filter
}

// dir is the handle of a directory.
type dir struct {
	handle any // of the other source
	taken  *treefilter.Dir
}

// orderer is a source that knows in which order its files are read fastest.
type orderer interface {
	Order(file *squashfs.Entry) uint64
}

// ordered is a part of such a source.
type ordered struct {
	*source
	orderer
}

// inner is a directory as the other source knows it.
func inner(e *squashfs.Entry) *squashfs.Entry {
	own := *e
	own.Handle = e.Handle.(*dir).handle
	return &own
}

// Root implements squashfs.Source.
func (s *source) Root(ctx context.Context) (*squashfs.Entry, error) {
	e, err := s.src.Root(ctx)
	if err != nil {
		return nil, err
	}
	return s.dir(ctx, e, s.filter.Root)
}

// dir makes an entry of this source of one of the other, e.
func (s *source) dir(
	ctx context.Context, e *squashfs.Entry, open func(read func() ([]byte, error)) (*treefilter.Dir, error),
) (*squashfs.Entry, error) {
	taken, err := open(func() ([]byte, error) { return s.ignoreFile(ctx, e) })
	if err != nil {
		return nil, err
	}
	own := *e
	own.Handle = &dir{e.Handle, taken}
	return &own, nil
}

// ignoreFile reads the .gitignore file of a directory of the other source; nil if it has none.
func (s *source) ignoreFile(ctx context.Context, e *squashfs.Entry) (text []byte, err error) {
	file, err := s.src.Entry(ctx, e, treefilter.IgnoreFile)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if file == nil || err != nil || file.Attr.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, err
	}
	if file.Attr.Size > treefilter.MaxIgnoreFile {
		return nil, treefilter.ErrTooMany
	}
	f, err := s.src.Open(ctx, file)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	text = make([]byte, file.Attr.Size)
	n, err := f.ReadAt(text, 0)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return text[:n], err
}

// Names implements squashfs.Source.
func (s *source) Names(ctx context.Context, e *squashfs.Entry) ([]string, error) {
	return s.src.Names(ctx, inner(e))
}

// Entry implements squashfs.Source.
func (s *source) Entry(ctx context.Context, up *squashfs.Entry, name string) (*squashfs.Entry, error) {
	e, err := s.src.Entry(ctx, inner(up), name)
	if e == nil || err != nil {
		return nil, err
	}
	isDir := e.Attr.Mode&unix.S_IFMT == unix.S_IFDIR
	taken := up.Handle.(*dir).taken
	if !taken.Keep(name, isDir) {
		return nil, nil
	}
	if !isDir {
		return e, nil
	}
	return s.dir(ctx, e, func(read func() ([]byte, error)) (*treefilter.Dir, error) { return taken.Below(name, read) })
}

// Open implements squashfs.Source.
func (s *source) Open(ctx context.Context, file *squashfs.Entry) (squashfs.File, error) {
	return s.src.Open(ctx, file)
}

// Size adds up what is in the regular files of a tree. A file with several names counts once.
func Size(ctx context.Context, src squashfs.Source) (bytes int64, err error) {
	root, err := src.Root(ctx)
	if err != nil {
		return 0, err
	}
	linked := map[squashfs.InodeID]bool{}
	for todo := []*squashfs.Entry{root}; len(todo) > 0; {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		names, err := src.Names(ctx, at)
		if err != nil {
			return 0, err
		}
		for _, name := range names {
			if err := ctx.Err(); err != nil {
				return 0, err
			}
			e, err := src.Entry(ctx, at, name)
			if err != nil {
				return 0, err
			}
			if e == nil {
				continue
			}
			switch e.Attr.Mode & unix.S_IFMT {
			case unix.S_IFDIR:
				todo = append(todo, e)
			case unix.S_IFREG:
				if e.Attr.Nlink > 1 {
					if linked[e.Inode] {
						continue
					}
					linked[e.Inode] = true
				}
				bytes += e.Attr.Size
			}
		}
	}
	return bytes, nil
}
