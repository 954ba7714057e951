package layers

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"snapfs/internal/livestate"
)

// creation is a new inode to be made.
type creation struct {
	caller Caller
	mode   uint32 // type and permissions, without the umask applied
	rdev   uint64
	target string // of a symlink
}

// Mknod makes a file of any type but directory and symlink, regular files included. mode is as the program gave it
// (DONT_MASK); Caller.Umask is applied here, unless the directory has a default ACL.
func (o *Overlay) Mknod(c Caller, parent NodeID, name string, mode uint32, rdev uint64) (Entry, error) {
	return o.Noting(nil).Mknod(c, parent, name, mode, rdev)
}

// Mknod is Overlay.Mknod for a request.
func (v Noted) Mknod(c Caller, parent NodeID, name string, mode uint32, rdev uint64) (Entry, error) {
	switch mode & unix.S_IFMT {
	case 0:
		mode |= unix.S_IFREG
	case unix.S_IFREG, unix.S_IFCHR, unix.S_IFBLK, unix.S_IFIFO, unix.S_IFSOCK:
	default:
		return Entry{}, unix.EINVAL
	}
	if t := mode & unix.S_IFMT; t != unix.S_IFCHR && t != unix.S_IFBLK {
		rdev = 0
	}
	return v.create(parent, name, creation{caller: c, mode: mode, rdev: rdev})
}

// Mkdir makes a directory. mode and Caller.Umask are as in Mknod.
func (o *Overlay) Mkdir(c Caller, parent NodeID, name string, mode uint32) (Entry, error) {
	return o.Noting(nil).Mkdir(c, parent, name, mode)
}

// Mkdir is Overlay.Mkdir for a request.
func (v Noted) Mkdir(c Caller, parent NodeID, name string, mode uint32) (Entry, error) {
	return v.create(parent, name, creation{caller: c, mode: mode&0o7777 | unix.S_IFDIR})
}

// Symlink makes a symbolic link.
func (o *Overlay) Symlink(c Caller, parent NodeID, name, target string) (Entry, error) {
	return o.Noting(nil).Symlink(c, parent, name, target)
}

// Symlink is Overlay.Symlink for a request.
func (v Noted) Symlink(c Caller, parent NodeID, name, target string) (Entry, error) {
	if target == "" {
		return Entry{}, unix.ENOENT
	}
	if len(target) >= unix.PathMax {
		return Entry{}, unix.ENAMETOOLONG
	}
	return v.create(parent, name, creation{caller: c, mode: unix.S_IFLNK | 0o777, target: target})
}

func (v Noted) create(parent NodeID, name string, c creation) (Entry, error) {
	if err := errors.Join(checkName(name), c.caller.creates()); err != nil {
		return Entry{}, err
	}
	return v.entry(func() (Entry, error) { return v.createNew(parent, name, c) })
}

func (v Noted) createNew(parent NodeID, name string, c creation) (Entry, error) {
	o := v.Overlay
	var e Entry
	err := v.mutateShared(func(t mutation) error {
		p, err := t.dir(parent)
		if err != nil {
			return err
		}
		defer t.unlock(p)
		var covered bool
		var h hold
		err = t.read(func() error {
			if err := o.upperDir(p); err != nil {
				return err
			}
			if covered, err = o.vacant(p, name); err == nil {
				h, err = o.upper.store.dir(p.top)
			}
			return err
		})
		if err != nil {
			return err
		}
		defer h.release()
		g, err := o.grantNew(c)
		if err != nil {
			return err
		}
		defer g.release()
		t.in.Doing(&livestate.Facts{Kind: intentCreate, Nodes: [4]uint64{uint64(parent)}, Names: [2]string{name}})
		m, err := o.makeIn(p, nameIn(h.fd, name), c, covered)
		if err == nil {
			t.publish(func() { e = o.createdIn(p, name, m) })
		}
		return err
	})
	return e, err
}

