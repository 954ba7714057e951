package layers

import (
	"errors"

	"golang.org/x/sys/unix"

	"snapfs/internal/livestate"
)

// move is one rename that is being carried out.
type move struct {
	fromDir, toDir   *node
	fromName, toName string
	from, to         hit // to is empty where nothing shows at the target
	node, target     *node
	exchange         bool
	white            bool // leave a whiteout that callers see at the old name
}

// Rename moves a name; flags are RENAME_NOREPLACE, RENAME_EXCHANGE and RENAME_WHITEOUT of renameat2(2). Directories of
// a lower move in O(1) by redirect.
func (o *Overlay) Rename(oldParent NodeID, oldName string, newParent NodeID, newName string, flags uint32) error {
	return o.Noting(nil).Rename(oldParent, oldName, newParent, newName, flags)
}

// Rename is Overlay.Rename for a request.
func (v Noted) Rename(oldParent NodeID, oldName string, newParent NodeID, newName string, flags uint32) error {
	if err := errors.Join(checkName(oldName), checkName(newName)); err != nil {
		return err
	}
	const known = unix.RENAME_NOREPLACE | unix.RENAME_EXCHANGE | unix.RENAME_WHITEOUT
	if flags&^known != 0 || flags&unix.RENAME_EXCHANGE != 0 && flags != unix.RENAME_EXCHANGE {
		return unix.EINVAL
	}
	return v.status(func() error { return v.renameNew(oldParent, oldName, newParent, newName, flags) })
}

func (v Noted) renameNew(oldParent NodeID, oldName string, newParent NodeID, newName string, flags uint32) error {
	o := v.Overlay
	var held []*node
	defer func() { o.dropHeld(held) }()
	return v.mutateShared(func(t mutation) error {
		m := &move{
			fromName: oldName, toName: newName,
			exchange: flags&unix.RENAME_EXCHANGE != 0, white: flags&unix.RENAME_WHITEOUT != 0,
		}
		defer func() { held = append(held, m.held()...) }()
		if !t.exclusive {
			return o.moveShared(t, m, oldParent, newParent, flags)
		}
		if err := o.planMove(m, oldParent, newParent, flags); err != nil {
			return err
		}
		if m.node == m.target {
			return nil // two names of one file: nothing to do
		}
		if err := o.readyMove(m); err != nil {
			return err
		}
		if m.exchange {
			return o.exchange(t, m)
		}
		return o.moveOver(t, m)
	})
}

// noteMove notes the facts of a rename, of what is at from, that the host is asked for next. white says that a whiteout
// is left; subs is what subsBefore says of the new directory.
func (t mutation) noteMove(m *move, from location, white bool, subs uint64) {
	if t.in == nil {
		return
	}
	host := m.node.top.host
	if host == 0 {
		if a, err := from.stat(); err == nil {
			host = a.Ino
		}
	}
	f := livestate.Facts{
		Kind: intentRename, Nodes: [4]uint64{uint64(m.fromDir.id), uint64(m.toDir.id), uint64(m.node.id)},
		Inodes: [4]uint64{host}, Names: [2]string{m.fromName, m.toName}, Values: [8]uint64{subs},
	}
	if m.target != nil {
		f.Nodes[3] = uint64(m.target.id)
	}
	for _, g := range []struct {
		on   bool
		flag uint64
	}{{m.exchange, renameExchange}, {white, renameCovers}, {m.white, renameWhiteout}} {
		if g.on {
			f.Values[1] |= g.flag
		}
	}
	t.in.Doing(&f)
}

// held lists the nodes that planMove has taken references of.
func (m *move) held() []*node {
	var out []*node
	if m.node != nil {
		out = append(out, m.node)
	}
	if m.target != nil {
		out = append(out, m.target)
	}
	return out
}

// dropHeld gives back references taken by a call.
func (o *Overlay) dropHeld(held []*node) {
	o.tree.RLock()
	defer o.tree.RUnlock()
	for _, n := range held {
		o.discard(o.nodes.drop(n, 1, 0))
	}
}

