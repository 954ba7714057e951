package layers

import (
	"errors"

	"golang.org/x/sys/unix"
)

// Unlink removes a non-directory; its node lives until Forget.
func (o *Overlay) Unlink(parent NodeID, name string) error {
	return o.remove(parent, name, func(p *node, h hit) error {
		if isDir(h.attr.Mode) {
			return unix.EISDIR
		}
		return o.unlinkIn(p, name, h)
	})
}

// Rmdir removes an empty directory.
func (o *Overlay) Rmdir(parent NodeID, name string) error {
	return o.remove(parent, name, func(p *node, h hit) error {
		if !isDir(h.attr.Mode) {
			return unix.ENOTDIR
		}
		if empty, err := o.isEmpty(h.parts); err != nil || !empty {
			if err == nil {
				err = unix.ENOTEMPTY
			}
			return err
		}
		return o.unlinkIn(p, name, h)
	})
}

func (o *Overlay) remove(parent NodeID, name string, fn func(p *node, h hit) error) error {
	if err := checkName(name); err != nil {
		return err
	}
	return o.mutate(func() error {
		p, err := o.dirNode(parent)
		if err != nil {
			return err
		}
		if p.dead {
			return unix.ENOENT
		}
		o.nodes.freshAt(p, name)
		h, err := o.search(p, 0, name)
		if err != nil {
			return o.report(err, p.top, name)
		}
		if !o.inUpper(p) {
			return o.needUp(p, false)
		}
		return fn(p, h)
	})
}

// unlinkIn takes one name away and leaves a whiteout where a layer below has it. tree is held for writing.
func (o *Overlay) unlinkIn(p *node, name string, h hit) error {
	top := h.parts[0]
	dir := isDir(h.attr.Mode)
	own := top.layer == o.upper.layer
	if !own && !dir && h.attr.Nlink > 1 {
		n := o.nodes.enter(p, name, h) // the whole group must know of the name that goes
		err := o.needUp(n, false)
		o.discard(o.nodes.drop(n, 1, 0))
		return err
	}
	n := o.nodes.find(sighting{p, name, top, &h.attr})
	defer o.settleOrphan()
	if err := o.beforeUnlink(n, p, name, own); err != nil {
		return err
	}
	white, err := o.shownBelow(p, name)
	if err != nil {
		return err
	}
	d, err := o.upper.store.dir(p.top)
	if err != nil {
		return err
	}
	defer d.release()
	at := place{d.fd, name}
	if err := o.loses(n, h, at, own); err != nil {
		return err
	}
	if err := o.erase(at, own, dir, white); err != nil {
		return err
	}
	subs := 0
	if dir && !own {
		subs = -1
	}
	if err := o.touched(p, place{d.fd, "."}, subs); err != nil {
		return err
	}
	o.unlinked(n, p, name, own && (dir || h.attr.Nlink == 1))
	o.listings.remove(p, name)
	return nil
}

// loses notes that an inode of the upper, of node n if that is not nil, is about to lose the name at: its ctime moves,
// which its other names show.
func (o *Overlay) loses(n *node, h hit, at place, own bool) error {
	if !own || isDir(h.attr.Mode) || h.attr.Nlink < 2 && n == nil {
		return nil
	}
	if n == nil {
		n = &node{top: h.parts[0], typ: h.attr.Mode & unix.S_IFMT}
	}
	return o.touched(n, at, 0)
}

// find gives the live node of an inode, or nil.
func (t *table) find(s sighting) *node {
	n := t.lockFor(s)
	t.mu.Unlock()
	return n
}

// shownBelow tells whether a layer below the upper shows name in p, so that its removal needs a whiteout.
func (o *Overlay) shownBelow(p *node, name string) (bool, error) {
	if len(p.below) == 0 {
		return false, nil
	}
	_, err := o.search(p, 1, name)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	var errno unix.Errno
	if err != nil && errors.As(err, &errno) {
		return false, err
	}
	return true, nil // there, if perhaps damaged
}

// beforeUnlink pins the inode behind n if name is the last one known.
func (o *Overlay) beforeUnlink(n, p *node, name string, own bool) error {
	if n == nil || !own {
		return nil
	}
	o.nodes.mu.Lock()
	last := len(n.aliases) == 0
	o.nodes.mu.Unlock()
	if !last {
		return nil
	}
	return o.keep(n)
}

// unlinked notes that a name of n, which may be nil, is gone. last says that it was the only one of an inode of the upper; who
// does not know says false. tree is held for writing.
func (o *Overlay) unlinked(n, p *node, name string, last bool) {
	if n == nil {
		return
	}
	t := &o.nodes
	t.mu.Lock()
	defer t.mu.Unlock()
	if n.dead || n.parent != p || n.name != name {
		t.unaliasLocked(n, p, name)
		n.orphaned()
		return
	}
	if len(n.aliases) > 0 {
		a := n.aliases[0]
		n.aliases = n.aliases[1:]
		a.parent.kids-- // moveLocked counts it again
		t.moveLocked(n, a.parent, a.name)
		n.top.parent, n.top.name = a.parent.top, a.name
		return
	}
	n.dead = true
	if n.free = n.pin > 0 && last; !n.free {
		n.orphaned()
	}
	o.take(n)
	t.showLocked(n)
}

// orphaned notes whether a pinned inode has no name left in any layer. tree is held for writing.
func (n *node) orphaned() {
	if n.dead && n.pin > 0 && !n.free {
		a, err := place{dirfd: int(n.pin) - 1}.stat()
		n.free = err == nil && (a.Nlink == 0 || isDir(n.typ))
	}
}

// moveLocked makes (p, name) the primary name of n. mu and Overlay.tree are held for writing.
func (t *table) moveLocked(n, p *node, name string) {
	p.kids++
	if n.parent != nil {
		n.parent.kids--
	}
	n.parent, n.name = p, name
	t.showLocked(n)
	t.noteLocked(n)
}

// isEmpty tells whether a directory with these parts shows no names.
func (o *Overlay) isEmpty(parts []*obj) (bool, error) {
	hidden := map[string]bool{}
	for _, part := range parts {
		err := part.backend().list(part, func(e rawEntry) error {
			if e.whiteout {
				hidden[e.name] = true
				return nil
			}
			if !hidden[e.name] {
				return errFound
			}
			return nil
		})
		if errors.Is(err, errFound) {
			return false, nil
		}
		if err != nil {
			return false, o.report(err, part, "")
		}
	}
	return true, nil
}

var errFound = errors.New("found")