// vacant checks that nothing called name shows in p; covered tells that a whiteout in the upper must be replaced.
// tree is held.
func (o *Overlay) vacant(p *node, name string) (covered bool, err error) {
	h, err := o.upper.store.dir(p.top)
	if err != nil {
		return false, err
	}
	defer h.release()
	f, err := o.upper.store.examine(nameIn(h.fd, name))
	switch {
	case err == nil && f.whiteout:
		return true, nil
	case err == nil:
		return false, unix.EEXIST
	case !errors.Is(err, unix.ENOENT):
		return false, err
	}
	if len(p.below) == 0 {
		return false, nil
	}
	_, err = o.search(p, 1, name)
	switch {
	case err == nil:
		return false, unix.EEXIST
	case errors.Is(err, unix.ENOENT):
		return false, nil
	}
	return false, o.report(err, p.top, name)
}

// created is an inode that makeIn has made.
type created struct {
	attr   Attr   // with the host's number
	number uint64 // that it has
	bare   bool
}

// makeIn makes the inode. p is locked.
func (o *Overlay) makeIn(p *node, at location, c creation, covered bool) (created, error) {
	dir, err := nameIn(at.dirfd, ".").stat()
	if err != nil {
		return created{}, err
	}
	var inherited []byte
	if !p.bare.Load() {
		if v, err := nameIn(at.dirfd, ".").getxattr(xattrDefaultACL); err == nil {
			inherited = v
		}
	}
	acl := inherited != nil
	if !acl && !isLnk(c.mode) {
		c.mode &^= c.caller.Umask & 0o777
	}
	gid := c.caller.GID
	if dir.Mode&unix.S_ISGID != 0 {
		gid = dir.GID
		if isDir(c.mode) {
			c.mode |= unix.S_ISGID
		}
	}
	hostless := c.mode&unix.S_IFMT == unix.S_IFCHR && c.rdev == 0
	special := hostless || standsIn(c.mode, int(c.caller.UID) != os.Geteuid() || int(gid) != os.Getegid())
	// setuid and setgid are added afterwards: until then nothing shows, nor after a crash.
	later := !isDir(c.mode) && c.mode&(unix.S_ISUID|unix.S_ISGID) != 0
	if UserAttributes() && c.mode&needed(c.mode) != needed(c.mode) {
		later = true // without its override this process could not read it
	}
	to := at
	if covered || special || later || !mayActAs(c.caller.UID, gid) {
		tmp, done, err := o.staging(inherited)
		if err != nil {
			return created{}, err
		}
		defer done()
		to = tmp
	}
	if special {
		// A listing of the directory must look at each inode to see what it stands for.
		if err := nameIn(at.dirfd, ".").setxattr(xattrImpure, []byte("y"), 0); err != nil {
			return created{}, err
		}
	}
	if err := actingAs(c.caller.UID, gid, func() error { return makeInode(to, c, hostless, special) }); err != nil {
		return created{}, err
	}
	steps.At("inode made")
	a, err := own(to, c, gid, acl)
	var number uint64
	if err == nil {
		number, err = o.upper.store.number(a.Ino)
	}
	if err == nil && covered && isDir(c.mode) {
		err = to.setxattr(xattrOpaque, []byte("y"), 0)
	}
	if err == nil && to != at {
		err = replaceWhiteout(to, at, covered && isDir(c.mode))
		if err == nil {
			a, err = at.stat() // the rename moved its ctime
		}
	}
	if err == nil {
		err = o.touched(p, nameIn(at.dirfd, "."), 0)
	}
	if err == nil && o.counts() {
		o.countGrown(p, nameIn(at.dirfd, "."), int64(dir.Blocks))
		if n, berr := at.blocks(); berr == nil {
			a.Blocks = uint64(n) // with what its attributes take
		}
	}
	if err != nil {
		_ = removeAll(to.dirfd, to.name) // the first error counts
		return created{}, err
	}
	if hostless {
		a.Mode, a.Rdev = a.Mode&^unix.S_IFMT|unix.S_IFCHR, 0
	}
	return created{a, number, !acl && !o.upper.labels}, nil
}

