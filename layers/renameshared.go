package layers

import (
	"errors"

	"golang.org/x/sys/unix"
)

// moveShared renames a file of the upper, over nothing or over another file, beside other changes. Other renames are
// exclusive: a directory, which others are reached by, or a file whose data is below, which gets a redirect.
func (o *Overlay) moveShared(t mutation, m *move, oldParent, newParent NodeID, flags uint32) error {
	if m.exchange || m.white {
		return errExclusive
	}
	err := t.read(func() (err error) {
		if m.fromDir, err = o.dirNode(oldParent); err == nil {
			m.toDir, err = o.dirNode(newParent)
		}
		return err
	})
	if err != nil {
		return err
	}
	defer t.lockBoth(m.fromDir, m.toDir)()
	err = t.read(func() error {
		if err := o.meet(m, flags); err != nil {
			return err
		}
		if isDir(m.node.typ) {
			return errExclusive
		}
		return o.mayMove(m)
	})
	switch {
	case err != nil || m.node == m.target:
		return err // two names of one file: nothing to do
	case m.target == nil:
		defer t.lockBoth(m.node, m.node)()
	default:
		defer t.lockBoth(m.node, m.target)()
	}
	var s sharedRename
	if err := t.read(func() error { return s.plan(o, m) }); err != nil {
		return err
	}
	defer s.from.release()
	defer s.to.release()
	return s.run(t, m)
}

// sharedRename is a rename that runs beside other changes.
type sharedRename struct {
	from, to  hold   // the directories
	white     bool   // a layer below shows the old name
	targetUp  bool   // the target is in the upper
	last      bool   // it has no other name
	isSpecial bool   // see node.special
	kept      uint32 // serial of the name that the target gets in the orphan directory; 0: none
	below     string // where the parts of the target in the layers below are, if it gets one; "": it has none
}

// plan finds out what there is to do, with everything locked that it is about. tree is held.
func (s *sharedRename) plan(o *Overlay, m *move) error {
	if _, err := o.sight(m); err != nil { // another name of either may be gone
		return err
	}
	for _, n := range []*node{m.node, m.target} {
		if n != nil && (n.dead || n.renumbered() && n.top.host == 0) {
			return errExclusive
		}
	}
	if err := o.readyMove(m); err != nil {
		return err
	}
	if len(m.node.below) > 0 || m.target != nil && m.target.ino == m.node.ino {
		return errExclusive // of two with one number, a look-up could not tell which it has met
	}
	var err error
	if s.white, err = o.shownBelow(m.fromDir, m.fromName); err != nil {
		return err
	}
	if s.white && o.upper.attrWhiteouts {
		return errExclusive // the host does not leave one by itself
	}
	if m.target != nil {
		s.targetUp = o.inUpper(m.target)
		s.last = s.targetUp && m.to.attr.Nlink == 1
		if s.last && o.orphans.live && len(m.target.below) > 0 {
			if s.below, err = o.lowerPath(m.target); err != nil {
				return err
			}
		}
	}
	s.isSpecial = m.node.special()
	if s.from, err = o.upper.store.dir(m.fromDir.top); err != nil {
		return err
	}
	if s.to, err = o.upper.store.dir(m.toDir.top); err != nil {
		s.from.release()
	}
	return err
}

// run makes the change.
func (s *sharedRename) run(t mutation, m *move) error {
	o := t.o
	pin, err := t.reach(m.node, m.fromDir, m.fromName)
	if err != nil {
		return err
	}
	over := -1
	if s.targetUp {
		if over, err = t.reach(m.target, m.toDir, m.toName); err != nil {
			if pin >= 0 {
				_ = unix.Close(pin) // O_PATH
			}
			return err
		}
	}
	t.publish(func() {
		if pin >= 0 {
			o.setPin(m.node, pin)
		}
		if over >= 0 {
			o.setPin(m.target, over)
		}
		m.node.pending = &pendingChange{location: alias{m.toDir, m.toName}, layer: o.upper.layer}
		if s.last && o.orphans.live {
			m.target.pending = &pendingChange{over: true}
		}
	})
	intended := o.nodes.intendRename(m.node, m.fromDir, m.fromName, m.toDir, m.toName)
	if m.target != nil {
		defer o.nodes.intendPromotion(m.target, m.toDir, m.toName)()
	}
	moved, err := s.change(t, m)
	t.publish(func() {
		defer intended()
		m.node.pending = nil
		if m.target != nil {
			m.target.pending = nil
		}
		if moved {
			if m.target != nil {
				m.target.kept = s.kept
				o.unlinked(m.target, m.toDir, m.toName, s.last)
			}
			if o.reads != nil {
				o.noteMoved(m.fromDir, m.fromName, m.toDir, m.toName, false)
			}
			o.renamed(m.node, m.fromDir, m.fromName, m.toDir, m.toName)
			o.listings.remove(m.fromDir, m.fromName)
			o.listings.add(m.toDir, m.toName, m.node)
		} else if over >= 0 {
			o.unpin(m.target)
		}
		if pin >= 0 {
			o.unpin(m.node)
		}
	})
	return err
}

// change has the host make it. moved is as moveFile's.
func (s *sharedRename) change(t mutation, m *move) (moved bool, err error) {
	o := t.o
	if s.isSpecial {
		if err := nameIn(s.to.fd, ".").setxattr(xattrImpure, []byte("y"), 0); err != nil {
			return false, err
		}
	}
	from, to := nameIn(s.from.fd, m.fromName), nameIn(s.to.fd, m.toName)
	if m.target != nil {
		if err := o.loses(m.target, m.to, to, s.targetUp); err != nil {
			return false, err
		}
	}
	if s.last && o.orphans.live {
		if err := s.keep(o, m, to); err != nil {
			o.nodes.notKept(err) // it is pinned
		}
		defer func() {
			if !moved && s.kept != 0 {
				o.eraseOrphan(orphanName(m.target.id, uint64(s.kept)))
			}
		}()
	}
	o.countBefore(m.toDir, nameIn(s.to.fd, "."))
	o.countOver(m, to, s.targetUp)
	t.noteMove(m, from, s.white, 0)
	if s.white {
		err = unix.Renameat2(from.dirfd, from.name, to.dirfd, to.name, unix.RENAME_WHITEOUT)
		if errors.Is(err, unix.EINVAL) {
			err = errExclusive
		}
	} else {
		err = unix.Renameat(from.dirfd, from.name, to.dirfd, to.name)
	}
	if err != nil {
		o.countNotOver(m)
		return false, err
	}
	o.countAfter(m.toDir, nameIn(s.to.fd, "."))
	if s.white {
		o.upper.store.numbered(from)
	}
	steps.At("name moved")
	return true, errors.Join(
		o.touched(m.fromDir, nameIn(s.from.fd, "."), 0), o.touched(m.toDir, nameIn(s.to.fd, "."), 0), o.touched(m.node, to, 0),
	)
}

// keep gives the target, which loses its name, one in the orphan directory.
func (s *sharedRename) keep(o *Overlay, m *move, at location) error {
	if s.below != "" && len(s.below) <= longestRedirect {
		if err := o.orphans.lead(o.upper.store, at, s.below); err != nil {
			return err
		}
	}
	serial := o.orphans.next()
	err := unix.Linkat(at.dirfd, at.name, o.orphans.root(), orphanName(m.target.id, uint64(serial)), 0)
	if err == nil {
		s.kept = serial
		o.orphans.count.Add(1)
	}
	return err
}
