package layers

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"snapfs/squashfs"
)

// view walks a stack of layers that nobody mounts. It borrows the layers, which must stay open while it is used.
type view struct{ o *Overlay }

func openView(stack []*Lower) (*view, error) {
	o, err := New("", "", stack, Options{ReadOnly: true})
	if err != nil {
		return nil, err
	}
	for _, l := range o.stack {
		l.lower.refs.Add(-1) // the caller's reference is enough
	}
	return &view{o}, nil
}

// Close gives up the descriptors that the walk has left in the cache.
func (v *view) Close() error {
	mine := map[*layer]bool{}
	for _, l := range v.o.stack {
		mine[l] = true
	}
	descriptors.purge(func(k fdKey) bool { return mine[k.o.layer] })
	return nil
}

// viewNode is a node of a view: the Entry.Handle of the sources.
type viewNode struct {
	parts []*part // topmost first
	below []*part // in a delta: what the layers below have as this directory, or of this file
	// partial, in a delta, says that the data of below shows where the layer has no blocks of its own.
	partial bool
	// uncounted, in a delta, is set for a directory of which nobody has noted how many subdirectories only the layers below
	// have: one that the kernel's overlayfs has written.
	uncounted bool
	// image and inode, in a merged tree, are of the topmost part; nil: it is in a directory.
	image *imageStore
	inode *squashfs.Inode
	seen  *seenFile // what an earlier import of a directory noted of the file, which is unchanged; nil: nothing
}

// node is the viewNode as far as Overlay.search wants one.
func (s *viewNode) node() *node { return &node{top: s.parts[0], below: s.parts[1:], typ: unix.S_IFDIR} }

// xattrs are those of the topmost part.
func (s *viewNode) xattrs() ([]squashfs.Xattr, error) {
	if s.inode != nil {
		return s.inode.XattrsOf(nil)
	}
	return s.parts[0].backend().xattrs(s.parts[0])
}

// Merged presents a whole stack (topmost first) as one tree without whiteouts, for export. The stack must stay open
// while it is used. The source is an io.Closer too: closing it frees descriptors at once instead of some time. Several
// goroutines may call Entry, Open and Order at a time. The method Order tells in which order files are read fastest.
func Merged(stack []*Lower) (squashfs.Source, error) {
	v, err := openView(stack)
	if err != nil {
		return nil, err
	}
	return merged{view: v}, nil
}

type merged struct{ *view }

func (m merged) Root(context.Context) (*squashfs.Entry, error) {
	root := m.o.root
	a, err := root.top.backend().stat(root.top)
	if err != nil {
		return nil, err
	}
	a.Ino = rootIno
	return m.entry("", hit{parts: root.parts(), attr: a})
}

func (m merged) Names(_ context.Context, dir *squashfs.Entry) ([]string, error) {
	items, err := m.o.merge(dir.Handle.(*viewNode).parts)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(items))
	for i, it := range items {
		names[i] = it.name
	}
	return names, nil
}

func (m merged) Entry(_ context.Context, dir *squashfs.Entry, name string) (*squashfs.Entry, error) {
	h, err := m.o.search(dir.Handle.(*viewNode).node(), 0, name)
	if err != nil {
		return nil, err
	}
	return m.entry(name, h)
}

// entry presents a merged node as its users see it.
func (m merged) entry(name string, h hit) (*squashfs.Entry, error) {
	top := h.parts[0]
	e := &squashfs.Entry{Name: name, Attr: imageOf(h.attr), Inode: m.o.inodeID(top, &h.attr)}
	node := &viewNode{parts: h.parts, image: top.imageStore()}
	e.Handle = node
	read := func() (out []squashfs.Xattr, err error) {
		xattrs, err := node.xattrs()
		for _, x := range xattrs {
			if !ownXattr(x.Name) {
				out = append(out, squashfs.Xattr{Name: unescapeXattr(x.Name), Value: x.Value})
			}
		}
		return out, err
	}
	set := uint32(0)
	var err error
	if s := node.image; s != nil {
		if node.inode, err = s.inode(top); err != nil {
			return nil, err
		}
		if set, err = xattrSet(node.inode); err != nil {
			return nil, err
		}
	}
	if set != 0 {
		layer := uint64(slices.Index(m.o.stack, top.layer)) + 1
		e.Shared = squashfs.XattrSet{ID: layer<<32 | uint64(set), Read: read}
	} else if e.Xattrs, err = read(); err != nil {
		return nil, err
	}
	if isLnk(h.attr.Mode) {
		if e.Target, err = top.backend().readlink(top); err != nil {
			return nil, err
		}
	}
	return e, nil
}