// createdIn enters what makeIn has made in p. tree is held for writing.
func (o *Overlay) createdIn(p *node, name string, m created) Entry {
	a, host := m.attr, m.attr.Ino
	a.Ino = m.number
	top := p.top.child(name, found{attr: a, host: host})
	n := o.nodes.enter(p, name, hit{parts: []*part{top}, attr: a, found: found{bare: m.bare}})
	o.countNew(n, int64(a.Blocks), false)
	o.listings.add(p, name, n)
	if o.reads != nil {
		o.noteMade(p, name, n)
	}
	return Entry{Node: n.id, Gen: uint64(n.gen.Load()), Attr: o.shape(n, a)}
}

// staging gives a free name in the work directory under which a new inode inherits the default ACL given; nil is none.
func (o *Overlay) staging(acl []byte) (location, func(), error) {
	u := o.upper
	tmp := u.temp()
	if acl == nil {
		return nameIn(u.work, tmp), func() {}, nil
	}
	if err := unix.Mkdirat(u.work, tmp, 0o700); err != nil {
		return location{}, nil, err
	}
	undo := func() { _ = removeAll(u.work, tmp) } // New cleans up what is left
	var fd int
	err := nameIn(u.work, tmp).setxattr(xattrDefaultACL, acl, 0)
	if err == nil {
		fd, err = openat(u.work, tmp, unix.O_PATH|unix.O_DIRECTORY, 0)
	}
	if err != nil {
		undo()
		return location{}, nil, err
	}
	return nameIn(fd, "x"), func() {
		_ = unix.Close(fd) // O_PATH
		undo()
	}, nil
}

// makeInode makes an inode without setuid and setgid, which own adds.
func makeInode(to location, c creation, hostless, special bool) error {
	c.mode &^= unix.S_ISUID | unix.S_ISGID
	switch {
	case special && !hostless:
		return to.makeStandIn(c.mode, c.rdev, c.target)
	case isDir(c.mode):
		return unix.Mkdirat(to.dirfd, to.name, c.mode&0o7777)
	case isLnk(c.mode):
		return unix.Symlinkat(c.target, to.dirfd, to.name)
	case hostless:
		if err := unix.Mknodat(to.dirfd, to.name, c.mode&0o7777|unix.S_IFREG|fresh(unix.S_IFREG), 0); err != nil {
			return err
		}
		steps.At("inode made")
		return to.setxattr(xattrNode, []byte("c"), 0)
	}
	return unix.Mknodat(to.dirfd, to.name, c.mode, int(c.rdev))
}

// own gives a new inode its owner and mode, whatever this process's ids and umask are. The permissions that an
// inherited ACL has given it stay.
func own(p location, c creation, gid uint32, acl bool) (Attr, error) {
	a, err := p.stat()
	if err != nil {
		return Attr{}, err
	}
	changed := false
	want := c.mode & 0o7777
	if acl {
		want = c.mode&0o7000 | a.Mode&0o777
	}
	if a.UID != c.caller.UID || a.GID != gid {
		if err := p.chown(int(c.caller.UID), int(gid)); err != nil {
			return Attr{}, err
		}
		changed = true
		a.Mode &^= unix.S_ISUID | unix.S_ISGID // the chown may have cleared them
	}
	if !isLnk(c.mode) && (a.Mode&0o7777 != want || p.translates() && want&needed(a.Mode) != needed(a.Mode)) {
		if err := p.chmod(want); err != nil {
			return Attr{}, err
		}
		changed = true
	}
	if !changed {
		return a, nil
	}
	return p.stat()
}

// replaceWhiteout moves a prepared inode to its name, over the whiteout that is there if it is a directory.
func replaceWhiteout(from, to location, dir bool) error {
	if !dir {
		err := unix.Renameat(from.dirfd, from.name, to.dirfd, to.name)
		steps.At("inode in place")
		return err
	}
	if err := unix.Renameat2(from.dirfd, from.name, to.dirfd, to.name, unix.RENAME_EXCHANGE); err != nil {
		return err
	}
	steps.At("inode in place")
	_ = unix.Unlinkat(from.dirfd, from.name, 0) // New cleans up what is left
	return nil
}