// planMove finds what is moved and what it meets, and makes the checks of rename(2). tree is held for writing.
func (o *Overlay) planMove(m *move, oldParent, newParent NodeID, flags uint32) error {
	var err error
	if m.fromDir, err = o.dirNode(oldParent); err != nil {
		return err
	}
	if m.toDir, err = o.dirNode(newParent); err != nil {
		return err
	}
	if err := o.meet(m, flags); err != nil {
		return err
	}
	o.reviveLocked(m.node)
	if m.target != nil {
		o.reviveLocked(m.target)
	}
	return o.mayMove(m)
}

// meet finds the nodes of a move in its directories. tree is held.
func (o *Overlay) meet(m *move, flags uint32) error {
	exists, err := o.sight(m)
	switch {
	case err != nil:
		return err
	case exists && flags&unix.RENAME_NOREPLACE != 0:
		return unix.EEXIST
	case !exists && m.exchange:
		return unix.ENOENT
	}
	m.node = o.nodes.enter(m.fromDir, m.fromName, m.from)
	if exists {
		m.target = o.nodes.enter(m.toDir, m.toName, m.to)
	}
	return nil
}

// sight looks the names of a move up, and reports whether there is something at the target. tree is held.
func (o *Overlay) sight(m *move) (exists bool, err error) {
	if m.fromDir.dead || m.toDir.dead {
		return false, unix.ENOENT
	}
	if m.from, err = o.search(m.fromDir, 0, m.fromName); err != nil {
		return false, o.report(err, m.fromDir.top, m.fromName)
	}
	m.to, err = o.search(m.toDir, 0, m.toName)
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return false, o.report(err, m.toDir.top, m.toName)
	}
	return err == nil, nil
}

// mayMove makes those checks of rename(2) that go by what is moved and what it meets. tree is held.
func (o *Overlay) mayMove(m *move) error {
	if m.node == m.target {
		return nil
	}
	if isDir(m.node.typ) && within(m.toDir, m.node) {
		return unix.EINVAL
	}
	if m.target == nil {
		return nil
	}
	if isDir(m.target.typ) && within(m.fromDir, m.target) {
		if m.exchange {
			return unix.EINVAL
		}
		return unix.ENOTEMPTY
	}
	if m.exchange {
		return nil
	}
	switch from, to := isDir(m.node.typ), isDir(m.target.typ); {
	case from && !to:
		return unix.ENOTDIR
	case !from && to:
		return unix.EISDIR
	case to:
		empty, err := o.isEmpty(m.to.parts)
		if err != nil {
			return err
		}
		if !empty {
			return unix.ENOTEMPTY
		}
	}
	return nil
}

// within reports whether n is dir or below it.
func within(n, dir *node) bool {
	for ; n != nil; n = n.parent {
		if n == dir {
			return true
		}
	}
	return false
}

// readyMove asks for the copy-ups that a move needs, before anything is changed.
func (o *Overlay) readyMove(m *move) error {
	for _, n := range []*node{m.fromDir, m.toDir, m.node} {
		if !o.inUpper(n) {
			return o.needUp(n, false)
		}
	}
	if t := m.target; t != nil && !o.inUpper(t) && (m.exchange || !isDir(t.typ) && m.to.attr.Nlink > 1) {
		return o.needUp(t, false)
	}
	return nil
}

