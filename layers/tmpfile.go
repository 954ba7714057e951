package layers

import (
	"errors"

	"golang.org/x/sys/unix"

	"snapfs/internal/livestate"
)

// Tmpfile makes a regular file without a name, as open(2) with O_TMPFILE does; Link gives it one. mode and Caller.Umask
// are as in Mknod: the file inherits what it would as a child of parent, which is not copied up for it.
// EOPNOTSUPP where the host file system has no such files.
func (o *Overlay) Tmpfile(c Caller, parent NodeID, mode uint32) (Entry, error) {
	return o.Noting(nil).Tmpfile(c, parent, mode)
}

// Tmpfile is Overlay.Tmpfile for a request.
func (v Noted) Tmpfile(c Caller, parent NodeID, mode uint32) (Entry, error) {
	if err := c.creates(); err != nil {
		return Entry{}, err
	}
	return v.entry(func() (Entry, error) { return v.tmpfileNew(c, parent, mode) })
}

func (v Noted) tmpfileNew(c Caller, parent NodeID, mode uint32) (Entry, error) {
	o := v.Overlay
	var e Entry
	err := v.mutateShared(func(t mutation) error {
		var dir Attr
		var acl []byte
		err := t.read(func() error {
			p, err := o.dirNode(parent)
			if err != nil {
				return err
			}
			if p.dead {
				return unix.ENOENT
			}
			if !t.exclusive && !o.mayPin() {
				return errExclusive // it gets a name in the orphan directory
			}
			if dir, err = o.attr(p); err == nil {
				acl, err = o.defaultACL(p)
			}
			return err
		})
		if err == nil {
			e, err = o.tmpfileIn(t, dir, acl, creation{caller: c, mode: mode&0o7777 | unix.S_IFREG})
		}
		return err
	})
	return e, err
}

// defaultACL gives the ACL that a directory's children inherit, nil if there is none. tree is held.
func (o *Overlay) defaultACL(p *node) ([]byte, error) {
	if p.bare.Load() {
		return nil, nil
	}
	xattrs, err := o.rawXattrs(p)
	if err != nil {
		return nil, err
	}
	for _, x := range xattrs {
		if x.Name == xattrDefaultACL {
			return x.Value, nil
		}
	}
	return nil, nil
}

// tmpfileIn makes the inode in the work directory, pinned by its own descriptor.
func (o *Overlay) tmpfileIn(t mutation, dir Attr, acl []byte, c creation) (Entry, error) {
	if acl == nil {
		c.mode &^= c.caller.Umask & 0o777
	}
	g, err := o.grantNew(c)
	if err != nil {
		return Entry{}, err
	}
	defer g.release()
	in, done, err := o.staging(acl)
	if err != nil {
		return Entry{}, err
	}
	defer done()
	gid := c.caller.GID
	if dir.Mode&unix.S_ISGID != 0 {
		gid = dir.GID
	}
	fd := -1
	err = actingAs(c.caller.UID, gid, func() (err error) {
		fd, err = openat(in.dirfd, ".", unix.O_TMPFILE|unix.O_RDWR, c.mode&0o1777)
		return err
	})
	if errors.Is(err, unix.EISDIR) {
		err = unix.EOPNOTSUPP // a host without such files opens the directory itself
	}
	if err != nil {
		return Entry{}, err
	}
	steps.At("file without a name made")
	a, err := own(location{dirfd: fd}, c, gid, acl != nil)
	if err != nil {
		_ = unix.Close(fd) // the first error counts
		return Entry{}, err
	}
	host := a.Ino
	if a.Ino, err = o.upper.store.number(host); err != nil {
		_ = unix.Close(fd) // the first error counts
		return Entry{}, err
	}
	n := &node{
		id: NodeID(a.Ino), ino: a.Ino, typ: unix.S_IFREG, top: &part{layer: o.upper.layer, ino: a.Ino, host: host},
		dead: true, free: true,
	}
	n.bare.Store(acl == nil && !o.upper.labels)
	n.seen.Store(ownFile)
	var e Entry
	t.publish(func() {
		o.nodes.mu.Lock()
		o.nodes.addLocked(n, a.Btime) // without a reference its record means nothing to a successor
		t.in.Doing(&livestate.Facts{Kind: intentTmpfile, Nodes: [4]uint64{uint64(n.id)}})
		o.nodes.refLocked(n)
		o.nodes.mu.Unlock()
		if t.exclusive {
			err = o.keepTmpfile(n, fd)
		} else {
			o.setPin(n, fd)
		}
		if err != nil {
			_ = unix.Close(fd) // the first error counts
			o.discard(o.nodes.drop(n, 1, 0))
			return
		}
		o.countNew(n, int64(a.Blocks), true)
		e = Entry{Node: n.id, Gen: uint64(n.gen.Load()), Attr: o.shape(n, a)}
	})
	if err == nil && o.orphans.live {
		o.nameTmpfile(t, n, fd)
	}
	return e, err
}

// nameTmpfile gives a file without a name that is pinned one in the orphan directory, for a successor. Nobody else
// knows of it yet.
func (o *Overlay) nameTmpfile(t mutation, n *node, fd int) {
	if o.orphans.has(n) {
		return
	}
	serial := o.orphans.next()
	name := orphanName(n.id, uint64(serial))
	err := unix.Linkat(unix.AT_FDCWD, location{dirfd: fd}.proc(), o.orphans.root(), name, unix.AT_SYMLINK_FOLLOW)
	if err != nil {
		o.nodes.notKept(err)
		return
	}
	o.orphans.count.Add(1)
	t.publish(func() {
		n.kept, n.unnamed = serial, true
		o.nodes.mu.Lock()
		o.nodes.recordLocked(n)
		o.nodes.mu.Unlock()
	})
}

// keepTmpfile has n hold its inode, by the descriptor if there is one to spare, else in the orphan directory, and owns
// the descriptor then.
func (o *Overlay) keepTmpfile(n *node, fd int) error {
	if o.mayPin() {
		o.setPin(n, fd)
		return nil
	}
	s := &o.orphans
	err := s.open(o.upper, &o.share)
	var top *part
	if err == nil {
		top = s.part(n)
		err = unix.Linkat(unix.AT_FDCWD, location{dirfd: fd}.proc(), s.root(), top.name, unix.AT_SYMLINK_FOLLOW)
	}
	if err != nil {
		if !o.mustPin() {
			return err
		}
		o.setPin(n, fd)
		return nil
	}
	s.count.Add(1)
	top.host = n.top.host
	n.top, n.unnamed = top, true
	o.nodes.mu.Lock()
	o.nodes.recordLocked(n)
	o.nodes.mu.Unlock()
	_ = unix.Close(fd) // nothing was written through it
	return nil
}

// adopt brings an inode without a name into the present upper, if it was made before a seal: it lies in no layer, so
// only its number must be kept. tree is held for writing.
func (o *Overlay) adopt(n *node) error {
	if !n.free || n.top.layer == o.upper.layer {
		return nil
	}
	if o.orphans.has(n) {
		return nameIn(o.orphans.root(), n.top.name).setxattr(xattrIno, encodeIno(n.ino), 0)
	}
	if err := (location{dirfd: int(n.pin) - 1}).setxattr(xattrIno, encodeIno(n.ino), 0); err != nil {
		return err
	}
	descriptors.drop(n.top)
	top := &part{layer: o.upper.layer, ino: n.ino, host: n.top.host}
	if err := o.adoptBlocks(n, top); err != nil {
		return err
	}
	o.nodes.setTop(n, top, n.below)
	return nil
}
