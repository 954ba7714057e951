package layers

import (
	"cmp"
	"errors"

	"golang.org/x/sys/unix"

	"snapfs/internal/livestate"
)

// Mutations are shared or exclusive. One that adds or takes away a single name, or that is of one inode, runs beside
// others: it locks the directory and the inode that it is about, asks the host for the change without a lock that
// look-ups need, and makes it known in the end. Until then a look-up meets what was before, or the host's new state,
// which leads to the same node: where that would have another name or another part then, the node says so before
// (pendingChange). What moves directories, or changes several names or the parts of a file, is exclusive.

// mutation is how one change runs.
type mutation struct {
	o         *Overlay
	exclusive bool // it holds names and tree for writing
	in        *livestate.Request
}

// errExclusive says that a change cannot run beside others.
var errExclusive = errors.New("must run exclusively")

// mutateShared runs fn inside the gate, beside other changes; with errExclusive it runs it again, exclusively.
func (v Noted) mutateShared(fn func(t mutation) error) error {
	o := v.Overlay
	err := o.withCopyUp(func() error {
		o.names.RLock()
		defer o.names.RUnlock()
		if o.upper == nil {
			return unix.EROFS
		}
		return fn(mutation{o: o, in: v.in})
	})
	if errors.Is(err, errExclusive) {
		return o.mutateExclusive(func() error { return fn(mutation{o, true, v.in}) })
	}
	return err
}

// lock takes a node's lock, for a change of it or, of a directory, of names in it. The lock of a directory comes before
// those of what is in it. tree is not held, unless the mutation is exclusive and nobody else has a node's lock for a
// change.
func (t mutation) lock(n *node) {
	if !t.exclusive {
		n.lock.Lock()
	}
}

func (t mutation) unlock(n *node) {
	if !t.exclusive {
		t.o.unlock(n)
	}
}

// lockBoth is lock for two nodes, which may be one. Directories come before files, those further up before those below
// them, as a directory comes before what is in it; nobody moves one meanwhile.
func (t mutation) lockBoth(a, b *node) (unlock func()) {
	if a == b {
		t.lock(a)
		return func() { t.unlock(a) }
	}
	if c := cmp.Compare(a.depth(), b.depth()); c > 0 || c == 0 && a.id > b.id {
		a, b = b, a
	}
	t.lock(a)
	t.lock(b)
	return func() {
		t.unlock(b)
		t.unlock(a)
	}
}

// depth is how far below the root a directory is; 0 for all else.
func (n *node) depth() (d int) {
	if isDir(n.typ) {
		for ; n.parent != nil; n = n.parent {
			d++
		}
	}
	return d
}

// reach opens n's inode if it is by this name, which it is about to lose, that it is reached: a shared mutation is seen
// between the host's change and its own. Else it gives -1.
func (t mutation) reach(n, p *node, name string) (fd int, err error) {
	var at location
	var h hold
	need := false
	err = t.read(func() error {
		o := t.o
		o.nodes.mu.Lock()
		need = (len(n.aliases) == 0 || n.parent == p && n.name == name) && n.pin == 0 && !o.orphans.has(n)
		o.nodes.mu.Unlock()
		if !need {
			return nil
		}
		if !o.mayPin() {
			return errExclusive // the orphan directory takes one at a time
		}
		at, h, err = n.location()
		return err
	})
	if err != nil || !need {
		return -1, err
	}
	defer h.release()
	fd, err = openat(at.dirfd, at.name, unix.O_PATH, 0)
	if noRoom(err) {
		return -1, errExclusive
	}
	return fd, err
}

// read runs fn with tree held.
func (t mutation) read(fn func() error) error {
	if !t.exclusive {
		t.o.tree.RLock()
		defer t.o.tree.RUnlock()
	}
	return fn()
}

// publish runs fn, which changes no more than what is in memory, with tree held for writing.
func (t mutation) publish(fn func()) {
	if !t.exclusive {
		t.o.tree.Lock()
		defer t.o.tree.Unlock()
	}
	fn()
}

// dir gives a directory by its id, locked.
func (t mutation) dir(id NodeID) (p *node, err error) {
	err = t.read(func() error {
		p, err = t.o.dirNode(id)
		return err
	})
	if err == nil {
		t.lock(p)
	}
	return p, err
}

// inode gives a node that is in the upper, locked, and its location.
func (t mutation) inode(id NodeID, ready func(n *node) error) (n *node, p location, h hold, err error) {
	err = t.read(func() error {
		n, err = t.o.nodes.get(id)
		return err
	})
	if err != nil {
		return nil, p, h, err
	}
	t.lock(n)
	err = t.read(func() error {
		if err := ready(n); err != nil {
			return err
		}
		p, h, err = n.location()
		return err
	})
	if err != nil {
		t.unlock(n)
	} else {
		t.o.countBefore(n, p)
	}
	return n, p, h, err
}

// thaw waits, with no lock that look-ups need, while the host is frozen: it asks for a change that changes nothing.
// What follows waits for the host only if that is frozen in the same moment.
func (u *upper) thaw() {
	_ = unix.Unlinkat(u.work, "#", 0) // there is no such file
}

// thaw is upper.thaw for those outside of the gate.
func (o *Overlay) thaw() {
	o.tree.RLock()
	u := o.upper
	if u != nil {
		u.use()
	}
	o.tree.RUnlock()
	if u != nil {
		u.thaw()
		u.release()
	}
}
