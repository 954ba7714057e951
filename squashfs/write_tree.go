package squashfs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// The walk keeps its own stack, so that a tree of any depth takes heap in proportion to it: for each directory on the
// way to the current one, its entry and the names in it. Paths are built only where they are reported.

// frame is a directory that is being written.
type frame struct {
	entry    *Entry
	stripped bool     // the entry's attributes were dropped, and are read again
	names    []string // still to be written, in order
	children []child  // written
	subdirs  []int    // of these, the directories' places in parents
}

// maxHeld bounds the bytes of attributes that the directories on the stack keep together. Those of the others are read
// twice.
const maxHeld = 4 << 20

// maxToldPath is the longest path that is reported: of a deeper one the last bytes. The host cannot use longer ones.
const maxToldPath = 4096

// path is the path of name in the directory on top of the stack; "" if that is the root itself.
func (w *writer) path(name string) string {
	if len(w.stack) == 0 {
		return ""
	}
	first, n := len(w.stack), len(name)
	for first > 1 && n < maxToldPath {
		first--
		n += 1 + len(w.stack[first].entry.Name)
	}
	var b strings.Builder
	b.Grow(n)
	for _, f := range w.stack[first:] {
		b.WriteString(f.entry.Name)
		b.WriteByte('/')
	}
	b.WriteString(name)
	s := b.String()
	return s[max(len(s)-maxToldPath, 0):]
}

// failed adds the path of a name to an error.
func (w *writer) failed(name string, err error) error {
	if p := w.path(name); p != "" {
		return fmt.Errorf("%s: %w", p, err)
	}
	return err
}

// enter begins a directory.
func (w *writer) enter(ctx context.Context, dir *Entry) error {
	names, err := w.src.Names(ctx, dir)
	if err != nil {
		return w.failed(dir.Name, err)
	}
	slices.Sort(names)
	for i, name := range names {
		if err := checkName(name); err != nil {
			return w.failed(dir.Name, err)
		}
		if i > 0 && name == names[i-1] {
			return w.failed(dir.Name, fmt.Errorf("%q is there twice", name))
		}
	}
	f := frame{entry: dir, names: names, children: make([]child, 0, len(names))}
	size := xattrBytes(dir.Xattrs)
	if f.stripped = size > 0 && w.held+size > maxHeld; f.stripped {
		dir.Xattrs = nil
	} else {
		w.held += size
	}
	w.stack = append(w.stack, f)
	return nil
}

func xattrBytes(list []Xattr) int {
	n := 0
	for _, x := range list {
		n += len(x.Name) + len(x.Value) + entryOverhead
	}
	return n
}

func checkName(name string) error {
	switch {
	case name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00"):
		return fmt.Errorf("%q is no name for an entry", name)
	case len(name) > maxFileName:
		return fmt.Errorf("%w: name of %d bytes", ErrLimit, len(name))
	}
	return nil
}

// step writes the next name of the directory on top, or enters it, or ends the directory.
func (w *writer) step(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	f := &w.stack[len(w.stack)-1]
	if len(f.names) == 0 {
		return w.leave(ctx)
	}
	name := f.names[0]
	f.names = f.names[1:]
	e, err := w.src.Entry(ctx, f.entry, name)
	if err != nil {
		return w.failed(name, err)
	}
	if e == nil {
		return nil
	}
	c := child{name: name, typ: basicType(e.Attr.Mode)}
	switch c.typ {
	case 0:
		return w.failed(name, fmt.Errorf("unknown type %#o", e.Attr.Mode))
	case typeDir:
		return w.enter(ctx, e)
	}
	if c.number, err = w.node(ctx, e); err != nil {
		return err
	}
	f.children = append(f.children, c)
	return nil
}

// leave writes the directory on top, after everything in it.
func (w *writer) leave(ctx context.Context) error {
	f := w.stack[len(w.stack)-1]
	w.stack[len(w.stack)-1] = frame{} // the slice keeps nothing alive
	w.stack = w.stack[:len(w.stack)-1]
	dir := f.entry
	subdirs := max(uint32(len(f.subdirs)), max(dir.Links, 2)-2)
	p := pending{inode: spooledInode{attr: dir.Attr, children: f.children, subdirs: subdirs}}
	if f.stripped {
		entry, err := w.rereadEntry(ctx, dir)
		if err != nil {
			return err
		}
		dir = entry
	} else {
		w.held -= xattrBytes(dir.Xattrs)
	}
	number, err := w.inode(ctx, dir, p)
	if err != nil {
		return err
	}
	for _, sub := range f.subdirs {
		w.parents[sub] = number
	}
	w.parents = append(w.parents, 0)
	if len(w.stack) > 0 {
		up := &w.stack[len(w.stack)-1]
		up.children = append(up.children, child{name: dir.Name, number: number, typ: typeDir})
		up.subdirs = append(up.subdirs, len(w.parents)-1)
	}
	return nil
}

// rereadEntry reads the entry of a directory whose attributes were dropped.
func (w *writer) rereadEntry(ctx context.Context, dir *Entry) (*Entry, error) {
	var e *Entry
	var err error
	if len(w.stack) == 0 {
		e, err = w.src.Root(ctx)
	} else {
		e, err = w.src.Entry(ctx, w.stack[len(w.stack)-1].entry, dir.Name)
	}
	if err == nil && (e == nil || basicType(e.Attr.Mode) != typeDir) {
		err = errors.New("the directory was removed during the walk")
	}
	if err != nil {
		return nil, w.failed(dir.Name, err)
	}
	return &Entry{Name: dir.Name, Attr: dir.Attr, Xattrs: e.Xattrs, Shared: e.Shared}, nil
}
