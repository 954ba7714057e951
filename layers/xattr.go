package layers

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"snapfs/internal/livestate"
	"snapfs/internal/readset"
	"snapfs/squashfs"
)

// XattrKillSGID, or-ed to SetXattr's flags, clears setgid when an ACL is set: the caller is not of the file's group.
const XattrKillSGID = 1 << 16

// rawXattrs reads all of a node's attributes, the overlay's included. tree is held.
func (o *Overlay) rawXattrs(n *node) ([]squashfs.Xattr, error) {
	if n.pin > 0 {
		return location{dirfd: int(n.pin) - 1}.xattrs()
	}
	x, err := n.top.backend().xattrs(n.top)
	if err != nil {
		return nil, o.report(err, n.top, "")
	}
	return x, nil
}

// imageXattrs reads the attributes of a node that lies in an image, the overlay's included; only those that are wanted
// need have their values. tree is held.
func (o *Overlay) imageXattrs(n *node, want func(name string) bool) ([]squashfs.Xattr, error) {
	im := n.top.imageStore()
	if im == nil {
		return o.rawXattrs(n)
	}
	x, err := im.xattrsOf(n.top, want)
	if err != nil {
		return nil, o.report(err, n.top, "")
	}
	return x, nil
}

// takesXattr says what a host file system says of a name without looking: ENOTSUP if no name space is called so, EINVAL
// if there is nothing behind the name space.
func takesXattr(name string) error {
	switch name {
	case "system.posix_acl_access", "system.posix_acl_default":
		return nil
	case "user.", "trusted.", "security.":
		return unix.EINVAL
	}
	for _, space := range []string{"user.", "trusted.", "security."} {
		if strings.HasPrefix(name, space) {
			return nil
		}
	}
	return unix.ENOTSUP
}

// GetXattr reads one attribute; ENODATA. Names of the overlay itself are hidden and escaped as the kernel does.
func (o *Overlay) GetXattr(id NodeID, name string) ([]byte, error) {
	if err := takesXattr(name); err != nil {
		return nil, err
	}
	raw := o.rawXattr(name)
	if ownXattr(raw) {
		return nil, unix.ENODATA
	}
	o.tree.RLock()
	defer o.tree.RUnlock()
	n, err := o.nodes.get(id)
	if err != nil {
		return nil, err
	}
	if o.reads != nil {
		o.noteRead(n, readset.Attributes)
	}
	if n.bare.Load() {
		return nil, unix.ENODATA
	}
	if n.top.dirStore() != nil || n.pin > 0 {
		p, h, err := n.location()
		if err != nil {
			return nil, err
		}
		defer h.release()
		return o.getxattr(n, p, raw)
	}
	xattrs, err := o.imageXattrs(n, func(name string) bool { return name == raw })
	if err != nil {
		return nil, err
	}
	for _, x := range xattrs {
		if x.Name == raw {
			return x.Value, nil
		}
	}
	return nil, unix.ENODATA
}

// ListXattr lists names.
func (o *Overlay) ListXattr(id NodeID) ([]string, error) {
	o.tree.RLock()
	defer o.tree.RUnlock()
	n, err := o.nodes.get(id)
	if err != nil {
		return nil, err
	}
	if o.reads != nil {
		o.noteRead(n, readset.Attributes)
	}
	if n.bare.Load() {
		return nil, nil
	}
	var raw []string
	if n.top.dirStore() != nil || n.pin > 0 {
		p, h, err := n.location()
		if err != nil {
			return nil, err
		}
		defer h.release()
		if raw, err = o.listxattr(n, p); err != nil {
			return nil, err
		}
	} else {
		xattrs, err := o.imageXattrs(n, func(string) bool { return false })
		if err != nil {
			return nil, err
		}
		for _, x := range xattrs {
			raw = append(raw, x.Name)
		}
	}
	names := raw[:0]
	for _, name := range raw {
		if !ownXattr(name) {
			names = append(names, o.shownXattr(name))
		}
	}
	return names, nil
}

// SetXattr sets one; flags are XATTR_CREATE and XATTR_REPLACE, and XattrKillSGID.
func (o *Overlay) SetXattr(id NodeID, name string, value []byte, flags int) error {
	return o.Noting(nil).SetXattr(id, name, value, flags)
}

