package layers

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Tree is one side of a Comparison, to be looked at by path: relative, slash-separated, raw bytes.
type Tree struct {
	o    *Overlay
	dirs map[string]*treeEntry // directories that were met, by path; nil: there is none
}

func newTree(o *Overlay) *Tree {
	return &Tree{o: o, dirs: map[string]*treeEntry{"": {parts: o.root.parts()}}}
}

// Old is the tree that the changes lead away from.
func (c *Comparison) Old() *Tree { return c.oldTree }

// New is the tree that the changes lead to.
func (c *Comparison) New() *Tree { return c.newer }

// OpenTree opens the tree of a stack (topmost first), which it borrows: the layers must stay open until close is called.
// Not safe for concurrent use.
func OpenTree(stack []*Lower) (t *Tree, close func(), err error) {
	v, err := openView(stack)
	if err != nil {
		return nil, nil, err
	}
	return newTree(v.o), func() { _ = v.Close() }, nil // it cannot fail
}

// TreeFile is anything that a path of a Tree leads to.
type TreeFile struct {
	Attr
	tree *Tree
	at   *treeEntry
}

// Lstat looks at a path without following a symbolic link at its end or on the way; nil if nothing is there.
func (t *Tree) Lstat(path string) (*TreeFile, error) {
	at, err := t.find(path)
	if at == nil || err != nil {
		return nil, err
	}
	if path == "" { // nobody has looked it up
		top := at.parts[0]
		if at.attr, err = top.backend().stat(top); err != nil {
			return nil, t.o.report(err, top, "")
		}
	}
	return &TreeFile{Attr: at.attr, tree: t, at: at}, nil
}

// find resolves a path; nil if nothing is there.
func (t *Tree) find(path string) (*treeEntry, error) {
	if d, ok := t.dirs[path]; ok {
		return d, nil
	}
	parent, name := "", path
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		parent, name = path[:i], path[i+1:]
	}
	dir, err := t.find(parent)
	if dir == nil || err != nil {
		return nil, err
	}
	if parent != "" && !isDir(dir.attr.Mode) {
		return nil, nil
	}
	at, err := t.o.treeEntry(dir, name)
	if at != nil && isDir(at.attr.Mode) {
		t.dirs[path] = at
	}
	return at, err
}

// List names what is in a directory, in no order; nothing if there is no directory.
func (t *Tree) List(path string) ([]string, error) {
	dir, err := t.find(path)
	if dir == nil || err != nil || path != "" && !isDir(dir.attr.Mode) {
		return nil, err
	}
	items, err := t.o.merge(dir.parts)
	if err != nil {
		return nil, t.o.report(err, dir.parts[0], "")
	}
	names := make([]string, len(items))
	for i, it := range items {
		names[i] = it.name
	}
	return names, nil
}

// Target is where a symbolic link leads.
func (f *TreeFile) Target() (string, error) {
	top := f.at.parts[0]
	target, err := top.backend().readlink(top)
	if err != nil {
		return "", f.tree.o.report(err, top, "")
	}
	return target, nil
}

// Read reads a regular file whole. The caller has looked at its size; what a program adds to it meanwhile is left out.
func (f *TreeFile) Read() ([]byte, error) {
	c, err := f.tree.o.openOnce(f.at.parts)
	if err != nil {
		return nil, f.tree.o.report(err, f.at.parts[0], "")
	}
	defer func() { _ = c.Close() }() // read only
	data := make([]byte, f.Size)
	n, err := c.ReadAt(data, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, f.tree.o.report(err, f.at.parts[0], "")
	}
	return data[:n], nil
}

// CopyTo writes what a regular file holds, with a bounded buffer.
func (f *TreeFile) CopyTo(ctx context.Context, w io.Writer) (err error) {
	c, err := f.tree.o.openOnce(f.at.parts)
	if err != nil {
		return f.tree.o.report(err, f.at.parts[0], "")
	}
	defer func() { _ = c.Close() }() // read only
	size := int64(f.Size)
	buf := make([]byte, min(size, 256<<10))
	for off := int64(0); off < size; {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := c.ReadAt(buf[:min(int64(len(buf)), size-off)], off)
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				return err
			}
			off += int64(n)
		}
		if errors.Is(err, io.EOF) && n == 0 {
			return nil // it was longer
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return f.tree.o.report(err, f.at.parts[0], "")
		}
	}
	return nil
}

// Xattrs are a file's attributes that programs see, ACLs among them.
func (f *TreeFile) Xattrs() (map[string]string, error) {
	m, err := publicXattrs(f.at.parts[0])
	if err != nil {
		return nil, f.tree.o.report(err, f.at.parts[0], "")
	}
	for name, value := range m {
		if public := unescapeXattr(name); public != name {
			delete(m, name)
			m[public] = value
		}
	}
	return m, nil
}

// Shares reports whether two regular files have the same data because it is the same in both trees. It reads none.
func (f *TreeFile) Shares(other *TreeFile) (bool, error) {
	xs, err := f.tree.o.dataParts(f.at.parts, nil)
	if err != nil {
		return false, f.tree.o.report(err, f.at.parts[0], "")
	}
	ys, err := other.tree.o.dataParts(other.at.parts, nil)
	if err != nil {
		return false, other.tree.o.report(err, other.at.parts[0], "")
	}
	return slices.EqualFunc(xs, ys, samePart), nil
}

// SameContents compares what two files of the old and the new tree hold: equal types, and equal data or targets. It
// reads no more than it must: parts that both trees share are the same.
func (c *Comparison) SameContents(ctx context.Context, old, now *TreeFile) (bool, error) {
	switch {
	case old.Mode&unix.S_IFMT != now.Mode&unix.S_IFMT:
		return false, nil
	case isLnk(old.Mode):
		x, err := old.Target()
		if err != nil {
			return false, err
		}
		y, err := now.Target()
		return x == y, err
	case !isReg(old.Mode):
		return old.Rdev == now.Rdev, nil
	case old.Size != now.Size:
		return false, nil
	}
	return sameData(ctx, old.tree.o, old.at, now.tree.o, now.at, int64(old.Size))
}
