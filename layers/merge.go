package layers

import (
	"context"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"

	"snapfs/chunkstore"
	"snapfs/squashfs"
)

// Merge stores the topmost n layers of a stack as one image: over the rest of the stack it shows the tree that they
// show. What they hide of each other is left out; whiteouts and opaque directories stay where something lies below. The
// image consists of chunks that the store has, but for its tables. It commits together with the records fn writes.
func Merge(
	ctx context.Context, s *chunkstore.Store, stack []*Lower, n int, opts StoreOptions,
	fn func(tx *chunkstore.Tx, m chunkstore.Manifest) error,
) (chunkstore.Manifest, error) {
	v, err := openView(stack)
	if err != nil {
		return chunkstore.Manifest{}, err
	}
	defer func() { _ = v.Close() }() // it cannot fail
	j := newJoined(v, n)
	k := &sink{tables: map[string]chunkstore.Range{}}
	for _, l := range v.o.stack[:n] {
		if l.lower.image == nil {
			// Its partial files are made up of several layers, where an image has whole ones.
			return chunkstore.Manifest{}, fmt.Errorf("merge: layer %s is still a directory", l.lower.key)
		}
		if err := k.predictTables(l); err != nil {
			return chunkstore.Manifest{}, fmt.Errorf("merge: %w", err)
		}
	}
	return storeSource(ctx, s, j, k, opts, true, fn)
}

// joined presents the topmost layers of a view as one layer over the others. The parts of its nodes lie in the former,
// what is below in the latter.
type joined struct {
	*view
	layers []*layer        // the topmost
	own    map[*layer]bool // the same
}

func newJoined(v *view, n int) *joined {
	j := &joined{view: v, layers: v.o.stack[:n], own: map[*layer]bool{}}
	for _, l := range j.layers {
		j.own[l] = true
	}
	return j
}

// split divides a directory's parts.
func (j *joined) split(parts []*part) (own, below []*part) {
	for i, p := range parts {
		if !j.own[p.layer] {
			return parts[:i], parts[i:]
		}
	}
	return parts, nil
}

func (j *joined) Root(context.Context) (*squashfs.Entry, error) {
	own, below := j.split(j.o.root.parts())
	a, err := own[0].backend().stat(own[0])
	if err != nil {
		return nil, err
	}
	a.Ino = rootIno
	opaque := len(below) == 0 && len(j.layers) < len(j.o.stack)
	return j.entry("", &viewNode{parts: own, below: below}, a, marks{opaque: opaque})
}

func (j *joined) Names(ctx context.Context, dir *squashfs.Entry) ([]string, error) {
	var names []string
	seen := map[string]bool{}
	for _, part := range dir.Handle.(*viewNode).parts {
		err := part.backend().list(part, func(e rawEntry) error {
			if !seen[e.name] {
				seen[e.name] = true
				names = append(names, e.name)
			}
			return ctx.Err()
		})
		if err != nil {
			return nil, err
		}
	}
	return names, nil
}

// ownSearch is a search through the own layers only, as Overlay.search makes it.
type ownSearch struct {
	scan
	white *part  // the name is a whiteout, in this directory
	name  string // what the directories below know it by
	path  string // or where in the layers below it is; "" if it did not move to another directory
}

func (j *joined) searchOwn(s *viewNode, name string) (*ownSearch, error) {
	c := &ownSearch{name: name}
	for _, d := range s.parts {
		f, err := d.backend().find(d, c.name)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if f.whiteout && len(c.parts) == 0 {
			c.white, c.found = d, f
			return c, nil
		}
		if c.take(d, c.name, f) {
			return c, nil
		}
		if r := f.redirect; r != "" {
			if r[0] != '/' {
				c.name = r
				continue
			}
			c.path = r
			return c, j.follow(c, d.layer)
		}
	}
	return c, nil
}

// follow is Overlay.follow through the own layers only.
func (j *joined) follow(c *ownSearch, after *layer) error {
	below := false
	for _, l := range j.layers {
		if !below {
			below = l == after
			continue
		}
		next, done, err := walkRedirect(&c.scan, l, c.path)
		if err != nil || done {
			return err
		}
		c.path = next
	}
	return nil
}

