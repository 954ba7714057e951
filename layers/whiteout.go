package layers

import (
	"errors"

	"golang.org/x/sys/unix"
)

// erase removes what the upper has at a location and, with white, leaves a whiteout there. own reports whether the
// upper has anything. No moment shows what is below.
func (o *Overlay) erase(at location, own, dir, white bool) error {
	u := o.upper
	switch {
	case !own:
		return u.whiteout(at)
	case !white && !dir:
		return unix.Unlinkat(at.dirfd, at.name, 0)
	case !white:
		err := unix.Unlinkat(at.dirfd, at.name, unix.AT_REMOVEDIR)
		if !errors.Is(err, unix.ENOTEMPTY) {
			return err
		}
		tmp := u.temp() // it holds whiteouts
		if err := unix.Renameat(at.dirfd, at.name, u.work, tmp); err != nil {
			return err
		}
		_ = removeAll(u.work, tmp) // New cleans up what is left
		return nil
	}
	// The directory is marked first: once the name is gone, nothing may fail.
	if err := u.markWhiteouts(at.dirfd); err != nil {
		return err
	}
	tmp := nameIn(u.work, u.temp())
	if err := u.whiteout(tmp); err != nil {
		return err
	}
	if !dir {
		err := unix.Renameat(tmp.dirfd, tmp.name, at.dirfd, at.name)
		if err != nil {
			_ = unix.Unlinkat(tmp.dirfd, tmp.name, 0) // the first error counts
		}
		return err
	}
	err := unix.Renameat2(tmp.dirfd, tmp.name, at.dirfd, at.name, unix.RENAME_EXCHANGE)
	_ = removeAll(tmp.dirfd, tmp.name) // whichever of the two it is now; New cleans up what is left
	return err
}

// whiteout makes a whiteout under a free name.
func (u *upper) whiteout(at location) error {
	if !u.attrWhiteouts {
		return u.linkWhiteout(at)
	}
	if at.dirfd == u.work {
		return u.looseWhiteout(at)
	}
	to := nameIn(u.work, u.temp())
	err := u.looseWhiteout(to)
	if err != nil {
		return err
	}
	if err = u.markWhiteouts(at.dirfd); err == nil {
		err = unix.Renameat(to.dirfd, to.name, at.dirfd, at.name)
	}
	if err != nil {
		_ = unix.Unlinkat(to.dirfd, to.name, 0) // the first error counts
	}
	return err
}

// looseWhiteout makes a whiteout in a directory that no layer shows.
func (u *upper) looseWhiteout(at location) error {
	if !u.attrWhiteouts {
		return u.linkWhiteout(at)
	}
	if err := unix.Mknodat(at.dirfd, at.name, unix.S_IFREG|fresh(unix.S_IFREG), 0); err != nil {
		return err
	}
	err := at.setxattr(xattrWhiteout, []byte("y"), 0)
	u.store.numbered(at)
	if err != nil {
		_ = unix.Unlinkat(at.dirfd, at.name, 0) // the first error counts
	}
	return err
}

// linkWhiteout makes a device whiteout as one more link of a device in the work directory, as the kernel's overlayfs
// does: a link costs a fraction of an inode.
func (u *upper) linkWhiteout(at location) error {
	u.deviceMu.Lock()
	device := u.device
	u.deviceMu.Unlock()
	if device != "" {
		err := unix.Linkat(u.work, device, at.dirfd, at.name, 0)
		if err == nil || errors.Is(err, unix.EEXIST) {
			return err
		}
		u.newDevice(device, "") // most likely it has all the links it can have
	}
	if err := unix.Mknodat(at.dirfd, at.name, unix.S_IFCHR, 0); err != nil {
		return err
	}
	u.store.numbered(at)
	name := u.temp()
	if unix.Linkat(at.dirfd, at.name, u.work, name, 0) == nil { // else the next one is made anew, too
		u.newDevice("", name)
	}
	return nil
}

// newDevice puts one whiteout in place of another for the next links, unless somebody else has done so, and removes the
// one that is of no use any more.
func (u *upper) newDevice(old, device string) {
	u.deviceMu.Lock()
	useless := device
	if u.device == old {
		u.device, useless = device, old
	}
	u.deviceMu.Unlock()
	if useless != "" {
		_ = unix.Unlinkat(u.work, useless, 0) // New cleans up what is left
	}
}

// markWhiteouts tells readers of a directory, the kernel's overlayfs among them, to look for attribute whiteouts.
func (u *upper) markWhiteouts(dirfd int) error {
	if !u.attrWhiteouts {
		return nil
	}
	self := nameIn(dirfd, ".")
	v, err := self.getxattr(xattrOpaque)
	if err == nil && len(v) > 0 {
		return nil
	}
	return self.setxattr(xattrOpaque, []byte("x"), 0)
}
