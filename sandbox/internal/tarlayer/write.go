package tarlayer

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/sandbox/api"
	"snapfs/squashfs"
)

// Layer is a source that is one layer of several: with whiteouts, and directories that hide what is below.
type Layer interface {
	squashfs.Source
	IsWhiteout(e *squashfs.Entry) bool
	IsOpaque(dir *squashfs.Entry) bool
}

// WriteOptions are for Write.
type WriteOptions struct {
	// Image says that the tar file becomes a layer of an image: names that begin with .wh. cannot be in it, ErrInvalid.
	Image    bool
	Progress func(bytes int64) // is told of each entry. nil = nobody
}

// Lost is what a tar file has no room for.
type Lost struct {
	Sockets int64
	Xattrs  int64 // by their names
}

// Write writes a tree, or a Layer, as a tar file, with names in byte order. Equal trees give equal bytes.
func Write(ctx context.Context, to io.Writer, src squashfs.Source, opts WriteOptions) (Lost, error) {
	w := &writer{
		ctx: ctx, src: src, opts: opts, to: tar.NewWriter(to), names: map[squashfs.InodeID]string{}, buf: make([]byte, 256<<10),
	}
	w.layer, _ = src.(Layer)
	root, err := src.Root(ctx)
	if err != nil {
		return w.lost, err
	}
	if err := w.dir("", root); err != nil {
		return w.lost, err
	}
	return w.lost, w.to.Close()
}

// writer is one call of Write.
type writer struct {
	ctx   context.Context
	src   squashfs.Source
	layer Layer // src, if it is one; else nil
	opts  WriteOptions
	to    *tar.Writer
	names map[squashfs.InodeID]string // the first name of files that have several
	lost  Lost
	buf   []byte
}

// dir writes a directory with all that is in it.
func (w *writer) dir(path string, dir *squashfs.Entry) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	h, err := w.header(path+"/", dir)
	if err != nil {
		return err
	}
	if path == "" {
		h.Name = "./"
	}
	h.Typeflag = tar.TypeDir
	if err := w.to.WriteHeader(h); err != nil {
		return writeError(path, err)
	}
	if w.layer != nil && w.layer.IsOpaque(dir) {
		if err := w.marker(join(path, opaqueName)); err != nil {
			return err
		}
	}
	names, err := w.src.Names(w.ctx, dir)
	if err != nil {
		return err
	}
	slices.Sort(names)
	for _, name := range names {
		e, err := w.src.Entry(w.ctx, dir, name)
		if err != nil {
			return err
		}
		if e == nil {
			continue
		}
		if err := w.entry(path, name, e); err != nil {
			return err
		}
	}
	return nil
}

// entry writes what has a name in a directory.
func (w *writer) entry(dir, name string, e *squashfs.Entry) error {
	path := join(dir, name)
	if w.opts.Image && strings.HasPrefix(name, whiteoutPrefix) {
		return fmt.Errorf("%w: %s: in images, names that begin with %s mean that something is gone: rename it, or leave it out",
			api.ErrInvalid, api.Quoted(path), whiteoutPrefix)
	}
	if w.layer != nil && w.layer.IsWhiteout(e) {
		return w.marker(join(dir, whiteoutPrefix+name))
	}
	if w.opts.Progress != nil {
		w.opts.Progress(e.Attr.Size)
	}
	if e.Attr.Mode&unix.S_IFMT == unix.S_IFDIR {
		return w.dir(path, e)
	}
	h, err := w.header(path, e)
	if err != nil {
		return err
	}
	if e.Attr.Nlink > 1 {
		id := e.Inode
		if id == (squashfs.InodeID{}) {
			id.Inode = e.Attr.Ino
		}
		if first, ok := w.names[id]; ok {
			h.Typeflag, h.Linkname, h.PAXRecords = tar.TypeLink, first, nil
			return writeError(path, w.to.WriteHeader(h))
		}
		w.names[id] = path
	}
	switch e.Attr.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		h.Typeflag, h.Size = tar.TypeReg, e.Attr.Size
		return w.file(path, h, e)
	case unix.S_IFLNK:
		h.Typeflag, h.Linkname = tar.TypeSymlink, e.Target
	case unix.S_IFIFO:
		h.Typeflag = tar.TypeFifo
	case unix.S_IFCHR, unix.S_IFBLK:
		h.Typeflag = tar.TypeChar
		if e.Attr.Mode&unix.S_IFMT == unix.S_IFBLK {
			h.Typeflag = tar.TypeBlock
		}
		h.Devmajor, h.Devminor = int64(unix.Major(e.Attr.Rdev)), int64(unix.Minor(e.Attr.Rdev))
	default:
		w.lost.Sockets++
		return nil
	}
	return writeError(path, w.to.WriteHeader(h))
}

// header is what all entries have.
func (w *writer) header(path string, e *squashfs.Entry) (*tar.Header, error) {
	h := &tar.Header{
		Name: path, Mode: int64(e.Attr.Mode & 0o7777), Uid: int(e.Attr.UID), Gid: int(e.Attr.GID),
		ModTime: time.Unix(e.Attr.Mtime.Sec, int64(e.Attr.Mtime.Nsec)), Format: tar.FormatPAX,
	}
	xattrs, err := e.Attributes()
	if err != nil {
		return nil, err
	}
	for _, x := range xattrs {
		if strings.ContainsAny(x.Name, "=\x00") {
			w.lost.Xattrs++
			continue
		}
		if h.PAXRecords == nil {
			h.PAXRecords = map[string]string{}
		}
		h.PAXRecords[xattrPrefix+x.Name] = string(x.Value)
	}
	return h, nil
}

// marker writes an empty file that means something.
func (w *writer) marker(path string) error {
	return writeError(path, w.to.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: path, Mode: 0o600, ModTime: time.Unix(0, 0), Format: tar.FormatPAX,
	}))
}

// file writes a regular file.
func (w *writer) file(path string, h *tar.Header, e *squashfs.Entry) (err error) {
	f, err := w.src.Open(w.ctx, e)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := w.to.WriteHeader(h); err != nil {
		return writeError(path, err)
	}
	for off := int64(0); off < h.Size; {
		if err := w.ctx.Err(); err != nil {
			return err
		}
		n, err := f.ReadAt(w.buf[:min(int64(len(w.buf)), h.Size-off)], off)
		if n > 0 {
			if _, err := w.to.Write(w.buf[:n]); err != nil {
				return err
			}
			off += int64(n)
		}
		if n == 0 && (err == nil || errors.Is(err, io.EOF)) {
			return fmt.Errorf("%w: %s ends after %d bytes of %d", api.ErrCorrupt, api.Quoted(path), off, h.Size)
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
	}
	return nil
}

// writeError says of an error where it happened, and marks what no tar file can hold.
func writeError(path string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, tar.ErrHeader) {
		err = fmt.Errorf("%w: %w", api.ErrInvalid, err)
	}
	return fmt.Errorf("%s: %w", api.Quoted(path), err)
}
