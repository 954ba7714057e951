package layers

import (
	"errors"

	"golang.org/x/sys/unix"

	"snapfs/internal/livestate"
)

// Unlink removes a non-directory; its node lives until Forget.
func (o *Overlay) Unlink(parent NodeID, name string) error { return o.Noting(nil).Unlink(parent, name) }

// Unlink is Overlay.Unlink for a request.
func (v Noted) Unlink(parent NodeID, name string) error {
	return v.remove(parent, name, func(h hit) error {
		if isDir(h.attr.Mode) {
			return unix.EISDIR
		}
		return nil
	})
}

// Rmdir removes an empty directory.
func (o *Overlay) Rmdir(parent NodeID, name string) error { return o.Noting(nil).Rmdir(parent, name) }

// Rmdir is Overlay.Rmdir for a request.
func (v Noted) Rmdir(parent NodeID, name string) error {
	o := v.Overlay
	return v.remove(parent, name, func(h hit) error {
		if !isDir(h.attr.Mode) {
			return unix.ENOTDIR
		}
		empty, err := o.isEmpty(h.parts)
		if err == nil && !empty {
			err = unix.ENOTEMPTY
		}
		return err
	})
}

func (v Noted) remove(parent NodeID, name string, check func(h hit) error) error {
	if err := checkName(name); err != nil {
		return err
	}
	return v.status(func() error { return v.removeNew(parent, name, check) })
}

func (v Noted) removeNew(parent NodeID, name string, check func(h hit) error) error {
	o := v.Overlay
	return v.mutateShared(func(t mutation) error {
		p, err := t.dir(parent)
		if err != nil {
			return err
		}
		defer t.unlock(p)
		v := removal{t: t, p: p, name: name}
		if err := v.find(); err != nil {
			return err
		}
		defer v.release()
		return o.unlinkIn(&v, check)
	})
}

// removal is one name that is taken away.
type removal struct {
	t    mutation
	p    *node // locked
	name string

	n    *node // what it leads to, locked, with a reference
	idle bool  // nobody else refers to n, or can as long as the mutation is exclusive
	h    hit
	kept uint32 // serial of the name that n has got in the orphan directory; 0: none

	numbered bool   // as node.numbered
	moving   uint32 // what intendOrphan has recorded; 0: nothing
}

// find finds what the name leads to.
func (v *removal) find() error {
	o := v.t.o
	look := func() error {
		if v.p.dead {
			return unix.ENOENT
		}
		o.nodes.refreshAt(v.p, v.name)
		var err error
		if v.h, err = o.search(v.p, 0, v.name); err != nil {
			return o.report(err, v.p.top, v.name)
		}
		return nil
	}
	err := v.t.read(func() error {
		err := look()
		if err == nil && !o.inUpper(v.p) {
			err = o.needUp(v.p, false)
		}
		if err == nil {
			v.n = o.nodes.enter(v.p, v.name, v.h)
			v.idle = v.t.exclusive && o.nodes.idle(v.n)
		}
		return err
	})
	if err != nil || v.t.exclusive || v.n.lock.TryLock() {
		return err
	}
	v.n.lock.Lock()
	if err = v.t.read(look); err != nil { // another of its names may be gone
		v.release()
	}
	return err
}

// idle reports whether the caller has the only reference of n.
func (t *table) idle(n *node) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return n.lookups == 1 && n.holds == 0
}

// release gives back what find has taken.
func (v *removal) release() {
	o := v.t.o
	v.t.unlock(v.n)
	_ = v.t.read(func() error {
		o.discard(o.nodes.drop(v.n, 1, 0))
		return nil
	})
}

// unlinkIn takes the name away and leaves a whiteout where a layer below has it.
func (o *Overlay) unlinkIn(v *removal, check func(h hit) error) error {
	t, n, p, h := v.t, v.n, v.p, v.h
	dir := isDir(h.attr.Mode)
	own := h.parts[0].layer == o.upper.layer
	if t.exclusive {
		defer o.settleOrphan()
	}
	var white bool
	var d hold
	err := t.read(func() error {
		if err := check(h); err != nil {
			return err
		}
		if !own && !dir && h.attr.Nlink > 1 {
			return o.needUp(n, false) // the whole group must know of the name that goes
		}
		var err error
		if white, err = o.shownBelow(p, v.name); err == nil {
			d, err = o.upper.store.dir(p.top)
		}
		return err
	})
	if err != nil {
		return err
	}
	defer d.release()
	switch {
	case !own || v.idle:
	case t.exclusive:
		err = o.beforeUnlink(n)
	default:
		var fd int
		if fd, err = t.reach(n, p, v.name); err == nil && fd >= 0 {
			t.publish(func() { o.setPin(n, fd) })
		}
	}
	if err != nil {
		return err
	}
	at := nameIn(d.fd, v.name)
	subs := 0
	if dir && !own {
		subs = -1
	}
	last := own && (dir || h.attr.Nlink == 1)
	o.countBefore(p, nameIn(d.fd, "."))
	if last {
		o.countLast(n, at)
	}
	if err = o.loses(n, h, at, own); err == nil {
		t.in.Doing(&livestate.Facts{
			Kind: intentRemove, Nodes: [4]uint64{uint64(p.id), uint64(n.id)}, Names: [2]string{v.name},
			Values: [8]uint64{subsBefore(nameIn(d.fd, "."), subs)},
		})
		err = v.erase(at, own, white)
	}
	if err != nil {
		o.countNamed(n)
		t.publish(func() { o.keptName(n) })
		return err
	}
	steps.At("name gone")
	err = o.touched(p, nameIn(d.fd, "."), subs) // the name is gone all the same
	o.countAfter(p, nameIn(d.fd, "."))
	t.publish(func() {
		n.kept, n.numbered = v.kept, v.numbered
		o.unlinked(n, p, v.name, last)
		o.listings.remove(p, v.name)
		v.moved()
	})
	return err
}