// Entry gives nil if the merged layer does not need the name.
func (j *joined) Entry(_ context.Context, dir *squashfs.Entry, name string) (*squashfs.Entry, error) {
	s := dir.Handle.(*viewNode)
	c, err := j.searchOwn(s, name)
	if err != nil {
		return nil, err
	}
	hidden, hiddenDir, err := j.hides(s, name)
	if err != nil {
		return nil, err
	}
	if c.white != nil {
		if !hidden {
			return nil, nil
		}
		w := c.white.child(name, c.found)
		return j.entry(name, &viewNode{parts: []*part{w}}, c.found.attr, marks{})
	}
	all := &node{top: s.parts[0], below: append(s.parts[1:len(s.parts):len(s.parts)], s.below...), typ: unix.S_IFDIR}
	h, err := j.o.search(all, 0, name)
	if err != nil {
		return nil, err
	}
	at := &viewNode{}
	at.parts, at.below = j.split(h.parts)
	var m marks
	switch {
	case len(at.below) > 0:
		m.metacopy = isReg(h.attr.Mode)
		if m.redirect = c.path; m.redirect == "" && c.name != name {
			m.redirect = c.name
		}
	case isDir(h.attr.Mode):
		m.opaque = hiddenDir
	}
	return j.entry(name, at, h.attr, m)
}

// hides reports whether the layers below have something of a name in a directory, and whether that is a directory.
func (j *joined) hides(s *viewNode, name string) (some, dir bool, err error) {
	if len(s.below) == 0 {
		return false, false, nil
	}
	h, err := j.o.search(&node{top: s.below[0], below: s.below[1:], typ: unix.S_IFDIR}, 0, name)
	switch {
	case errors.Is(err, unix.ENOENT):
		return false, false, nil
	case errors.Is(err, squashfs.ErrCorrupt): // damage below is not this layer's: what is there stays hidden, whatever it is
		return true, true, nil
	case err != nil:
		return false, false, err
	}
	return true, isDir(h.attr.Mode), nil
}

// marks are the attributes of the overlay that an entry gets.
type marks struct {
	opaque, metacopy bool
	redirect         string
}

// entry presents an inode of the merged layer.
func (j *joined) entry(name string, s *viewNode, a Attr, m marks) (*squashfs.Entry, error) {
	e := &squashfs.Entry{Name: name, Attr: imageOf(a), Inode: j.o.inodeID(s.parts[0], &a)}
	attrWhiteouts := false
	for i, p := range s.parts {
		if i > 0 && !isDir(a.Mode) {
			break
		}
		xattrs, err := p.backend().xattrs(p)
		if err != nil {
			return nil, err
		}
		for _, x := range xattrs {
			if kernelOnly(x.Name) {
				continue
			}
			switch x.Name {
			case xattrOpaque:
				attrWhiteouts = attrWhiteouts || string(x.Value) == "x"
				continue
			case xattrMetacopy:
				if !m.metacopy {
					continue
				}
			case xattrRedirect, xattrIno:
				continue
			case xattrNode:
				if i == 0 {
					e.Attr.Mode = e.Attr.Mode&^unix.S_IFMT | unix.S_IFREG
				}
			}
			if i == 0 {
				e.Xattrs = append(e.Xattrs, x)
			}
		}
	}
	switch {
	case m.opaque:
		e.Xattrs = append(e.Xattrs, squashfs.Xattr{Name: xattrOpaque, Value: []byte("y")})
	case attrWhiteouts:
		e.Xattrs = append(e.Xattrs, squashfs.Xattr{Name: xattrOpaque, Value: []byte("x")})
	}
	if m.redirect != "" {
		e.Xattrs = append(e.Xattrs, squashfs.Xattr{Name: xattrRedirect, Value: []byte(m.redirect)})
	}
	if isLnk(a.Mode) {
		var err error
		if e.Target, err = s.parts[0].backend().readlink(s.parts[0]); err != nil {
			return nil, err
		}
	}
	if isDir(e.Attr.Mode) {
		e.Links = e.Attr.Nlink
	}
	e.Handle = s
	return e, nil
}

func (j *joined) Open(_ context.Context, file *squashfs.Entry) (squashfs.File, error) {
	s := file.Handle.(*viewNode)
	if len(s.below) > 0 {
		return emptyFile{}, nil // a metacopy
	}
	return j.o.openOnce(s.parts)
}

var _ io.Closer = (*joined)(nil)
