package layers

import (
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// What is unlinked while the kernel still refers to it is pinned by a descriptor. Beyond the overlay's share of them it
// is kept in the orphan directory, in the work directory, instead: slower, but without bound. A file is linked into it;
// of a directory, which nobody can put anything in any more, a copy of the attributes is made there. New empties the
// work directory.
//
// With Options.Live everything that is unlinked is there as long as the kernel refers to it, for a successor, what is
// pinned too: the removal is a rename to there (moveAway, eraseKept), and what is renamed over is linked to there before.
// New removes only what nobody refers to. A name is ID-SERIAL then, both in hexadecimal, or a serial alone, and the node's
// record has that. The latter is what a removal makes: what is removed next is renamed onto a name that was forgotten,
// which takes the host as long as a removal, where making and removing a name took a third more.

const orphanDir = "#orphans"

// orphanTable is the orphan directory of an overlay. It moves on with the work directory when the upper is sealed.
type orphanTable struct {
	limit   int64        // of pins of the process, for tests; 0: see mayPin. Immutable.
	layer   *layer       // over the directory; nil: not made yet. Guarded by Overlay.tree.
	pending *node        // has a name in it, but has its own still. Guarded by Overlay.tree, held for writing.
	top     *part        // pending's part in it; guarded as pending
	count   atomic.Int64 // inodes in it
	live    bool         // it is for a successor, too; immutable once New is over. The layer is, then.
	serial  atomic.Uint64
	far     atomic.Int64 // redirects in it
}

// orphanName is the name of a node in the orphan directory.
func orphanName(id NodeID, serial uint64) string {
	return strconv.FormatUint(uint64(id), 16) + "-" + strconv.FormatUint(serial, 16)
}

// numberedOrphan is a name that the record of a node has.
func numberedOrphan(serial uint32) string { return strconv.FormatUint(uint64(serial), 16) }

// keptAs is the name of a node of which kept is set.
func (n *node) keptAs() string {
	if n.numbered {
		return numberedOrphan(n.kept)
	}
	return orphanName(n.id, uint64(n.kept))
}

// parseOrphan is the opposite of orphanName, and with id 0 of numberedOrphan.
func parseOrphan(name string) (id NodeID, serial uint64, ok bool) {
	a, b, both := strings.Cut(name, "-")
	if !both {
		serial, err := strconv.ParseUint(name, 16, 32)
		return 0, serial, err == nil && serial != 0 && name == numberedOrphan(uint32(serial))
	}
	n, err := strconv.ParseUint(a, 16, 64)
	serial, serr := strconv.ParseUint(b, 16, 64)
	return NodeID(n), serial, err == nil && serr == nil && name == orphanName(NodeID(n), serial)
}

// next gives the serial of a new name: one id may have two names for a moment, when it goes and comes again.
func (s *orphanTable) next() uint32 {
	for {
		if n := uint32(s.serial.Add(1)); n != 0 {
			return n
		}
	}
}

// keep makes sure that n's inode outlives the name it is about to lose, its last known one. The caller calls settle
// when that has happened or failed. tree is held for writing.
func (o *Overlay) keep(n *node) error {
	if n.pin > 0 || o.orphans.has(n) {
		return nil
	}
	if !o.mayPin() {
		switch err := o.moveToOrphans(n); {
		case err == nil:
			return nil
		case errors.Is(err, errElsewhere) && !n.alone:
			return o.needName(n)
		case !o.mustPin():
			if errors.Is(err, errElsewhere) {
				err = unix.EMFILE
			}
			return err
		}
	}
	err := o.pin(n)
	if noRoom(err) && o.moveToOrphans(n) == nil {
		return nil
	}
	return err
}

// errElsewhere says that an inode has names that nobody has looked at.
var errElsewhere = errors.New("has another name")

// open makes the orphan directory. tree is held for writing.
func (s *orphanTable) open(u *upper, of *share) error {
	if s.layer != nil {
		return nil
	}
	if err := unix.Mkdirat(u.work, orphanDir, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	fd, err := openat(u.work, orphanDir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	s.layer = &layer{lower: newDirLower("", &dirStore{root: fd, side: u.store.side}), share: of}
	return nil
}

// part gives n's part in the orphan directory.
func (s *orphanTable) part(n *node) *part {
	return &part{layer: s.layer, parent: rootPart(s.layer), name: orphanName(n.id, uint64(s.next())), ino: n.ino}
}

// moveToOrphans gives n's inode, or a copy of it if it is a directory, a name in the orphan directory.
func (o *Overlay) moveToOrphans(n *node) error {
	s := &o.orphans
	if err := s.open(o.upper, &o.share); err != nil {
		return err
	}
	top := s.part(n)
	if isDir(n.typ) {
		if err := o.copyDir(n, top); err != nil {
			return err
		}
	} else if err := o.linkOrphan(n, top); err != nil {
		return err
	}
	s.pending, s.top = n, top
	s.count.Add(1)
	return nil
}

// linkOrphan links a file into the orphan directory.
func (o *Overlay) linkOrphan(n *node, top *part) error {
	p, h, err := n.location()
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
	var m *blockMap
	if isReg(n.typ) && len(n.below) > 0 {
		if o.orphans.live {
			if err := o.setRedirect(n); err != nil {
				return err
			}
			if err := o.orphans.takeFar(o.upper.store, p); err != nil {
				return err
			}
		}
		if m, err = o.blocksOf(n.top, n); err != nil {
			return err
		}
	}
	if err := unix.Linkat(p.dirfd, p.name, o.orphans.root(), top.name, 0); err != nil {
		return err
	}
	top.host = n.top.host
	top.ref.Store(n.top.ref.Load())
	if isReg(n.typ) && len(n.below) > 0 {
		o.blocks.put(top, m)
	}
	return nil
}

// copyDir makes a directory with the attributes of n in the orphan directory.
func (o *Overlay) copyDir(n *node, top *part) error {
	a, err := o.attr(n)
	if err != nil {
		return err
	}
	xattrs, err := o.rawXattrs(n)
	if err != nil {
		return err
	}
	root := o.orphans.root()
	if err := unix.Mkdirat(root, top.name, 0o700); err != nil {
		return err
	}
	if err := copyAttrs(nameIn(root, top.name), a, xattrs); err != nil {
		_ = unix.Unlinkat(root, top.name, unix.AT_REMOVEDIR) // the first error counts
		return err
	}
	top.ref.Store(inodeInfoOf(a).notes(true))
	return nil
}

func (s *orphanTable) root() int { return s.layer.lower.dir.root }

// has reports whether n's inode is kept there. tree is held.
func (s *orphanTable) has(n *node) bool { return s.layer != nil && n.top.layer == s.layer }

// settle ends a removal: what has a name in the orphan directory but has kept its own leaves it.
func (o *Overlay) settleOrphan() {
	s := &o.orphans
	if n := s.pending; n != nil {
		o.blocks.drop(s.top)
		s.remove(s.top.name)
		s.pending, s.top = nil, nil
	}
}

// take moves n, which has lost its name, to the orphan directory, if it has a name there. tree is held for writing,
// table.mu too.
func (o *Overlay) take(n *node) {
	s := &o.orphans
	if s.pending != n {
		return
	}
	top := s.top
	s.pending, s.top = nil, nil
	descriptors.drop(n.top)
	o.blocks.drop(n.top)
	n.top, n.free = top, true
	if isDir(n.typ) {
		n.below = nil
	}
}

// leaveOrphans takes n, which has been given a name in the upper, out of the orphan directory. tree is held for
// writing, table.mu too.
func (o *Overlay) leaveOrphans(n *node) {
	o.orphans.remove(n.top.name)
	top := &part{layer: o.upper.layer, ino: n.ino, host: n.top.host}
	top.ref.Store(n.top.ref.Load())
	descriptors.drop(n.top)
	n.top, n.free, n.unnamed = top, false, false
}

// leaveOrphan gives the name of a forgotten node's inode in the orphan directory, to be removed; none if that is done, or
// it has none. tree is held.
func (o *Overlay) leaveOrphan(n *node) reaped {
	s, d := &o.orphans, reaped{fd: -1}
	switch {
	case n.kept != 0:
		d.from, d.name, d.dir = s, n.keptAs(), isDir(n.typ)
		if n.numbered && len(n.below) == 0 {
			d.serial = n.kept
		}
	case s.has(n) && s.live:
		d.from, d.name = s, n.top.name
	case s.has(n):
		s.remove(n.top.name)
	}
	return d
}

// eraseOrphan has a name in the orphan directory removed, beside what goes on.
func (o *Overlay) eraseOrphan(name string) {
	o.reaper.take(reaped{fd: -1, from: &o.orphans, name: name})
}

// remove removes a name in the orphan directory.
func (s *orphanTable) remove(name string) {
	defer s.dropFar(s.farOf(name))
	err := unix.Unlinkat(s.root(), name, 0)
	if errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EPERM) {
		err = unix.Unlinkat(s.root(), name, unix.AT_REMOVEDIR)
	}
	if errors.Is(err, unix.ENOTEMPTY) {
		_ = removeAll(s.root(), name) // New removes what is left
	}
	s.count.Add(-1)
}

// moveOrphans takes the directory along to another work directory. tree is held for writing.
func (o *Overlay) moveOrphans(from, to *upper) error {
	s := &o.orphans
	if s.layer == nil {
		return nil
	}
	if s.live {
		o.nodes.mu.Lock()
		settled, err := o.nodes.live.nodes.SetPlace(to.path)
		o.nodes.mu.Unlock()
		if err != nil {
			return err
		}
		defer settled()
	}
	if err := unix.Renameat(from.work, orphanDir, to.work, orphanDir); err != nil {
		return err
	}
	s.layer.lower.dir.side = to.store.side
	return nil
}

// DropKept removes what has no name any more and was kept for a successor, which is not to come. Nothing uses the overlay
// after it but Close.
func (o *Overlay) DropKept() error {
	s := &o.orphans
	if !s.live || s.layer == nil {
		return nil
	}
	o.reaper.drain()
	var names []string
	err := eachName(s.root(), func(name string, _ uint64, _ uint32) error {
		names = append(names, name)
		return nil
	})
	for _, name := range names {
		err = errors.Join(err, removeAll(s.root(), name))
	}
	return err
}

func (s *orphanTable) close() {
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
