package layers

import (
	"errors"

	"golang.org/x/sys/unix"

	"snapfs/internal/livestate"
)

// SetAttr changes attributes, copying up metadata only where data need not move.
func (o *Overlay) SetAttr(c Caller, id NodeID, s SetAttr) (Attr, error) {
	return o.Noting(nil).SetAttr(c, id, s)
}

// SetAttr is Overlay.SetAttr for a request.
func (v Noted) SetAttr(c Caller, id NodeID, s SetAttr) (Attr, error) {
	o := v.Overlay
	var a Attr
	err := v.mutateShared(func(t mutation) error {
		n, p, h, err := t.inode(id, func(n *node) error { return o.readyFor(t, n, s) })
		if err != nil {
			return err
		}
		defer t.unlock(n)
		defer h.release()
		if !t.exclusive && o.empties(n, s) {
			return o.emptyFirst(t, c, n, p, s)
		}
		err = o.apply(t, c, n, p, s)
		o.countAfter(n, p)
		if err != nil {
			return err
		}
		steps.At("attributes changed")
		if err := o.touched(n, p, 0); err != nil {
			return err
		}
		return t.read(func() error {
			a, err = o.attr(n)
			return err
		})
	})
	if o.reads != nil && err == nil && s.Valid&SetSize != 0 && s.Size == 0 {
		o.noteEmptied(id)
	}
	return a, err
}

// readyFor checks the change and asks for the copy-up that it needs.
func (o *Overlay) readyFor(t mutation, n *node, s SetAttr) error {
	if s.Valid&SetSize != 0 {
		if isDir(n.typ) {
			return unix.EISDIR
		}
		if !isReg(n.typ) {
			return unix.EINVAL
		}
	}
	data := s.Valid&SetSize != 0 && s.Size > 0
	if data && (!o.inUpper(n) || len(n.below) > 0) {
		some, err := o.byBlocks(n)
		if err != nil {
			return err
		}
		data = !some
	}
	if !o.inUpper(n) {
		return o.needUp(n, data)
	}
	if len(n.below) > 0 && isReg(n.typ) {
		_, busy := o.ups.times(n)
		if data || busy {
			return o.needUp(n, true)
		}
		if t.exclusive && o.empties(n, s) {
			return o.emptied(n)
		}
	}
	return nil
}

// emptyFirst frees what a metacopy has of its data, which may take its time, and leaves it to the exclusive mutation to
// make it a file that has nothing below.
func (o *Overlay) emptyFirst(t mutation, c Caller, n *node, p location, s SetAttr) error {
	var m *blockMap
	err := t.read(func() (err error) {
		m, err = o.blocksOf(n.top, n)
		return err
	})
	if err == nil && m != nil {
		err = o.apply(t, c, n, p, SetAttr{Valid: s.Valid & (SetSize | KillPriv)})
		o.countAfter(n, p)
	}
	if err != nil {
		return err
	}
	return errExclusive
}

// empties reports whether a change takes all data of a metacopy away, which changes its parts.
func (o *Overlay) empties(n *node, s SetAttr) bool {
	return s.Valid&SetSize != 0 && s.Size == 0 && len(n.below) > 0 && isReg(n.typ)
}

// apply makes the change on the host's inode, in the order in which one part undoes no other.
func (o *Overlay) apply(t mutation, c Caller, n *node, p location, s SetAttr) error {
	if n.dead && n.free && s.Valid&KillPriv != 0 && s.Valid&(SetUID|SetGID) != 0 && s.Valid&SetMode == 0 && c.User() == 0 {
		// A copy that the kernel's overlayfs prepares over this mount, first its mode, then its owner, then its name:
		// setuid stays. Of root POSIX allows that.
		a, err := p.stat()
		if err != nil {
			return err
		}
		s.Mode = a.Mode & 0o7777
		if f, again := t.in.Unfinished(); again && f.Kind == intentMode {
			s.Mode = uint32(f.Values[0]) // it may have lost setuid
		} else {
			t.in.Doing(&livestate.Facts{Kind: intentMode, Values: [8]uint64{uint64(s.Mode)}})
		}
		s.Valid |= SetMode
	}
	if s.Valid&KillPriv != 0 && s.Valid&SetMode == 0 { // who is of the group goes by the old one
		if err := o.dropPrivileges(n, p, c); err != nil {
			return err
		}
	}
	if s.Valid&(SetUID|SetGID) != 0 {
		uid, gid := -1, -1
		if s.Valid&SetUID != 0 {
			uid = int(s.UID)
		}
		if s.Valid&SetGID != 0 {
			gid = int(s.GID)
		}
		if err := p.chown(uid, gid); err != nil {
			return err
		}
	}
	if s.Valid&SetMode != 0 {
		if isLnk(n.typ) {
			return unix.EOPNOTSUPP
		}
		if err := p.chmod(s.Mode); err != nil {
			return err
		}
	}
	if s.Valid&SetSize != 0 {
		if !t.exclusive {
			o.upper.thaw() // the first change of a metacopy marks it
		}
		var f target
		err := t.read(func() (err error) {
			f, err = o.target(n)
			return err
		})
		if err != nil {
			return err
		}
		done := o.loseCapability(n, p)
		err = f.truncate(int64(s.Size))
		done()
		f.release()
		if err != nil {
			return err
		}
		steps.At("file cut off")
	}
	if s.Valid&(SetAtime|SetMtime|SetAtimeNow|SetMtimeNow) != 0 {
		atime, mtime := unix.Timespec{Nsec: unix.UTIME_OMIT}, unix.Timespec{Nsec: unix.UTIME_OMIT}
		switch {
		case s.Valid&SetAtimeNow != 0:
			atime.Nsec = unix.UTIME_NOW
		case s.Valid&SetAtime != 0:
			atime = timespec(s.Atime)
		}
		switch {
		case s.Valid&SetMtimeNow != 0:
			mtime.Nsec = unix.UTIME_NOW
		case s.Valid&SetMtime != 0:
			mtime = timespec(s.Mtime)
		}
		return p.utimes(atime, mtime)
	}
	return nil
}

// dropPrivileges clears setuid, file capabilities, and setgid: of a group-executable file always, of another one for
// those outside its group.
func (o *Overlay) dropPrivileges(n *node, p location, c Caller) error {
	a, err := p.stat()
	if err != nil {
		return err
	}
	if isDir(a.Mode) || isLnk(a.Mode) {
		return nil
	}
	if mode := c.leftOver(a.Mode, a.GID); mode != a.Mode {
		if err := p.chmod(mode); err != nil {
			return err
		}
	}
	if n.bare.Load() {
		return nil // there are no attributes to be cleared
	}
	return o.dropCapability(n, p)
}

// dropXattr removes an attribute if it is there.
func dropXattr(p location, name string) error {
	err := p.removexattr(name)
	if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.ENOTSUP) {
		return nil
	}
	return err
}
