package layers

import (
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/internal/lockorder"
	"snapfs/squashfs"
)

// copyUps keeps two calls from copying one node up at the same time.
type copyUps struct {
	mu         lockorder.Mutex[lockorder.CopyUps]
	busy       map[*node]chan struct{} // closed when done; guarded by mu
	completing map[*node]*completing   // guarded by mu
}

// errSealed ends a copy into an upper that is one no more.
var errSealed = errors.New("sealed meanwhile")

// complete notes that n is being completed, or with nil that it no longer is.
func (c *copyUps) complete(n *node, by *completing) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if by == nil {
		delete(c.completing, n)
		return
	}
	if c.completing == nil {
		c.completing = map[*node]*completing{}
	}
	c.completing[n] = by
}

// times gives the true times of a node that is being completed.
func (c *copyUps) times(n *node) (Attr, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if by := c.completing[n]; by != nil {
		return by.attr, true
	}
	return Attr{}, false
}

// restoreTimes gives all inodes that are being completed their true times; the gate is held for writing.
func (c *copyUps) restoreTimes() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, by := range c.completing {
		if err := by.p.utimes(timespec(by.attr.Atime), timespec(by.attr.Mtime)); err != nil {
			return err
		}
	}
	return nil
}

// begin claims n; if another call has it, it waits for that one and returns false.
func (c *copyUps) begin(n *node) bool {
	c.mu.Lock()
	if ch := c.busy[n]; ch != nil {
		c.mu.Unlock()
		<-ch
		return false
	}
	if c.busy == nil {
		c.busy = map[*node]chan struct{}{}
	}
	c.busy[n] = make(chan struct{})
	c.mu.Unlock()
	return true
}

func (c *copyUps) end(n *node) {
	c.mu.Lock()
	close(c.busy[n])
	delete(c.busy, n)
	c.mu.Unlock()
}

// copyUp brings n, and the directories above it, into the upper; with data a file's contents too. The caller holds
// no lock but keeps n alive, and looks again afterwards: a seal may have come between.
func (o *Overlay) copyUp(n *node, data bool) error {
	for {
		next, keep := o.nextUp(n)
		if next == nil {
			return nil
		}
		var err error
		if o.ups.begin(next) {
			err = o.copyUpOne(next, data && next == n)
			o.ups.end(next)
		}
		o.tree.RLock()
		o.discard(o.nodes.drop(keep, 0, 1))
		o.tree.RUnlock()
		if err != nil {
			return err
		}
		if next == n {
			return nil
		}
	}
}

// nextUp gives the topmost of n and its parents that must be copied up, held in the table.
func (o *Overlay) nextUp(n *node) (next, keep *node) {
	o.tree.RLock()
	defer o.tree.RUnlock()
	o.nodes.refresh(n)
	next = n
	if !n.dead {
		for p := n.parent; p != nil && !o.inUpper(p); p = p.parent {
			next = p
		}
	}
	o.nodes.hold(next)
	return next, next
}

// source is what copy-up copies from, read under the lock and immutable then.
type source struct {
	upper  *upper
	parent *node
	name   string
	top    *part
	below  []*part
	dead   bool
	attr   Attr
	xattrs []squashfs.Xattr
	target string
	data   content // regular files with data wanted
	copied uint64  // the copy's inode number on the host, once there is one
	blocks int64   // of the copy
}

// sourceOf reads everything of n but its data; nil if n is in the upper. The caller closes it.
func (o *Overlay) sourceOf(n *node, data bool) (*source, error) {
	o.tree.RLock()
	defer o.tree.RUnlock()
	o.nodes.refresh(n)
	if o.inUpper(n) {
		return nil, nil
	}
	s, err := o.readSource(n, data)
	if err != nil {
		s.close()
		return nil, o.report(err, n.top, "")
	}
	return s, nil
}