func (m merged) Open(_ context.Context, file *squashfs.Entry) (squashfs.File, error) {
	s := file.Handle.(*viewNode)
	if s.inode != nil && len(s.parts) == 1 {
		return imageFile{s.inode, s.image.manifest}, nil
	}
	return m.o.openOnce(s.parts)
}

// Order gives a number for a regular file: files with smaller numbers are read first where that is faster, because what
// was stored together is read together.
func (m merged) Order(file *squashfs.Entry) uint64 {
	node := file.Handle.(*viewNode)
	data := node.parts[len(node.parts)-1]
	s, n := node.image, node.inode
	if len(node.parts) > 1 {
		if s = data.imageStore(); s != nil {
			var err error
			if n, err = s.inode(data); err != nil {
				return 0 // who reads it gets the error
			}
		}
	}
	if s == nil || s.ordered == nil {
		return 0
	}
	at, _, err := n.Place(0, 1)
	if err != nil || at == 0 {
		return 0
	}
	return s.ordered.Order(at)
}

// inodeID tells the inodes of a view apart that have several names. Nothing in a view is replaced.
func (o *Overlay) inodeID(top *part, a *Attr) squashfs.InodeID {
	if isDir(a.Mode) || a.Nlink < 2 {
		return squashfs.InodeID{}
	}
	return squashfs.InodeID{Layer: uint64(slices.Index(o.stack, top.layer)) + 1, Inode: top.id().n}
}

// imageOf turns a host's attributes into an image's.
func imageOf(a Attr) squashfs.Attr {
	return squashfs.Attr{
		Ino: a.Ino, Mode: a.Mode, UID: a.UID, GID: a.GID, Nlink: a.Nlink, Rdev: a.Rdev, Size: int64(a.Size),
		Mtime: a.Mtime, Ctime: a.Ctime, Btime: a.Btime,
	}
}

// Delta presents one layer as it is, whiteouts and overlay attributes included, as the kernel's overlayfs reads them.
// Partial files are presented as whole ones, which takes the layers below, topmost first. All must stay open while it
// is used. The source is an io.Closer, as that of Merged.
func Delta(layer *Lower, below []*Lower) (squashfs.Source, error) {
	v, err := openView(append([]*Lower{layer}, below...))
	if err != nil {
		return nil, err
	}
	return &delta{view: v}, nil
}

// delta presents the topmost layer of a view. With a whole stack in the view it knows what each entry was before.
type delta struct {
	*view
	// onFile, if set, is called before a file is read, with what the layers below have in its place, or nil.
	onFile func(prev *part, inPlace bool)
}

func (d *delta) Root(context.Context) (*squashfs.Entry, error) {
	root := d.o.root
	a, err := root.top.backend().stat(root.top)
	if err != nil {
		return nil, err
	}
	a.Ino = rootIno
	f := found{attr: a}
	if s := root.top.dirStore(); s != nil {
		r, ok, err := readInodeInfo(nameIn(s.root, "."))
		if err != nil {
			return nil, err
		}
		if ok {
			f.ref = r.notes(true)
		}
	}
	return d.entry("", root.top, f, root.below)
}

func (d *delta) Names(ctx context.Context, dir *squashfs.Entry) ([]string, error) {
	s := dir.Handle.(*viewNode)
	top := s.parts[0]
	var names []string
	own := uint32(0)
	err := top.backend().list(top, func(e rawEntry) error {
		names = append(names, e.name)
		if isDir(e.typ) {
			own++
		}
		return ctx.Err()
	})
	if err != nil || !s.uncounted {
		return names, err
	}
	below, err := d.o.subdirsBelow(s.below, names)
	dir.Links = 2 + own + below
	return names, err
}

// subdirsBelow counts the subdirectories that directories of lower layers show together, topmost first, but for those
// that names of a layer above hide.
func (o *Overlay) subdirsBelow(parts []*part, hidden []string) (uint32, error) {
	if a, err := parts[0].backend().stat(parts[0]); err == nil && a.Nlink == 2 && (len(parts) == 1 || parts[0].imageStore() != nil) {
		return 0, nil
	}
	items, err := o.merge(parts)
	if err != nil {
		return 0, err
	}
	dirs := map[string]bool{}
	for _, it := range items {
		if isDir(it.typ) {
			dirs[it.name] = true
		}
	}
	for _, name := range hidden {
		delete(dirs, name)
	}
	return uint32(len(dirs)), nil
}

// uncounted reports whether a directory in a directory layer has no note of its link count.
func (f *found) uncounted(o *part) bool {
	return o.dirStore() != nil && (f.ref&(noteLook|noteCount) == 0 || f.attr.Nlink < 2)
}

