package layers

import (
	"context"

	"golang.org/x/sys/unix"

	"snapfs/squashfs"
)

// Unfolded presents the topmost n layers of a stack (topmost first) as one layer for systems that know whiteouts and
// opaque directories, but no redirects and no files without their data, such as the layers of container images. What was
// renamed is there as a whole. It is a squashfs.Source; its entries are whole files, and whiteouts, of which IsWhiteout
// tells. Files with several names are told by all names that lie in these layers. The stack must stay open while it is
// used. Close frees descriptors at once instead of some time.
type Unfolded struct {
	merged
	own *joined
}

// Unfold opens an Unfolded.
func Unfold(stack []*Lower, n int) (*Unfolded, error) {
	v, err := openView(stack)
	if err != nil {
		return nil, err
	}
	return &Unfolded{merged{v}, newJoined(v, n)}, nil
}

// unfoldedNode is what an Unfolded has of an entry in Entry.Handle.
type unfoldedNode struct {
	*viewNode           // of the merged tree
	layer     *viewNode // of a directory: what the layers have of it, and those below
	whole     bool      // of a directory: nothing of what is below shows but through it
	opaque    bool
}

// IsWhiteout reports whether an entry stands for a name that is not there any more.
func (u *Unfolded) IsWhiteout(e *squashfs.Entry) bool {
	_, ok := e.Handle.(whiteoutNode)
	return ok
}

// IsOpaque reports whether a directory hides what the layers below have in its place.
func (u *Unfolded) IsOpaque(dir *squashfs.Entry) bool {
	n, ok := dir.Handle.(*unfoldedNode)
	return ok && n.opaque
}

type whiteoutNode struct{}

// Root implements squashfs.Source.
func (u *Unfolded) Root(ctx context.Context) (*squashfs.Entry, error) {
	e, err := u.merged.Root(ctx)
	if err != nil {
		return nil, err
	}
	own, below := u.own.split(u.o.root.parts())
	n := &unfoldedNode{viewNode: e.Handle.(*viewNode), layer: &viewNode{parts: own, below: below}, whole: len(below) == 0}
	n.opaque = n.whole && len(u.own.layers) < len(u.o.stack)
	e.Handle = n
	return e, nil
}

// Names implements squashfs.Source.
func (u *Unfolded) Names(ctx context.Context, dir *squashfs.Entry) ([]string, error) {
	n := dir.Handle.(*unfoldedNode)
	if n.whole {
		return u.merged.Names(ctx, &squashfs.Entry{Handle: n.viewNode})
	}
	return u.own.Names(ctx, &squashfs.Entry{Handle: n.layer})
}

// Entry implements squashfs.Source. It gives nil for whiteouts that hide nothing.
func (u *Unfolded) Entry(ctx context.Context, dir *squashfs.Entry, name string) (*squashfs.Entry, error) {
	n := dir.Handle.(*unfoldedNode)
	at := &unfoldedNode{whole: true}
	if !n.whole {
		c, err := u.own.searchOwn(n.layer, name)
		if err != nil {
			return nil, err
		}
		hidden, hiddenDir, err := u.own.hides(n.layer, name)
		if err != nil {
			return nil, err
		}
		if c.white != nil {
			if !hidden {
				return nil, nil
			}
			return &squashfs.Entry{Name: name, Attr: squashfs.Attr{Mode: unix.S_IFCHR, Nlink: 1}, Handle: whiteoutNode{}}, nil
		}
		at.opaque = hiddenDir
		if moved := c.path != "" || c.name != name; !moved {
			all := append(n.layer.parts[1:len(n.layer.parts):len(n.layer.parts)], n.layer.below...)
			h, err := u.o.search(&node{top: n.layer.parts[0], below: all, typ: unix.S_IFDIR}, 0, name)
			if err != nil {
				return nil, err
			}
			own, below := u.own.split(h.parts)
			if len(below) > 0 && isDir(h.attr.Mode) {
				at.whole, at.opaque = false, false
				at.layer = &viewNode{parts: own, below: below}
			}
		}
	}
	e, err := u.merged.Entry(ctx, &squashfs.Entry{Handle: n.viewNode}, name)
	if err != nil {
		return nil, err
	}
	if at.viewNode = e.Handle.(*viewNode); isDir(e.Attr.Mode) {
		e.Handle = at
	}
	return e, nil
}

// Open implements squashfs.Source.
func (u *Unfolded) Open(ctx context.Context, file *squashfs.Entry) (squashfs.File, error) {
	return u.merged.Open(ctx, file)
}

var _ squashfs.Source = (*Unfolded)(nil)