// moveOver renames over nothing, a whiteout, a file or an empty directory. tree is held for writing.
func (o *Overlay) moveOver(t mutation, m *move) error {
	white, err := o.shownBelow(m.fromDir, m.fromName)
	if err != nil {
		return err
	}
	defer o.countingHere(m.node)()
	if err := o.readyLocation(m.node, m.toDir); err != nil {
		return err
	}
	targetUp := m.target != nil && o.inUpper(m.target)
	defer o.settleOrphan()
	if m.target != nil {
		if targetUp {
			if err := o.beforeOver(m.target); err != nil {
				return err
			}
		}
		defer o.keptName(m.target)
	}
	s := o.upper.store
	fh, err := s.dir(m.fromDir.top)
	if err != nil {
		return err
	}
	defer fh.release()
	th, err := s.dir(m.toDir.top)
	if err != nil {
		return err
	}
	defer th.release()
	if err := o.markImpure(m.node, th.fd); err != nil {
		return err
	}
	from, to := nameIn(fh.fd, m.fromName), nameIn(th.fd, m.toName)
	subs := 0
	if m.target != nil {
		if isDir(m.target.typ) && !targetUp {
			subs = -1
		}
		if err := o.loses(m.target, m.to, to, targetUp); err != nil {
			return err
		}
	}
	o.countBefore(m.toDir, nameIn(th.fd, "."))
	o.countOver(m, to, targetUp)
	defer o.nodes.intendRename(m.node, m.fromDir, m.fromName, m.toDir, m.toName)()
	t.noteMove(m, from, white, subsBefore(nameIn(th.fd, "."), subs))
	moved := false
	if isDir(m.node.typ) {
		moved, err = o.moveDir(from, to, white, m.target)
	} else {
		moved, err = o.moveFile(from, to, white)
	}
	if !moved {
		o.countNotOver(m)
		return err
	}
	o.countAfter(m.toDir, nameIn(th.fd, "."))
	err = errors.Join(
		err, o.touched(m.fromDir, nameIn(fh.fd, "."), 0), o.touched(m.toDir, nameIn(th.fd, "."), subs), o.touched(m.node, to, 0),
	) // it has moved all the same
	if m.target != nil {
		o.unlinked(m.target, m.toDir, m.toName, false)
	}
	if o.reads != nil {
		o.noteMoved(m.fromDir, m.fromName, m.toDir, m.toName, false)
	}
	o.renamed(m.node, m.fromDir, m.fromName, m.toDir, m.toName)
	o.listings.remove(m.fromDir, m.fromName)
	o.listings.add(m.toDir, m.toName, m.node)
	if err != nil || !m.white {
		return err
	}
	// A crash just here loses the whiteout, never the file.
	made, err := o.makeIn(m.fromDir, from, creation{mode: unix.S_IFCHR}, white)
	if err != nil {
		return err
	}
	n, err := o.nodes.get(o.createdIn(m.fromDir, m.fromName, made).Node)
	if err == nil {
		o.discard(o.nodes.drop(n, 1, 0))
	}
	return err
}

// markImpure marks a directory of the upper that is to hold an inode which only its attributes describe.
func (o *Overlay) markImpure(n *node, dirfd int) error {
	if !n.special() {
		return nil
	}
	return nameIn(dirfd, ".").setxattr(xattrImpure, []byte("y"), 0)
}

// moveFile renames a non-directory in the upper. moved says that it has its new name, which it may have in spite of an
// error.
func (o *Overlay) moveFile(from, to location, white bool) (moved bool, err error) {
	if !white {
		err := unix.Renameat(from.dirfd, from.name, to.dirfd, to.name)
		return err == nil, err
	}
	u := o.upper
	if !u.attrWhiteouts {
		err := unix.Renameat2(from.dirfd, from.name, to.dirfd, to.name, unix.RENAME_WHITEOUT)
		if !errors.Is(err, unix.EINVAL) {
			return err == nil, err
		}
	}
	// Without the host's help: the whiteout takes its place last, so a crash may show the file twice, but never lose
	// it. What takes room comes before the file moves.
	tmp := nameIn(u.work, u.temp())
	if err := u.whiteout(tmp); err != nil {
		return false, err
	}
	err = u.markWhiteouts(from.dirfd)
	if err == nil {
		err = unix.Renameat(from.dirfd, from.name, to.dirfd, to.name)
		moved = err == nil
	}
	if err == nil {
		steps.At("name moved")
		err = unix.Renameat(tmp.dirfd, tmp.name, from.dirfd, from.name)
	}
	if err != nil {
		_ = unix.Unlinkat(tmp.dirfd, tmp.name, 0) // the first error counts
	}
	return moved, err
}

// moveDir renames a directory in the upper; at the target may be a whiteout or a directory that shows no names. No
// moment shows a target's directory, target, under the old name. moved is as moveFile's. tree is held for writing.
func (o *Overlay) moveDir(from, to location, white bool, target *node) (moved bool, err error) {
	f, err := o.upper.store.examine(to)
	switch {
	case errors.Is(err, unix.ENOENT):
		return o.moveFile(from, to, white)
	case err != nil:
		return false, err
	case f.whiteout:
		if err := o.upper.markWhiteouts(from.dirfd); err != nil {
			return false, err
		}
		if err := unix.Renameat2(from.dirfd, from.name, to.dirfd, to.name, unix.RENAME_EXCHANGE); err != nil {
			return false, err
		}
		if !white {
			steps.At("name moved")
			_ = unix.Unlinkat(from.dirfd, from.name, 0) // a whiteout that is left over hides nothing
		}
		return true, nil
	}
	moved, err = o.moveFile(from, to, white)
	if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) {
		if err = o.clearWhiteouts(target, to); err == nil {
			moved, err = o.moveFile(from, to, white)
		}
	}
	return moved, err
}

