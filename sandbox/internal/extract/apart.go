package extract

import (
	"context"

	"snapfs/squashfs"
)

// sourceApart calls a source by goroutines of its own: the thread that asks may have less rights than the source needs.
type sourceApart struct{ squashfs.Source }

// orderedApart is a sourceApart that knows an order, which needs no rights.
type orderedApart struct {
	sourceApart
	orderer
}

func apart(src squashfs.Source) squashfs.Source {
	if o, ok := src.(orderer); ok {
		return orderedApart{sourceApart{src}, o}
	}
	return sourceApart{src}
}

// aside runs fn in another goroutine, which has the rights of the process, and waits for it.
func aside[T any](fn func() (T, error)) (result T, err error) {
	done := make(chan struct{})
	go func() { // it is waited for
		defer close(done)
		result, err = fn()
	}()
	<-done
	return result, err
}

func (s sourceApart) Root(ctx context.Context) (*squashfs.Entry, error) {
	return aside(func() (*squashfs.Entry, error) { return s.Source.Root(ctx) })
}

func (s sourceApart) Names(ctx context.Context, dir *squashfs.Entry) ([]string, error) {
	return aside(func() ([]string, error) { return s.Source.Names(ctx, dir) })
}

func (s sourceApart) Entry(ctx context.Context, dir *squashfs.Entry, name string) (*squashfs.Entry, error) {
	return aside(func() (*squashfs.Entry, error) {
		e, err := s.Source.Entry(ctx, dir, name)
		if e != nil && e.Shared.Read != nil {
			read := e.Shared.Read
			e.Shared.Read = func() ([]squashfs.Xattr, error) { return aside(read) }
		}
		return e, err
	})
}

func (s sourceApart) Open(ctx context.Context, file *squashfs.Entry) (squashfs.File, error) {
	return aside(func() (squashfs.File, error) {
		f, err := s.Source.Open(ctx, file)
		if err != nil {
			return nil, err
		}
		return fileApart{f}, nil
	})
}

// fileApart is a file of a sourceApart.
type fileApart struct{ squashfs.File }

func (f fileApart) Extents() ([]squashfs.Extent, error) { return aside(f.File.Extents) }

func (f fileApart) ReadAt(p []byte, off int64) (int, error) {
	return aside(func() (int, error) { return f.File.ReadAt(p, off) })
}
