package layers

import (
	"os"

	"golang.org/x/sys/unix"
)

// A change that takes room of the host is granted what it may take at most before, and counted by what it took when it is
// done: changes that run at the same time do not exceed the limits together. Only where that is refused, what is lacking
// is found out: what overwrites allocated blocks needs nothing.
//
// What is not granted: names in a directory, which may get another block, and what frees room, such as whiteouts.

// grant is what a change may take.
type grant struct {
	o *Overlay // nil: nothing is counted
	u Usage
}

// release gives back what was granted.
func (g grant) release() {
	if g.o != nil {
		g.o.opts.Account.release(g.u)
	}
}

// counted counts what was written to t, and gives back what was granted for it.
func (g grant) counted(t target) {
	if g.o != nil {
		g.o.countAfter(t.n, t.location())
		g.release()
	}
}

// bounded reports whether a change must be granted what it takes.
func (o *Overlay) bounded() bool { return o.opts.Reserve != nil || o.counts() }

// grant grants what is known exactly, or is little; ENOSPC.
func (o *Overlay) grant(u Usage) (grant, error) {
	if u == (Usage{}) {
		return grant{}, nil
	}
	if r := o.opts.Reserve; r != nil && !r.calm(u.asBytes()) && !r.grow(&o.crowd, u) {
		return grant{}, unix.ENOSPC
	}
	if !o.counts() {
		return grant{}, nil
	}
	if err := o.opts.Account.grant(u); err != nil {
		return grant{}, err
	}
	return grant{o, u}, nil
}

// grantWrite grants what n bytes at off of t may take, or those of them for which there is room; with all, all or
// nothing. What is written is counted by grant.counted, unless writable does.
func (o *Overlay) grantWrite(t target, off int64, n int, all bool) (g grant, room int, err error) {
	counts := o.counts()
	if counts {
		o.countBefore(t.n, t.location())
		g.o = o
	}
	unit := t.unit()
	from, to := off&^(unit-1), (off+int64(n)+unit-1)&^(unit-1)
	r := o.opts.Reserve
	if calm := r == nil || r.calm(to-from); calm {
		if !counts {
			return grant{}, n, nil
		}
		g.u = Usage{Bytes: to - from}
		if o.opts.Account.grant(g.u) == nil {
			return g, n, nil
		}
	}
	g.u = Usage{}
	lacks, err := holes(t.d.fd, from, to)
	if err != nil {
		return grant{}, 0, err
	}
	least := int64(1 << 62)
	if counts {
		least = o.opts.Account.room()
	}
	if need := lacks.bytes(unit); need > 0 {
		if need > least {
			o.opts.Account.refused.Store(true)
			if all || t.m != nil {
				return grant{}, 0, unix.ENOSPC
			}
			end := lacks.fit(least, unit)
			if end <= off {
				return grant{}, 0, unix.ENOSPC
			}
			n = int(min(end-off, int64(n)))
			need = least
		}
		if r != nil && !r.grow(&o.crowd, Usage{Bytes: need}) {
			return grant{}, 0, unix.ENOSPC
		}
		if counts {
			u := Usage{Bytes: need}
			if err := o.opts.Account.grant(u); err != nil {
				return grant{}, 0, err
			}
			g.u = u
		}
	}
	return g, n, nil
}

// pageSize is the least that the host is taken to allocate.
var pageSize = int64(os.Getpagesize())

// unit is what a change of a single byte of t may make the host allocate.
func (t target) unit() int64 {
	if t.m != nil {
		return 1 << t.m.shift
	}
	return pageSize
}

// fallocate is target.fallocate as far as there is room, also for the bytes that will follow, ahead in all.
func (o *Overlay) fallocate(t target, mode uint32, off, length, ahead int64) error {
	if !o.bounded() || mode&unix.FALLOC_FL_PUNCH_HOLE != 0 {
		return t.fallocate(mode, off, length)
	}
	unit := t.unit()
	lacks, err := holes(t.d.fd, off&^(unit-1), (off+ahead+unit-1)&^(unit-1))
	if err != nil {
		return err
	}
	need := lacks.bytes(unit)
	if o.counts() && need > 0 && need > o.opts.Account.room() || need > 0 && !o.opts.Reserve.has(need) {
		return unix.ENOSPC
	}
	g, err := o.grant(Usage{Bytes: min(need, length+2*unit)})
	if err != nil {
		return err
	}
	defer g.release()
	return t.fallocate(mode, off, length)
}

// grantWhole grants what a file of the upper lacks of its size.
func (o *Overlay) grantWhole(fd int, size int64) (grant, error) {
	if !o.bounded() {
		return grant{}, nil
	}
	lacks, err := holes(fd, 0, (size+pageSize-1)&^(pageSize-1))
	if err != nil {
		return grant{}, err
	}
	return o.grant(Usage{Bytes: lacks.bytes(pageSize)})
}

// grantCopy grants what the copy of s takes.
func (o *Overlay) grantCopy(s *source) (grant, error) {
	if !o.bounded() {
		return grant{}, nil
	}
	u := Usage{Bytes: pageSize, Inodes: 1} // for attributes that do not fit into the inode
	if s.data != nil {
		extents, err := s.data.Extents()
		if err != nil {
			return grant{}, err
		}
		for _, e := range extents {
			u.Bytes += (e.Len + pageSize - 1) &^ (pageSize - 1)
		}
	}
	return o.grant(u)
}

// grantNew grants a new inode.
func (o *Overlay) grantNew(c creation) (grant, error) {
	if !o.bounded() {
		return grant{}, nil
	}
	u := Usage{Bytes: 1, Inodes: 1} // a file in a full workspace is of no use
	if isDir(c.mode) || isLnk(c.mode) && len(c.target) >= shortLink {
		u.Bytes = pageSize
	}
	return o.grant(u)
}

// shortLink is from how many bytes on ext4 allocates a block for the target of a symbolic link.
const shortLink = 60

// grantXattr grants what an attribute may take.
func (o *Overlay) grantXattr(value []byte) (grant, error) {
	if !o.bounded() || len(value) < shortXattr {
		return grant{}, nil
	}
	return o.grant(Usage{Bytes: (int64(len(value)) + pageSize) &^ (pageSize - 1)})
}

// shortXattr is up to how many bytes an attribute is taken to fit into the inode.
const shortXattr = 64

// countGrown counts what a directory of the upper, n at p, has got since it had blocks.
func (o *Overlay) countGrown(n *node, p location, blocks int64) {
	if !o.counts() {
		return
	}
	l := o.lockLedger()
	if _, ok := l.m[n]; !ok {
		l.putLocked(n, tally{blocks: blocks})
	}
	l.mu.Unlock()
	o.countAfter(n, p)
}

// countOver notes that what a move meets, at to, may be about to lose its last name; countNotOver that it has not.
func (o *Overlay) countOver(m *move, to location, up bool) {
	if m.target != nil && up && (isDir(m.target.typ) || m.to.attr.Nlink == 1) {
		o.countLast(m.target, to)
	}
}

func (o *Overlay) countNotOver(m *move) {
	if m.target != nil {
		o.countNamed(m.target)
	}
}

// countOrphan counts what a rollback has taken the name of and is written where it is.
func (o *Overlay) countOrphan(n *node) {
	if !o.counts() {
		return
	}
	p, h, err := n.location()
	if err != nil {
		return
	}
	defer h.release()
	if blocks, err := p.blocks(); err == nil {
		o.countNew(n, blocks, true)
	}
}
