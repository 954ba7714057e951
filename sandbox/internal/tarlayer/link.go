package tarlayer

import (
	"archive/tar"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"snapfs/internal/sparse"
	"snapfs/layers"
	"snapfs/sandbox/api"
)

// link gives a file of the layer, or of those below, another name.
func (u *unpacker) link(d *dir, base string, h *tar.Header) error {
	target, err := inside(h.Linkname)
	if err != nil {
		return err
	}
	if target == "" {
		return fmt.Errorf("%w: a hard link to the root", api.ErrInvalid)
	}
	in, name := split(target)
	t, err := timesOf(h)
	if err != nil {
		return err
	}
	from, err := u.directory(in, t, 0)
	if err != nil {
		return err
	}
	if from.path == d.path && name == base {
		return nil // it is what it is
	}
	file, err := u.lookup(from.node, name)
	if errors.Is(err, unix.ENOENT) {
		file, err = u.copyUp(from, name)
	}
	if err != nil {
		return err
	}
	defer u.o.Forget(file.Node, 1)
	if file.Attr.Mode&unix.S_IFMT == unix.S_IFDIR {
		return fmt.Errorf("%w: a hard link to the directory %s", api.ErrInvalid, api.Quoted(target))
	}
	// d may not be known any more, after so many others.
	if d, err = u.directory(d.path, t, 0); err != nil {
		return err
	}
	if e, err := u.lookup(d.node, base); err == nil {
		u.o.Forget(e.Node, 1)
		if e.Node == file.Node {
			return nil
		}
		if err := u.remove(d, base, e.Attr.Mode&unix.S_IFMT == unix.S_IFDIR); err != nil {
			return err
		}
	} else if !errors.Is(err, unix.ENOENT) {
		return err
	}
	if err := u.touch(d); err != nil {
		return err
	}
	e, err := u.o.Link(file.Node, d.node, base)
	if errors.Is(err, unix.EMLINK) {
		return fmt.Errorf("%w: %s has more names than the file system of the home has room for", api.ErrInvalid, api.Quoted(target))
	}
	if err != nil {
		return hostError(err)
	}
	u.o.Forget(e.Node, 1)
	return nil
}

// copyUp copies a file of the layers below, under its own name.
func (u *unpacker) copyUp(in *dir, name string) (layers.Entry, error) {
	at := join(in.path, name)
	f, err := u.below(at)
	if err != nil {
		return layers.Entry{}, err
	}
	if f == nil {
		return layers.Entry{}, fmt.Errorf("%w: a hard link to %s, which is not there", api.ErrInvalid, api.Quoted(at))
	}
	typ := f.Mode & unix.S_IFMT
	if typ == unix.S_IFDIR {
		return layers.Entry{}, fmt.Errorf("%w: a hard link to the directory %s", api.ErrInvalid, api.Quoted(at))
	}
	target := ""
	if typ == unix.S_IFLNK {
		if target, err = f.Target(); err != nil {
			return layers.Entry{}, err
		}
	}
	xattrs, err := f.Xattrs()
	if err != nil {
		return layers.Entry{}, err
	}
	if err := u.touch(in); err != nil {
		return layers.Entry{}, err
	}
	e, err := u.make(in.node, name, typ, f.Rdev, target)
	if err != nil {
		return layers.Entry{}, err
	}
	if typ == unix.S_IFREG {
		if err = u.take(int64(f.Size)); err == nil {
			err = f.CopyTo(u.ctx, sparse.NewWriter(nodeWriter{u.o, e.Node}))
		}
		if err == nil {
			err = u.size(e.Node, f.Size)
		}
	}
	if err == nil {
		err = u.set(e.Node, nil, inode{
			uid: f.UID, gid: f.GID, mode: f.Mode & 0o7777, link: typ == unix.S_IFLNK, times: times{f.Atime, f.Mtime}, xattrs: xattrs,
		})
	}
	if err != nil {
		u.o.Forget(e.Node, 1)
	}
	return e, err
}

// lowerTree is the tree of the layers below, which is opened anew now and then: it remembers directories.
type lowerTree struct {
	tree  *layers.Tree
	done  func()
	asked int
}

// maxAsked is how often a tree is asked before it is opened anew.
const maxAsked = 4096

func (l *lowerTree) close() {
	if l.done != nil {
		l.done()
	}
	*l = lowerTree{}
}

// below looks at a path in the layers below; nil: nothing is there.
func (u *unpacker) below(path string) (*layers.TreeFile, error) {
	if u.opts.Below == nil {
		return nil, nil
	}
	if u.lower.asked++; u.lower.tree == nil || u.lower.asked > maxAsked {
		u.lower.close()
		var err error
		if u.lower.tree, u.lower.done, err = u.opts.Below(); err != nil {
			return nil, err
		}
	}
	return u.lower.tree.Lstat(path)
}
