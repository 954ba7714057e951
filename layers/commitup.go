package layers

import (
	"slices"

	"golang.org/x/sys/unix"
)

// commitUp moves the prepared copy to its name, if n is still what was copied; else nothing is placed and the caller
// of copyUp starts over.
func (o *Overlay) commitUp(n *node, s *source, tmp string, names group) (placed bool, err error) {
	o.gate.RLock()
	defer o.gate.RUnlock()
	if !s.dead && len(names.dirs) == 0 {
		return o.commitApart(n, s, tmp)
	}
	o.names.Lock()
	defer o.names.Unlock()
	s.upper.thaw()
	o.tree.Lock()
	defer o.tree.Unlock()
	if !o.stillIs(n, s) {
		return false, nil
	}
	from := nameIn(s.upper.work, tmp)
	below := s.partsBelow(n)
	if s.dead {
		placed, err := o.commitOrphan(n, from, below, s.copied)
		if placed {
			o.countNew(n, s.blocks, true)
		}
		return placed, err
	}
	if !o.inUpper(n.parent) {
		return false, nil
	}
	others := o.showing(n, s.top, names)
	if isReg(n.typ) && below != nil && len(others) > 0 {
		path, err := o.lowerPath(n)
		if err == nil {
			err = s.upper.store.putRedirect(from, path)
		}
		if err == nil && o.counts() {
			s.blocks, err = from.blocks()
		}
		if err != nil {
			return false, err
		}
	}
	if len(others) > 0 {
		placed, err = o.placeGroup(n, from, others)
	} else {
		placed, err = o.placeUp(n, from)
	}
	if placed {
		o.placedUp(n, s, below)
		descriptors.drop(s.top)
	}
	return placed, err
}

// commitApart is commitUp, beside other changes, for what has one name.
func (o *Overlay) commitApart(n *node, s *source, tmp string) (placed bool, err error) {
	t := mutation{o: o}
	o.names.RLock()
	defer o.names.RUnlock()
	same := func() (ok bool) {
		_ = t.read(func() error {
			ok = o.stillIs(n, s) && o.inUpper(n.parent)
			return nil
		})
		return ok
	}
	if !same() { // before it is locked, a directory is where it was
		return false, nil
	}
	t.lock(s.parent)
	defer t.unlock(s.parent)
	t.lock(n)
	defer t.unlock(n)
	if !same() {
		return false, nil
	}
	var visible Attr
	err = t.read(func() error {
		visible, err = o.attr(s.parent)
		return err
	})
	if err != nil {
		return false, err
	}
	t.publish(func() {
		n.pending = &pendingChange{location: alias{n.parent, n.name}, layer: s.upper.layer}
		s.parent.pending = &pendingChange{visible: &visible}
	})
	placed, err = o.placeUp(n, nameIn(s.upper.work, tmp))
	t.publish(func() {
		n.pending, s.parent.pending = nil, nil
		if placed {
			o.placedUp(n, s, s.partsBelow(n))
		}
	})
	if placed {
		descriptors.drop(s.top)
	}
	return placed, err
}

// stillIs reports whether n is what was copied. tree is held.
func (o *Overlay) stillIs(n *node, s *source) bool {
	o.nodes.refresh(n)
	return o.upper == s.upper && n.top == s.top && slices.Equal(n.below, s.below) && n.parent == s.parent && n.name == s.name && n.dead == s.dead
}

// partsBelow are the parts that the copy has below it.
func (s *source) partsBelow(n *node) []*part {
	if isReg(n.typ) && (s.data != nil || s.attr.Size == 0) || !isReg(n.typ) && !isDir(n.typ) {
		return nil
	}
	return slices.Concat([]*part{s.top}, s.below)
}

// placeUp moves a prepared copy of n from the work directory to its name, without a change that callers could see. It
// may be placed in spite of an error. n's directory is locked, or tree held for writing.
func (o *Overlay) placeUp(n *node, from location) (placed bool, err error) {
	subs := 0
	if isDir(n.typ) {
		subs = -1 // the host counts it from now on
	}
	err = o.keepingTimes(n.parent, n.name, subs, func(dirfd int) error {
		if err := nameIn(dirfd, ".").setxattr(xattrImpure, []byte("y"), 0); err != nil {
			return err
		}
		if err := unix.Renameat(from.dirfd, from.name, dirfd, n.name); err != nil {
			return err
		}
		placed = true
		steps.At("copy in place")
		return nil
	})
	return placed, err
}

// placedUp gives n the part that was copied. tree is held for writing.
func (o *Overlay) placedUp(n *node, s *source, below []*part) {
	top := &part{layer: s.upper.layer, parent: n.parent.top, name: n.name, ino: n.ino, host: s.copied}
	top.ref.Store(inodeInfoOf(s.attr).notes(isDir(n.typ)))
	o.nodes.setTop(n, top, below)
	o.countNew(n, s.blocks, false)
}

// commitOrphan keeps the copy of a file that has no name any more: by a descriptor, or in the orphan directory.
func (o *Overlay) commitOrphan(n *node, from location, below []*part, host uint64) (bool, error) {
	old := n.top
	if o.orphans.live || !o.mayPin() {
		s := &o.orphans
		var top *part
		err := s.open(o.upper, &o.share)
		if err == nil {
			top = s.part(n)
			top.host = host
			if s.live && len(below) > 0 && len(below[0].path()) <= longestRedirect {
				err = s.lead(o.upper.store, from, below[0].path())
			}
		}
		if err == nil {
			err = unix.Renameat(from.dirfd, from.name, s.root(), top.name)
		}
		if err == nil {
			s.count.Add(1)
			o.unpin(n)
			n.free = true
			top.ref.Store(notes)
			if isDir(n.typ) {
				below = nil
			}
			o.nodes.setTop(n, top, below)
			descriptors.drop(old)
			o.nodes.recordOrigin(n, old.layer)
			return true, nil
		}
		if !o.mustPin() {
			return false, err
		}
	}
	fd, err := openat(from.dirfd, from.name, unix.O_PATH, 0)
	if err != nil {
		return false, err
	}
	flags := 0
	if isDir(n.typ) {
		flags = unix.AT_REMOVEDIR
	}
	if err := unix.Unlinkat(from.dirfd, from.name, flags); err != nil {
		_ = unix.Close(fd) // O_PATH
		return false, err
	}
	o.unpin(n)
	o.setPin(n, fd)
	n.free = true
	top := &part{layer: o.upper.layer, parent: old.parent, name: old.name, ino: n.ino, host: host}
	top.ref.Store(notes)
	o.nodes.setTop(n, top, below)
	descriptors.drop(old)
	return true, nil
}
