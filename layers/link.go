package layers

import (
	"errors"

	"golang.org/x/sys/unix"

	"snapfs/internal/livestate"
)

// Link makes a hard link of node.
func (o *Overlay) Link(id, parent NodeID, name string) (Entry, error) {
	return o.Noting(nil).Link(id, parent, name)
}

// Link is Overlay.Link for a request.
func (v Noted) Link(id, parent NodeID, name string) (Entry, error) {
	if err := checkName(name); err != nil {
		return Entry{}, err
	}
	return v.entry(func() (Entry, error) { return v.linkNew(id, parent, name) })
}

func (v Noted) linkNew(id, parent NodeID, name string) (Entry, error) {
	o := v.Overlay
	var e Entry
	err := v.mutateShared(func(t mutation) error {
		p, err := t.dir(parent)
		if err != nil {
			return err
		}
		defer t.unlock(p)
		var n *node
		err = t.read(func() error {
			n, err = o.nodes.get(id)
			return err
		})
		if err != nil {
			return err
		}
		if !isDir(n.typ) {
			t.lock(n)
			defer t.unlock(n)
		}
		l := newLink{n: n, p: p, name: name}
		if err := t.read(func() error { return l.plan(t) }); err != nil {
			return err
		}
		defer l.fh.release()
		defer l.dh.release()
		e, err = l.run(t)
		return err
	})
	return e, err
}

// newLink is a name that a file gets in a directory. Both are locked.
type newLink struct {
	n, p *node
	name string

	covered bool     // by a whiteout
	from    location // n
	fh      hold     // of from
	dh      hold     // p
	special bool     // see node.special
}

// plan makes the checks of link(2), and finds out what there is to do. tree is held.
func (l *newLink) plan(t mutation) error {
	o, n := t.o, l.n
	err := o.upperDir(l.p)
	if err == nil {
		l.covered, err = o.vacant(l.p, l.name)
	}
	switch {
	case err != nil:
		return err
	case isDir(n.typ):
		return unix.EPERM
	case n.dead && (n.pin == 0 || n.kept != 0) && !n.unnamed:
		return unix.ENOENT
	case !o.inUpper(n):
		return o.needUp(n, false)
	}
	if !t.exclusive && (len(n.below) > 0 || n.dead && (n.pin == 0 || !n.free || n.renumbered() || n.top.layer != o.upper.layer)) {
		return errExclusive // it gets a redirect, or comes from elsewhere
	}
	defer o.countingHere(n)()
	if err := errors.Join(o.pinRedirect(n), o.adopt(n)); err != nil {
		return err
	}
	return l.find(o)
}

// find finds the locations, with which the caller releases what it holds of them. tree is held.
func (l *newLink) find(o *Overlay) (err error) {
	l.special = l.n.special()
	if l.from, l.fh, err = l.n.location(); err != nil {
		return err
	}
	if l.dh, err = o.upper.store.dir(l.p.top); err != nil {
		l.fh.release()
	}
	return err
}

// run makes the link.
func (l *newLink) run(t mutation) (Entry, error) {
	o, n := t.o, l.n
	if !t.exclusive {
		t.publish(func() { n.pending = &pendingChange{location: alias{l.p, l.name}, layer: o.upper.layer} })
	}
	if n.dead {
		defer o.nodes.intend(n, l.p, l.name)()
	}
	o.countBefore(l.p, nameIn(l.dh.fd, "."))
	t.in.Doing(&livestate.Facts{Kind: intentLink, Nodes: [4]uint64{uint64(l.p.id), uint64(n.id)}, Names: [2]string{l.name}})
	err := l.make(o)
	if err != nil {
		t.publish(func() { n.pending = nil })
		return Entry{}, err
	}
	steps.At("name linked")
	err = errors.Join(o.touched(l.p, nameIn(l.dh.fd, "."), 0), o.touched(n, l.from, 0)) // it is there all the same
	o.countAfter(l.p, nameIn(l.dh.fd, "."))
	o.countNamed(n)
	t.publish(func() {
		n.pending = nil
		o.linked(n, l.p, l.name)
	})
	var e Entry
	rerr := t.read(func() error {
		a, aerr := o.attr(n)
		if err = errors.Join(err, aerr); err != nil {
			o.discard(o.nodes.drop(n, 1, 0))
			return err
		}
		e = Entry{Node: n.id, Gen: uint64(n.gen.Load()), Attr: a}
		return nil
	})
	return e, rerr
}

// make makes one more name in the host's directory.
func (l *newLink) make(o *Overlay) error {
	at := nameIn(l.dh.fd, l.name)
	if l.special {
		if err := nameIn(at.dirfd, ".").setxattr(xattrImpure, []byte("y"), 0); err != nil {
			return err
		}
	}
	to := at
	if l.covered {
		to = nameIn(o.upper.work, o.upper.temp())
	}
	var err error
	if l.from.name == "" {
		err = unix.Linkat(unix.AT_FDCWD, l.from.proc(), to.dirfd, to.name, unix.AT_SYMLINK_FOLLOW)
	} else {
		err = unix.Linkat(l.from.dirfd, l.from.name, to.dirfd, to.name, 0)
	}
	if err == nil && l.covered {
		if err = replaceWhiteout(to, at, false); err != nil {
			_ = unix.Unlinkat(to.dirfd, to.name, 0) // the first error counts
		}
	}
	return err
}

// special reports whether a listing by the host alone would show an inode of the upper wrongly: its number may come
// from a layer below, or it stands for a device that the overlay means something by. tree is held.
func (n *node) special() bool {
	s := n.top.dirStore()
	if s == nil || n.typ == unix.S_IFCHR || !isReg(n.typ) && !isDir(n.typ) && UserAttributes() || s.inoBase == 0 || n.top.host == 0 {
		return true
	}
	number, err := s.number(n.top.host)
	return err != nil || number != n.ino
}

// linked enters a new name of n, which may have had none, with one more reference. tree is held for writing.
func (o *Overlay) linked(n, p *node, name string) {
	if o.reads != nil {
		o.noteLinked(n, p, name)
	}
	o.nodes.mu.Lock()
	if n.dead {
		n.dead = false
		o.nodes.unaliasLocked(n, p, name) // a look-up may have met it there
		o.nodes.moveLocked(n, p, name)
		if o.orphans.has(n) {
			o.leaveOrphans(n)
		}
		o.unkeep(n)
		n.top.parent, n.top.name = p.top, name
		o.unpin(n)
		o.nodes.showLocked(n)
	} else {
		o.nodes.aliasLocked(n, p, name)
	}
	o.nodes.refLocked(n)
	o.nodes.mu.Unlock()
	o.listings.add(p, name, n)
}