// clearWhiteouts empties a directory of the upper, n at a location, that holds nothing but whiteouts, and still shows
// nothing. Overlay.tree is held for writing.
func (o *Overlay) clearWhiteouts(n *node, at location) error {
	if err := at.setxattr(xattrOpaque, []byte("y"), 0); err != nil {
		return err
	}
	o.nodes.setTop(n, n.top, nil) // the move may fail yet
	return emptyDir(at.dirfd, at.name)
}

// renamed gives n its new name. tree is held for writing.
func (o *Overlay) renamed(n, fromDir *node, fromName string, toDir *node, toName string) {
	t := &o.nodes
	t.mu.Lock()
	defer t.mu.Unlock()
	if n.parent == fromDir && n.name == fromName {
		t.unaliasLocked(n, toDir, toName) // a look-up may have met it there
		t.moveLocked(n, toDir, toName)
		n.top.parent, n.top.name = toDir.top, toName
		return
	}
	if t.unaliasLocked(n, fromDir, fromName) {
		t.aliasLocked(n, toDir, toName)
	}
}

// exchange swaps two names. tree is held for writing.
func (o *Overlay) exchange(t mutation, m *move) error {
	defer o.countingHere(m.node)()
	defer o.countingHere(m.target)()
	if err := o.readyLocation(m.node, m.toDir); err != nil {
		return err
	}
	if err := o.readyLocation(m.target, m.fromDir); err != nil {
		return err
	}
	s := o.upper.store
	fh, err := s.dir(m.fromDir.top)
	if err != nil {
		return err
	}
	defer fh.release()
	th, err := s.dir(m.toDir.top)
	if err != nil {
		return err
	}
	defer th.release()
	if err := errors.Join(o.markImpure(m.node, th.fd), o.markImpure(m.target, fh.fd)); err != nil {
		return err
	}
	defer o.nodes.intendRename(m.node, m.fromDir, m.fromName, m.toDir, m.toName)()
	defer o.nodes.intendRename(m.target, m.toDir, m.toName, m.fromDir, m.fromName)()
	t.noteMove(m, nameIn(fh.fd, m.fromName), false, 0)
	if err := unix.Renameat2(fh.fd, m.fromName, th.fd, m.toName, unix.RENAME_EXCHANGE); err != nil {
		return err
	}
	steps.At("names exchanged")
	if o.reads != nil {
		o.noteMoved(m.fromDir, m.fromName, m.toDir, m.toName, true)
	}
	o.swapped(m)
	o.listings.add(m.fromDir, m.fromName, m.target)
	o.listings.add(m.toDir, m.toName, m.node)
	return errors.Join(o.changed(m.fromDir), o.changed(m.toDir), o.changed(m.node), o.changed(m.target))
}

// swapped exchanges the names of two nodes.
func (o *Overlay) swapped(m *move) {
	// Neither name may be mistaken for the other's in between, so the first one waits under a name that cannot be.
	o.renamed(m.node, m.fromDir, m.fromName, m.toDir, "/")
	o.renamed(m.target, m.toDir, m.toName, m.fromDir, m.fromName)
	o.renamed(m.node, m.toDir, "/", m.toDir, m.toName)
}

// readyLocation prepares an inode in the upper for a place where look-ups by its name lead elsewhere: what has parts
// below gets a redirect, other directories become opaque if the new parent is merged.
func (o *Overlay) readyLocation(n, toDir *node) error {
	switch {
	case len(n.below) > 0:
		return o.setRedirect(n)
	case isDir(n.typ) && len(toDir.below) > 0:
		p, h, err := n.location()
		if err != nil {
			return err
		}
		defer h.release()
		return p.setxattr(xattrOpaque, []byte("y"), 0)
	}
	return nil
}
