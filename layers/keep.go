package layers

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// erase takes the name away, with what the host has of it, and leaves a whiteout if white is set. In an overlay that a
// successor may go on with, what the kernel refers to gets a name in the orphan directory with it, if the host has room
// for one: to remove something must be possible on a full disk.
func (v *removal) erase(at location, own, white bool) error {
	o := v.t.o
	dir := isDir(v.h.attr.Mode)
	s := &o.orphans
	if !s.live || !own || v.idle || !dir && v.h.attr.Nlink > 1 || s.pending == v.n {
		defer o.nodes.intendPromotion(v.n, v.p, v.name)()
		return o.erase(at, own, dir, white)
	}
	err := v.leadBelow(at)
	switch {
	case err != nil:
	case white:
		v.kept = s.next()
		err = o.eraseKept(at, orphanName(v.n.id, uint64(v.kept)))
	default:
		err = v.moveAway(at)
	}
	if err == nil {
		return nil
	}
	v.kept = 0
	if perr := o.erase(at, own, dir, white); perr != nil {
		return perr
	}
	o.nodes.notKept(err)
	return nil
}

// notKept says that something without a name could not be kept for a successor. This process has it pinned.
func (t *table) notKept(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.live.noRoom(fmt.Errorf("a file without a name: %w", err))
}

// leadBelow notes in an inode that loses its name where its parts in the layers below are, as far as a successor needs
// them: the data of a metacopy, or what has been removed from a directory and is in use.
func (v *removal) leadBelow(at location) error {
	o, n, path := v.t.o, v.n, ""
	err := v.t.read(func() (err error) {
		if len(n.below) == 0 || isDir(n.typ) && !o.nodes.held(n) {
			return nil
		}
		path, err = o.lowerPath(n)
		return err
	})
	if err != nil || path == "" || len(path) > longestRedirect {
		return err // longer ones nobody follows
	}
	return o.orphans.lead(o.upper.store, at, path)
}

// held reports whether something refers to a node beside the kernel.
func (t *table) held(n *node) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return n.holds > 0
}

// moveAway moves what the upper has into the orphan directory, which is its removal: if it can, over something that was
// forgotten.
func (v *removal) moveAway(at location) error {
	o := v.t.o
	s, own := &o.orphans, v.h.parts[0].host
	if d, ok := o.reaper.again(isDir(v.h.attr.Mode)); ok {
		v.moving = o.nodes.intendOrphan(v.n, d.serial, own)
		steps.At("removal noted")
		if err := unix.Renameat(at.dirfd, at.name, s.root(), d.name); err == nil {
			v.kept, v.numbered = d.serial, true
			o.reaper.take(reaped{fd: d.fd, of: d.of})
			return nil
		}
		v.moved()
		d.serial = 0
		o.reaper.take(d)
	}
	serial := s.next()
	v.moving = o.nodes.intendOrphan(v.n, serial, own)
	err := unix.Renameat2(at.dirfd, at.name, s.root(), numberedOrphan(serial), unix.RENAME_NOREPLACE)
	if err != nil {
		v.moved()
		return err
	}
	v.kept, v.numbered = serial, true
	s.count.Add(1)
	return nil
}

// moved ends what moveAway has noted.
func (v *removal) moved() {
	if v.moving != 0 {
		v.t.o.nodes.intended(v.moving)
		v.moving = 0
	}
}

// eraseKept is moveAway where a whiteout takes the name, in the same step.
func (o *Overlay) eraseKept(at location, orphan string) error {
	root, u := o.orphans.root(), o.upper
	if err := u.markWhiteouts(at.dirfd); err != nil {
		return err
	}
	to := nameIn(root, orphan)
	if err := u.looseWhiteout(to); err != nil {
		return err
	}
	if err := unix.Renameat2(root, orphan, at.dirfd, at.name, unix.RENAME_EXCHANGE); err != nil {
		_ = unix.Unlinkat(root, orphan, 0) // the first error counts
		return err
	}
	o.orphans.count.Add(1)
	return nil
}

// beforeOver is beforeUnlink for what is renamed over: it gets its name in the orphan directory before, if it is to have
// one. tree is held for writing.
func (o *Overlay) beforeOver(n *node) error {
	if o.orphans.live && n.pin == 0 && !o.orphans.has(n) {
		o.nodes.mu.Lock()
		last := len(n.aliases) == 0
		o.nodes.mu.Unlock()
		if last {
			err := o.moveToOrphans(n)
			if err == nil {
				return nil
			}
			if !errors.Is(err, errElsewhere) {
				o.nodes.notKept(err)
			}
		}
	}
	return o.beforeUnlink(n)
}

// unkeep takes a pinned inode that has a name again out of the orphan directory. tree is held for writing.
func (o *Overlay) unkeep(n *node) {
	if n.kept != 0 {
		o.orphans.remove(n.keptAs())
		n.kept, n.numbered, n.unnamed = 0, false, false
	}
}