// readSource is sourceOf below the lock; what it gives must be closed also with an error.
func (o *Overlay) readSource(n *node, data bool) (*source, error) {
	s := &source{upper: o.upper.use(), parent: n.parent, name: n.name, top: n.top, below: n.below, dead: n.dead}
	be := n.top.backend()
	var err error
	if s.attr, err = o.attr(n); err == nil {
		s.xattrs, err = o.rawXattrs(n)
	}
	if err != nil {
		return s, err
	}
	s.attr.Ino = n.ino // callers may see another number
	switch {
	case isLnk(n.typ) && n.pin > 0:
		s.target, err = location{dirfd: int(n.pin) - 1}.readlink()
	case isLnk(n.typ):
		s.target, err = be.readlink(n.top)
	case isReg(n.typ) && data:
		s.data, err = o.openData(n)
	}
	return s, err
}

func (s *source) close() {
	if s.data != nil {
		_ = s.data.Close() // read only
	}
	s.upper.release()
}

// copyUpOne copies n alone; its parents are in the upper, or were a moment ago.
func (o *Overlay) copyUpOne(n *node, data bool) error {
	if done, err := o.completeData(n, data); done || err != nil {
		return err
	}
	if err := o.fixSource(n); err != nil {
		return err
	}
	s, err := o.sourceOf(n, data)
	if err != nil || s == nil {
		return err
	}
	defer s.close()
	if s.dead && s.attr.Nlink > 0 && !isDir(n.typ) && o.findName(n, s.top) {
		return nil // it is no orphan; the caller of copyUp starts over
	}
	var names group
	if !isDir(n.typ) && s.attr.Nlink > 1 && !s.dead {
		if names, err = o.groupOf(s.top, s.attr.Nlink, s.upper.links); err != nil {
			return err
		}
		defer o.releaseDirs(names.found)
	}
	g, err := o.grantCopy(s)
	if err != nil {
		return err
	}
	defer g.release()
	tmp := s.upper.temp()
	if err := o.prepare(n, s, tmp); err != nil {
		_ = removeAll(s.upper.work, tmp) // the first error counts; New cleans up what is left
		if o.sealedSince(s.upper) {
			return nil // its work directory may be gone; the caller of copyUp starts over
		}
		return err
	}
	placed, err := o.commitUp(n, s, tmp, names)
	if !placed {
		_ = removeAll(s.upper.work, tmp) // nothing refers to it; New cleans up what is left
	}
	return err
}

// sealedSince reports whether u is the upper no more.
func (o *Overlay) sealedSince(u *upper) bool {
	o.tree.RLock()
	defer o.tree.RUnlock()
	return o.upper != u
}

// prepare makes a copy of n in the work directory, which nobody may use before it has its owner. Without data wanted a
// regular file becomes a metacopy.
func (o *Overlay) prepare(n *node, s *source, tmp string) error {
	p := nameIn(s.upper.work, tmp)
	var err error
	switch {
	case isDir(n.typ):
		err = unix.Mkdirat(p.dirfd, tmp, fresh(unix.S_IFDIR))
	case standsIn(n.typ, true) && (n.typ != unix.S_IFCHR || s.attr.Rdev != 0):
		err = p.makeStandIn(s.attr.Mode, s.attr.Rdev, s.target)
	case isLnk(n.typ):
		err = unix.Symlinkat(s.target, p.dirfd, tmp)
	case isReg(n.typ):
		err = prepareFile(p, s)
	case n.typ == unix.S_IFCHR && s.attr.Rdev == 0:
		if err = unix.Mknodat(p.dirfd, tmp, unix.S_IFREG|fresh(unix.S_IFREG), 0); err == nil {
			err = p.setxattr(xattrNode, []byte("c"), 0)
		}
	default:
		err = unix.Mknodat(p.dirfd, tmp, n.typ, int(s.attr.Rdev))
	}
	if err != nil {
		return err
	}
	host, err := p.stat()
	if err != nil {
		return err
	}
	s.copied = host.Ino
	if _, err := s.upper.store.number(host.Ino); err != nil { // see numbered
		return err
	}
	if err := copyAttrs(p, s.attr, s.xattrs); err != nil || !o.counts() {
		return err
	}
	s.blocks, err = p.blocks()
	return err
}