// loses notes that an inode of the upper, of node n if that is not nil, is about to lose the name at: its ctime moves,
// which its other names show.
func (o *Overlay) loses(n *node, h hit, at location, own bool) error {
	if !own || isDir(h.attr.Mode) || h.attr.Nlink < 2 && n == nil {
		return nil
	}
	if n == nil {
		n = &node{top: h.parts[0], typ: h.attr.Mode & unix.S_IFMT}
	}
	return o.touched(n, at, 0)
}

// find gives the live node of an inode, or nil.
func (t *table) find(s candidate) *node {
	n := t.lockFor(s)
	t.mu.Unlock()
	return n
}

// shownBelow reports whether a layer below the upper shows name in p, so that its removal needs a whiteout.
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

// beforeUnlink keeps the inode behind n, of the upper, if it is about to lose the last name that is known. tree is held
// for writing.
func (o *Overlay) beforeUnlink(n *node) error {
	o.nodes.mu.Lock()
	last := len(n.aliases) == 0
	o.nodes.mu.Unlock()
	if !last {
		return nil
	}
	return o.keep(n)
}

// keptName gives up the pin of an inode that was to lose its name and has it still: it would be used in place of the
// copy that a later change makes of a sealed one. tree is held for writing.
func (o *Overlay) keptName(n *node) {
	if n == nil || n.dead || n.pin == 0 {
		return
	}
	s := n.top.dirStore()
	if s == nil {
		return
	}
	p, h, err := s.at(n.top)
	if err != nil {
		return
	}
	defer h.release()
	named, err := p.stat()
	pinned, perr := location{dirfd: int(n.pin) - 1}.stat()
	if err == nil && perr == nil && named.Ino == pinned.Ino {
		o.unpin(n)
	}
}

// unlinked notes that a name of n, which may be nil, is gone. last says that it was the only one of an inode of the
// upper; who does not know says false. tree is held for writing.
func (o *Overlay) unlinked(n, p *node, name string, last bool) {
	if o.reads != nil {
		o.noteGone(p, name, n)
	}
	if n == nil {
		return
	}
	t := &o.nodes
	t.mu.Lock()
	defer t.mu.Unlock()
	if n.dead || n.parent != p || n.name != name {
		t.unaliasLocked(n, p, name)
		if n.dead && !n.free { // it had a name that nobody had looked at
			if n.free = n.pin > 0 && last; !n.free {
				n.orphaned()
			}
			t.showLocked(n)
			t.recordLocked(n)
		}
		return
	}
	if len(n.aliases) > 0 {
		t.promoteLocked(n)
		n.top.parent, n.top.name = n.parent.top, n.name
		o.unpin(n)
		return
	}
	n.dead = true
	if n.free = n.pin > 0 && last; !n.free {
		n.orphaned()
	}
	t.losesLocked(n)
	o.take(n)
	t.showLocked(n)
	t.recordLocked(n)
}

// orphaned notes whether a pinned inode has no name left in any layer. tree is held for writing.
func (n *node) orphaned() {
	if n.dead && n.pin > 0 && !n.free {
		a, err := location{dirfd: int(n.pin) - 1}.stat()
		n.free = err == nil && (a.Nlink == 0 || isDir(n.typ))
	}
}

// moveLocked makes (p, name) the primary name of n. mu and Overlay.tree are held for writing.
func (t *table) moveLocked(n, p *node, name string) {
	p.holds++
	if n.parent != nil {
		n.parent.holds--
	}
	n.parent, n.name = p, name
	t.showLocked(n)
	t.recordLocked(n)
	t.noteLocked(n)
}

// isEmpty reports whether a directory with these parts shows no names.
func (o *Overlay) isEmpty(parts []*part) (bool, error) {
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
