package layers

import (
	"golang.org/x/sys/unix"
)

// completing is a metacopy that is being given its data in place. Its times are kept here, because the writes move
// those of the inode.
type completing struct {
	attr Attr
	p    location // kept open by the copier
}

// completeData turns a metacopy in the upper into a file with data: it writes the data into the inode, which readers
// still take from below, and then takes the mark off. A seal ends it early. It reports whether nothing is left to do.
func (o *Overlay) completeData(n *node, data bool) (done bool, err error) {
	if !data || !isReg(n.typ) {
		return false, nil
	}
	o.thaw()
	n.lock.Lock() // for changes of the times that are kept from here on
	o.tree.Lock()
	unlock := func() {
		o.tree.Unlock()
		o.unlock(n)
	}
	o.nodes.refresh(n)
	if !o.inUpper(n) {
		unlock()
		return false, nil
	}
	if len(n.below) == 0 {
		unlock()
		return true, nil
	}
	top := n.top
	c := completing{}
	var src content
	partial, err := o.blocksOf(top, n)
	if err != nil {
		unlock()
		return false, err
	}
	fd, err := o.openFile(n, fdWrite)
	if err == nil {
		defer fd.release()
		c.p = location{dirfd: fd.fd}
		if c.attr, err = o.attr(n); err == nil {
			err = top.keepCtime(c.p, n, c.attr)
		}
		if err == nil {
			src, err = o.openData(n)
		}
	}
	if err == nil {
		o.ups.complete(n, &c)
		defer o.ups.complete(n, nil)
	}
	unlock()
	if err != nil {
		return false, err
	}
	defer func() { _ = src.Close() }() // read only
	o.countBefore(n, c.p)
	g, err := o.grantWhole(fd.fd, int64(c.attr.Size))
	if err != nil {
		return false, err
	}
	defer g.release()
	defer func() {
		o.tree.RLock()
		defer o.tree.RUnlock()
		if n.top == top {
			o.countAfter(n, c.p)
		}
	}()

	// inside runs one step of the copy inside the gate, unless a seal has come.
	sealed := false
	inside := func(step func() error) error {
		o.gate.RLock()
		defer o.gate.RUnlock()
		o.tree.RLock()
		o.nodes.refresh(n)
		ok := n.top == top && o.inUpper(n)
		o.tree.RUnlock()
		if !ok {
			sealed = true
			return errSealed
		}
		return o.keepCapability(n, c.p, step)
	}
	if f, ok := src.(*patched); ok && partial != nil {
		err = f.fill(fd.fd, inside)
	} else {
		err = copyData(fd.fd, src, int64(c.attr.Size), inside)
	}
	if err == nil {
		err = unix.Fdatasync(fd.fd)
	}
	if err == nil {
		o.gate.RLock()
		defer o.gate.RUnlock()
		n.lock.Lock()
		defer o.unlock(n)
		o.thaw()
		o.tree.Lock()
		defer o.tree.Unlock()
		o.nodes.refresh(n)
		if sealed = n.top != top || !o.inUpper(n); !sealed {
			return true, o.completed(n, c)
		}
	}
	if sealed {
		return true, nil // the sealed inode is a metacopy still; the caller looks again
	}
	return false, err
}

// completed takes the mark of a metacopy off. tree is held for writing.
func (o *Overlay) completed(n *node, c completing) error {
	if err := c.p.removexattr(xattrMetacopy); err != nil {
		return err
	}
	if err := o.dropBelow(n, c.p); err != nil {
		return err
	}
	return c.p.utimes(timespec(c.attr.Atime), timespec(c.attr.Mtime))
}

// emptied makes a metacopy a file of its own without data. tree is held for writing.
func (o *Overlay) emptied(n *node) error {
	d, err := o.openFile(n, fdWrite)
	if err != nil {
		return err
	}
	defer d.release()
	if err := unix.Ftruncate(d.fd, 0); err != nil {
		return err
	}
	p := location{dirfd: d.fd}
	if err := p.removexattr(xattrMetacopy); err != nil {
		return err
	}
	return o.dropBelow(n, p)
}

// dropBelow takes away what else tied a metacopy to its data below. tree is held for writing.
func (o *Overlay) dropBelow(n *node, p location) error {
	if err := dropRedirect(p); err != nil {
		return err
	}
	o.removeSide(n)
	o.blocks.drop(n.top)
	o.nodes.setTop(n, n.top, nil)
	return dropXattr(p, xattrBlocks)
}
