package layers

import (
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// What is unlinked while the kernel still refers to it is pinned by a descriptor. Beyond maxPins of them it is linked
// into the orphan directory, in the work directory, instead: slower, but without bound. New empties the work directory.

// pins counts the pinned inodes of the process.
var pins atomic.Int64

// maxPins leaves half of the process's descriptors to others.
var maxPins = sync.OnceValue(func() int64 {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		return 256
	}
	return int64(min(r.Cur/2, 1<<20))
})

const orphanDir = "#orphans"

// orphanage is the orphan directory of an overlay. It moves on with the work directory when the upper is sealed.
type orphanage struct {
	limit   int64        // of pins; 0: maxPins. Immutable.
	layer   *layer       // over the directory; nil: not made yet. Guarded by Overlay.tree.
	pending *node        // linked in, but still at its place. Guarded by Overlay.tree, held for writing.
	count   atomic.Int64 // inodes in it
}

// orphanName is n's name in the orphan directory.
func orphanName(n *node) string { return strconv.FormatUint(uint64(n.id), 16) }

// keep makes sure that n's inode outlives the name it is about to lose, its last known one. The caller calls settle
// when that has happened or failed. tree is held for writing.
func (o *Overlay) keep(n *node) error {
	if n.pin > 0 {
		return nil
	}
	limit := o.orphans.limit
	if limit == 0 {
		limit = maxPins()
	}
	if pins.Load() >= limit && !isDir(n.typ) && len(n.below) == 0 && o.shelve(n) == nil {
		return nil
	}
	return n.keep()
}

// errElsewhere says that an inode has names that nobody has looked at.
var errElsewhere = errors.New("has another name")

// shelve links n's inode into the orphan directory.
func (o *Overlay) shelve(n *node) error {
	p, h, err := n.place()
	if err != nil {
		return err
	}
	defer h.release()
	a, err := p.stat()
	if err != nil {
		return err
	}
	if a.Nlink > 1 {
		return errElsewhere
	}
	if o.orphans.layer == nil {
		if err := unix.Mkdirat(o.upper.work, orphanDir, 0o700); err != nil {
			return err
		}
		fd, err := openat(o.upper.work, orphanDir, unix.O_PATH|unix.O_DIRECTORY, 0)
		if err != nil {
			return err
		}
		o.orphans.layer = &layer{lower: newLower("", &dirStore{root: fd})}
	}
	if err := unix.Linkat(p.dirfd, p.name, o.orphans.root(), orphanName(n), 0); err != nil {
		return err
	}
	o.orphans.pending = n
	o.orphans.count.Add(1)
	return nil
}

func (s *orphanage) root() int { return s.layer.lower.be.(*dirStore).root }

// settle ends a removal: what was linked into the orphan directory but has kept its name leaves it.
func (s *orphanage) settle() {
	if s.pending != nil {
		s.remove(s.pending)
		s.pending = nil
	}
}

// take moves n, which has lost its name, to the orphan directory, if it is linked there. tree is held for writing,
// table.mu too.
func (o *Overlay) take(n *node) {
	s := &o.orphans
	if s.pending != n {
		return
	}
	s.pending = nil
	top := &obj{layer: s.layer, parent: rootObj(s.layer), name: orphanName(n), ino: n.ino, host: n.top.host}
	top.ref.Store(n.top.ref.Load())
	descriptors.drop(n.top)
	n.top, n.free = top, true
}

// leave removes a forgotten node's inode, if it is in the orphan directory.
func (s *orphanage) leave(n *node) {
	if s.layer != nil && n.top.layer == s.layer {
		s.remove(n)
	}
}

func (s *orphanage) remove(n *node) {
	_ = unix.Unlinkat(s.root(), orphanName(n), 0) // New removes what is left
	s.count.Add(-1)
}

// move takes the directory along to another work directory. tree is held for writing.
func (s *orphanage) move(from, to *upper) error {
	if s.layer == nil {
		return nil
	}
	return unix.Renameat(from.work, orphanDir, to.work, orphanDir)
}

func (s *orphanage) close() {
	if s.layer != nil {
		descriptors.purge(func(k fdKey) bool { return k.o.layer == s.layer })
		_ = s.layer.lower.Close() // O_PATH
	}
}

// freeing is how often a full host is asked again, after twice as many milliseconds each time, while unlinked inodes
// are kept: the kernel may have sent the FORGET of one that has just been removed, whose blocks are not free yet.
const freeing = 5

// mayFree waits a moment if err says that the host is full and there is hope; tries counts the calls.
func (o *Overlay) mayFree(err error, tries *int) bool {
	if *tries >= freeing || !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT) {
		return false
	}
	if pins.Load() == 0 && o.orphans.count.Load() == 0 {
		return false
	}
	o.reaper.drain()
	time.Sleep(time.Millisecond << *tries)
	*tries++
	return true
}