func (d *delta) Entry(_ context.Context, dir *squashfs.Entry, name string) (*squashfs.Entry, error) {
	s := dir.Handle.(*viewNode)
	top := s.parts[0]
	f, err := top.backend().find(top, name)
	if err != nil {
		return nil, err
	}
	if f.whiteout || !isDir(f.attr.Mode) && !isReg(f.attr.Mode) {
		return d.entry(name, top.child(name, f), f, nil)
	}
	if f.partial {
		h, err := d.o.search(&node{top: top, below: s.below}, 0, name)
		if err != nil {
			return nil, err
		}
		return d.entry(name, h.parts[0], f, h.parts[1:])
	}
	var below []*part
	if len(s.below) > 0 || f.redirect != "" {
		p := &node{top: top, below: s.below}
		if h, err := d.o.search(p, 0, name); err == nil {
			below = h.parts[1:]
		}
		if isReg(f.attr.Mode) && !f.metacopy && len(s.below) > 0 {
			if h, err := d.o.search(p, 1, name); err == nil && isReg(h.attr.Mode) {
				below = h.parts[len(h.parts)-1:]
			}
		}
	}
	return d.entry(name, top.child(name, f), f, below)
}

// entry presents an inode as the layer has it.
func (d *delta) entry(name string, o *part, f found, below []*part) (*squashfs.Entry, error) {
	xattrs, err := o.backend().xattrs(o)
	if err != nil {
		return nil, err
	}
	target := ""
	if isLnk(f.attr.Mode) {
		if target, err = o.backend().readlink(o); err != nil {
			return nil, err
		}
	}
	e := &squashfs.Entry{Name: name, Attr: imageOf(f.attr), Inode: d.o.inodeID(o, &f.attr), Target: target}
	e.Xattrs = keptXattrs(e, f, xattrs)
	s := &viewNode{parts: []*part{o}, below: below, partial: f.partial}
	if isDir(e.Attr.Mode) {
		e.Links = e.Attr.Nlink
		s.uncounted = len(below) > 0 && f.uncounted(o)
	}
	e.Handle = s
	return e, nil
}

// keptXattrs chooses which of the attributes of an inode its image has.
func keptXattrs(e *squashfs.Entry, f found, xattrs []squashfs.Xattr) (kept []squashfs.Xattr) {
	for _, x := range xattrs {
		if kernelOnly(x.Name) {
			continue
		}
		switch x.Name {
		case xattrIno, xattrBlocks: // the image keeps the number itself
			continue
		case xattrMetacopy, xattrRedirect, xattrFar:
			if f.partial {
				continue // it is presented as a whole
			}
			if x.Name == xattrFar { // an image has room for it
				x = squashfs.Xattr{Name: xattrRedirect, Value: []byte(f.redirect)}
			}
		case xattrNode:
			e.Attr.Mode = e.Attr.Mode&^unix.S_IFMT | unix.S_IFREG
		}
		kept = append(kept, x)
	}
	return kept
}

func (d *delta) Open(_ context.Context, file *squashfs.Entry) (squashfs.File, error) {
	s := file.Handle.(*viewNode)
	for _, x := range file.Xattrs {
		if x.Name == xattrMetacopy {
			return emptyFile{}, nil // whatever blocks it has do not count
		}
	}
	if d.onFile != nil {
		var prev *part
		switch {
		case s.partial:
			prev = s.below[len(s.below)-1] // those before may be partial, too
		case len(s.below) > 0:
			prev = s.below[0]
		}
		d.onFile(prev, s.partial)
	}
	if s.partial {
		return d.o.openOnce(slices.Concat(s.parts, s.below))
	}
	return d.o.openOnce(s.parts)
}

// openOnce opens a file whose descriptors are of no use to anybody later.
func (o *Overlay) openOnce(parts []*part) (content, error) {
	if err := o.checkData(parts); err != nil {
		return nil, err
	}
	f, err := o.openParts(parts, nil)
	for _, p := range parts {
		descriptors.drop(p)
	}
	return f, err
}

// checkData refuses a metacopy of more bytes than its data has. Layers may come from elsewhere.
func (o *Overlay) checkData(parts []*part) error {
	data, err := o.dataParts(parts, nil)
	if err != nil || len(data) > 1 || data[0] == parts[0] {
		return err // partial, or no metacopy
	}
	d, err := data[0].backend().stat(data[0])
	if err != nil {
		return err
	}
	a, err := parts[0].backend().stat(parts[0])
	if err == nil && a.Size > d.Size {
		err = fmt.Errorf("%w: metadata of a file of %d bytes, and data of %d", squashfs.ErrCorrupt, a.Size, d.Size)
	}
	return err
}

// emptyFile is all hole.
type emptyFile struct{}

func (emptyFile) ReadAt([]byte, int64) (int, error)   { return 0, errors.ErrUnsupported }
func (emptyFile) Extents() ([]squashfs.Extent, error) { return nil, nil }
func (emptyFile) Close() error                        { return nil }