// SetXattr is Overlay.SetXattr for a request.
func (v Noted) SetXattr(id NodeID, name string, value []byte, flags int) error {
	return v.status(func() error { return v.setXattr(id, name, value, flags) })
}

func (v Noted) setXattr(id NodeID, name string, value []byte, flags int) error {
	o := v.Overlay
	f, again := v.in.Unfinished()
	if again = again && f.Kind == intentSetXattr; again {
		flags &^= unix.XATTR_CREATE // there was none before
	}
	return v.onInode(id, func(n *node, p location) error {
		g, err := o.grantXattr(value)
		if err != nil {
			return err
		}
		defer g.release()
		n.bare.Store(false)
		if v.in != nil && !again && flags&unix.XATTR_CREATE != 0 {
			if _, err := o.getxattr(n, p, escapeXattr(name)); errors.Is(err, unix.ENODATA) {
				v.in.Doing(&livestate.Facts{Kind: intentSetXattr})
			}
		}
		if name == xattrCapability {
			return o.setCapability(n, p, append([]byte{}, value...), flags&^XattrKillSGID)
		}
		if err := p.setxattr(escapeXattr(name), value, flags&^XattrKillSGID); err != nil {
			return err
		}
		if flags&XattrKillSGID == 0 {
			return nil
		}
		a, err := p.stat()
		if err != nil || a.Mode&unix.S_ISGID == 0 {
			return err
		}
		return p.chmod(a.Mode &^ unix.S_ISGID)
	})
}

// RemoveXattr removes one; ENODATA, but not for an ACL: a file without one is what was asked for.
func (o *Overlay) RemoveXattr(id NodeID, name string) error {
	return o.Noting(nil).RemoveXattr(id, name)
}

// RemoveXattr is Overlay.RemoveXattr for a request.
func (v Noted) RemoveXattr(id NodeID, name string) error {
	return v.status(func() error { return v.removeXattr(id, name) })
}

func (v Noted) removeXattr(id NodeID, name string) error {
	o := v.Overlay
	f, again := v.in.Unfinished()
	again = again && f.Kind == intentRemoveXattr // there was one before
	if _, err := o.GetXattr(id, name); err != nil {
		if again && errors.Is(err, unix.ENODATA) {
			return v.onInode(id, func(*node, location) error { return nil })
		}
		if errors.Is(err, unix.ENODATA) && strings.HasPrefix(name, "system.posix_acl_") {
			return nil
		}
		return err // before anything is copied up
	}
	return v.onInode(id, func(n *node, p location) error {
		if !again {
			v.in.Doing(&livestate.Facts{Kind: intentRemoveXattr})
		}
		if name == xattrCapability {
			return o.setCapability(n, p, nil, 0)
		}
		return p.removexattr(escapeXattr(name))
	})
}

// onInode changes the metadata of one inode in the upper.
func (v Noted) onInode(id NodeID, fn func(n *node, p location) error) error {
	o := v.Overlay
	return v.mutateShared(func(t mutation) error {
		n, p, h, err := t.inode(id, func(n *node) error {
			if !o.inUpper(n) {
				return o.needUp(n, false)
			}
			return nil
		})
		if err != nil {
			return err
		}
		defer t.unlock(n)
		defer h.release()
		err = fn(n, p)
		o.countAfter(n, p)
		if err != nil {
			return err
		}
		steps.At("attributes changed")
		return o.touched(n, p, 0)
	})
}

// report turns what a layer cannot read into EIO and logs it once per file; what is an errno passes through.
func (o *Overlay) report(err error, at *part, name string) error {
	if _, plain := err.(unix.Errno); plain { //nolint:errorlint // the common case, apart because errors.As allocates
		return err
	}
	var errno unix.Errno
	if errors.As(err, &errno) {
		return err
	}
	o.lost.log(o.log, err, at, name)
	return unix.EIO
}

// reportNode is report for callers without the lock.
func (o *Overlay) reportNode(err error, n *node) error {
	o.tree.RLock()
	defer o.tree.RUnlock()
	o.nodes.refresh(n)
	return o.report(err, n.top, "")
}