// prepareFile makes the regular file of a copy-up.
func prepareFile(p location, s *source) error {
	fd, err := openat(p.dirfd, p.name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL, fresh(unix.S_IFREG))
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if s.data == nil && s.attr.Size > 0 {
		if err := unix.Ftruncate(fd, int64(s.attr.Size)); err != nil {
			return err
		}
		return p.setxattr(xattrMetacopy, nil, 0)
	}
	if s.data == nil {
		return nil
	}
	if err := copyData(fd, s.data, int64(s.attr.Size), nil); err != nil {
		return err
	}
	return unix.Fdatasync(fd)
}

// copyData copies a file's extents, leaving holes, by the host's own means where it can. Every step that writes runs
// inside guard, unless that is nil, and is short then.
func copyData(dst int, src content, size int64, guard func(step func() error) error) error {
	if size == 0 {
		return nil
	}
	alone := guard == nil
	if alone {
		guard = func(step func() error) error { return step() }
	}
	cloned := false
	host, onHost := src.(hostFile)
	err := guard(func() error {
		if err := unix.Ftruncate(dst, size); err != nil {
			return err
		}
		cloned = onHost && alone && unix.IoctlFileClone(dst, host.d.fd) == nil
		return nil
	})
	if err != nil || cloned {
		return err
	}
	extents, err := src.Extents()
	if err != nil {
		return err
	}
	var buf []byte
	var p pace
	if alone {
		p.size = pieceMost
	}
	for _, e := range extents {
		off, end := e.Off, min(e.Off+e.Len, size)
		for onHost && off < end {
			k, piece, start := 0, p.next(off, end-off), time.Now()
			err := guard(func() (err error) {
				in, out := off, off
				k, err = copyFileRange(host.d.fd, &in, dst, &out, int(piece))
				return err
			})
			if errors.Is(err, errSealed) || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
				return err
			}
			if err != nil || k == 0 {
				onHost = false // the host cannot: read and write
				break
			}
			if off += int64(k); !alone {
				p.took(int64(k), time.Since(start))
			}
		}
		for off < end {
			if buf == nil {
				buf = make([]byte, 256<<10)
			}
			k, err := src.ReadAt(buf[:min(int64(len(buf)), end-off)], off)
			if k == 0 {
				if err == nil || errors.Is(err, io.EOF) {
					err = fmt.Errorf("file ends at %d of %d bytes: %w", off, size, unix.EIO)
				}
				return err
			}
			if err := guard(func() error { return pwriteFull(dst, buf[:k], off) }); err != nil {
				return err
			}
			off += int64(k)
		}
	}
	return nil
}

// copyAttrs gives a fresh inode owner, attributes, mode and times of the one copied, in this order: a change of owner
// clears capabilities and setuid. Last comes the mark of its inode number.
func copyAttrs(p location, a Attr, xattrs []squashfs.Xattr) error {
	if err := p.chown(int(a.UID), int(a.GID)); err != nil {
		return err
	}
	for _, x := range xattrs {
		if ownXattr(x.Name) {
			continue
		}
		if err := p.setxattr(x.Name, x.Value, 0); err != nil {
			return fmt.Errorf("copy attribute %s: %w", x.Name, err)
		}
	}
	if !isLnk(a.Mode) {
		if err := p.chmod(a.Mode); err != nil {
			return err
		}
	}
	if err := p.setxattr(xattrIno, inodeInfoOf(a).encode(isDir(a.Mode)), 0); err != nil {
		return err
	}
	return p.utimes(timespec(a.Atime), timespec(a.Mtime))
}
