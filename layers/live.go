package layers

import (
	"errors"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"snapfs/internal/livestate"
)

// What the kernel knows of an overlay, nodes by their ids, outlives the process in Options.Live: each node of the table
// has a record there (package livestate has the layout), which changes with it under table.mu. What one field means:
//
//	parent, name   the primary name, by nameCookie. In the orphan directory: the serial that is the name there, or 0 if
//	               the name says whose it is; and the key of a layer, hashed, from which on a redirect leads.
//	lookups        references of the kernel, and of calls in progress
//	flags          file type >> 12, and the following
//
// A node that is about to get another name has a second record, flagNext, for that one, until it has it: whichever of
// them leads to its inode is true. One for the orphan directory has the number of the host's inode as its name, because
// the name there may still be that of something forgotten. recall.go has what a successor makes of records.
const (
	flagType    = 0xf
	flagTaken   = 1 << 4 // node.numberTaken
	flagDead    = 1 << 5 // node.dead
	flagUnnamed = 1 << 6 // node.unnamed
	flagOrphan  = 1 << 7 // in the orphan directory
	flagOther   = 1 << 8 // dead, but with names in its layer that nobody has looked at
	flagNext    = 1 << 9 // see above
)

// live is what a table of nodes leaves to a successor, and what it has been left itself.
type live struct {
	o      *Overlay
	log    *slog.Logger
	nodes  *livestate.Nodes // guarded by table.mu
	past   *past            // nil: nothing, or no more. Guarded by table.mu.
	doubts doubts           // of what it has been left
	full   bool             // said that there is no room; guarded by table.mu
	moved  bool             // what the process before had not recorded it did in the layer that is sealed now; immutable once New is over
}

// record is what is recorded of n. table.mu is held.
func (l *live) record(n *node) livestate.Node {
	r := livestate.Node{ID: uint64(n.id), Lookups: n.lookups, Inode: n.ino, Gen: n.gen.Load(), Flags: n.typ >> 12 & flagType}
	if n.numberTaken {
		r.Flags |= flagTaken
	}
	if n.dead {
		r.Flags |= flagDead
	}
	switch {
	case n.dead && (n.kept != 0 || l.o.orphans.has(n)):
		r.Flags |= flagOrphan
		if n.unnamed {
			r.Flags |= flagUnnamed
		}
		if old := l.nodes.Get(n.slot); old.Flags&flagOrphan != 0 {
			r.Name = old.Name
		} else if stack := l.o.stack; len(stack) > l.topmost() {
			r.Name = nameCookie(stack[l.topmost()].lower.key)
		}
		switch {
		case n.kept == 0:
			if id, serial, ok := parseOrphan(n.top.name); ok && id == 0 {
				r.Parent = serial
			}
		case n.numbered:
			r.Parent = uint64(n.kept)
		}
		return r
	case n.dead && n.pin > 0 && !n.free:
		r.Flags |= flagOther
	}
	if n.parent != nil {
		r.Parent, r.Name = uint64(n.parent.id), nameCookie(n.name)
	}
	return r
}

// topmost is the index of the first layer below the upper in which what is to be recorded was changed.
func (l *live) topmost() int {
	if l.moved {
		return 2
	}
	return 1
}

// recordLocked records n as it is now. mu is held.
func (t *table) recordLocked(n *node) {
	l := t.live
	if l == nil || n.id == RootNode {
		return
	}
	var err error
	if n.slot == 0 {
		n.slot, err = l.nodes.Add(l.record(n))
	} else {
		n.slot, err = l.nodes.Change(n.slot, l.record(n))
	}
	if err != nil {
		l.noRoom(err)
	}
}

// recordOrigin records n, which is in the orphan directory now, with its redirect leading from a layer on. tree is held.
func (t *table) recordOrigin(n *node, from *layer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.recordLocked(n)
	if t.live == nil || n.slot == 0 {
		return
	}
	r := t.live.nodes.Get(n.slot)
	r.Name = nameCookie(from.lower.key)
	slot, err := t.live.nodes.Change(n.slot, r)
	if err != nil {
		t.live.noRoom(err)
	}
	n.slot = slot
}

// noRoom says that something could not be recorded: it works, but no successor will know it.
func (l *live) noRoom(err error) {
	if !l.full {
		l.full = true
		l.log.Error("what the kernel knows cannot be kept for another process", "err", err)
	}
}

// refLocked takes one more reference for the kernel. mu is held.
func (t *table) refLocked(n *node) {
	n.lookups++
	t.countedLocked(n)
	t.live.touchLocked(n.id)
}

// countedLocked records n's references. mu is held.
func (t *table) countedLocked(n *node) {
	if n.slot != 0 {
		t.live.nodes.SetLookups(n.slot, n.lookups)
	}
}

// unrecordLocked ends the record of a node that goes. mu is held.
func (t *table) unrecordLocked(n *node) {
	if n.slot != 0 {
		t.live.nodes.Remove(n.slot)
		n.slot = 0
	}
}

// intend records that n's primary name may be another one from now on, until done is called. The host has made no
// change yet.
func (t *table) intend(n, p *node, name string) (done func()) {
	l := t.live
	if l == nil {
		return func() {}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	r := l.record(n)
	r.Parent, r.Name, r.Lookups, r.Flags = uint64(p.id), nameCookie(name), 0, r.Flags&flagType|flagNext
	slot, err := l.nodes.Add(r)
	if err != nil {
		l.noRoom(err)
		return func() {}
	}
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		l.nodes.Remove(slot)
	}
}

// intendOrphan records that n, of this inode of the host, may be in the orphan directory from now on, by a serial alone,
// until intended is called with the result, unless that is 0. The host has made no change yet.
func (t *table) intendOrphan(n *node, serial uint32, host uint64) (slot uint32) {
	l := t.live
	t.mu.Lock()
	defer t.mu.Unlock()
	slot, err := l.nodes.Add(livestate.Node{
		ID: uint64(n.id), Parent: uint64(serial), Name: host, Inode: n.ino, Gen: n.gen.Load(),
		Flags: n.typ>>12&flagType | flagNext | flagOrphan,
	})
	if err != nil {
		l.noRoom(err)
		return 0
	}
	return slot
}

// intended ends what intendOrphan has recorded.
func (t *table) intended(slot uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.live.nodes.Remove(slot)
}

// get gives a record, and the serial by which it is in the orphan directory, or 0.
func (l *live) get(slot uint32) (r livestate.Node, serial uint64) { return numbered(l.nodes.Get(slot)) }

// numbered takes the serial of a name in the orphan directory out of a record, which is in no directory then.
func numbered(r livestate.Node) (livestate.Node, uint64) {
	if r.Flags&flagOrphan == 0 {
		return r, 0
	}
	serial := r.Parent
	r.Parent = 0
	return r, serial
}

// intendRename is intend for a rename of one of n's names. tree is held.
func (t *table) intendRename(n, from *node, fromName string, to *node, toName string) (done func()) {
	if n.parent != from || n.name != fromName {
		return func() {}
	}
	return t.intend(n, to, toName)
}

// intendPromotion is intend for the removal of one of n's names, where another will be the primary one. tree is held.
func (t *table) intendPromotion(n, p *node, name string) (done func()) {
	t.mu.Lock()
	var next alias
	if k := len(n.aliases); t.live != nil && k > 0 && !n.dead && n.parent == p && n.name == name {
		next = n.aliases[k-1]
	}
	t.mu.Unlock()
	if next.parent == nil {
		return func() {}
	}
	return t.intend(n, next.parent, next.name)
}

// takenLocked reports whether the kernel may know an id. mu is held.
func (t *table) takenLocked(id NodeID) bool {
	if t.m[id] != nil {
		return true
	}
	if t.live == nil || t.live.past == nil {
		return false
	}
	_, known := t.live.past.of[id]
	return known
}

// openLive opens the records that the overlay leaves, and takes over what it was left.
func (o *Overlay) openLive(s *livestate.State) error {
	nodes, err := s.OpenNodes()
	if err != nil {
		return err
	}
	l := &live{o: o, log: o.log, nodes: nodes}
	if err := l.inherit(); err != nil {
		return err
	}
	o.nodes.live = l
	if o.upper == nil {
		return nil
	}
	return o.openLiveOrphans(o.upper)
}

// openLiveOrphans brings the orphan directory of the process before into the work directory, or makes one, and empties
// it of what nobody knows.
func (o *Overlay) openLiveOrphans(u *upper) error {
	l, s := o.nodes.live, &o.orphans
	if err := l.fetchOrphans(u); err != nil {
		return err
	}
	if err := s.open(u, &o.share); err != nil {
		return err
	}
	s.live, s.layer.lower.dir.orphans = true, true
	settled, err := l.nodes.SetPlace(u.path)
	if err != nil {
		return err
	}
	settled()
	var useless, kept, redirects []string
	err = eachName(s.root(), func(name string, _ uint64, _ uint32) error {
		if strings.HasPrefix(name, farPrefix) {
			redirects = append(redirects, name)
			return nil
		}
		id, serial, ok := parseOrphan(name)
		if ok {
			s.serial.Store(max(s.serial.Load(), serial))
		}
		if ok && id == 0 {
			id = l.past.numbered(serial)
		}
		if old := l.past.orphan(id); !ok || !l.past.adopt(id, name, serial) {
			useless = append(useless, name)
		} else if old != "" {
			useless = append(useless, old)
		} else {
			s.count.Add(1)
		}
		kept = append(kept, name)
		return nil
	})
	for _, name := range useless {
		if err == nil {
			err = removeAll(s.root(), name)
		}
	}
	for _, name := range s.uselessFar(kept, redirects) {
		s.dropFar(name)
	}
	if err == nil {
		err = l.recallNew()
	}
	l.moved = false
	return err
}

// recallNew makes the nodes of what has a name in the orphan directory, of which the process before had not recorded it:
// where its redirects lead is not known any more after a seal.
func (l *live) recallNew() error {
	if l.past == nil {
		return nil
	}
	l.o.tree.RLock()
	defer l.o.tree.RUnlock()
	for _, id := range slices.Collect(maps.Keys(l.past.orphans)) {
		if p, ok := l.past.record(id); !ok || l.nodes.Get(p.slot).Flags&flagOrphan != 0 {
			continue
		}
		if _, err := l.recall(id, alias{}); err != nil {
			return err
		}
	}
	return nil
}

// cleanSealed undoes what the process before left half done in the upper that it was to seal when it was killed, of which
// this is the work directory.
func (o *Overlay) cleanSealed(work int) error {
	if len(o.stack) < 2 || o.stack[1].lower.dir == nil {
		return nil
	}
	was := &upper{work: work, store: o.stack[1].lower.dir}
	return was.clean(true)
}

// sealedBeside reports whether a work directory is that of the upper that is the topmost lower now.
func (o *Overlay) sealedBeside(work string) bool {
	if len(o.stack) < 2 || o.stack[1].lower.dir == nil {
		return false
	}
	return filepath.Dir(o.stack[1].lower.dir.side) == filepath.Dir(work)
}

// fetchOrphans moves the orphan directory into a work directory, if the process before has died while it was in another
// one, beside it: the state's word for where is not trusted.
func (l *live) fetchOrphans(to *upper) error {
	now, other := l.nodes.Place()
	for _, path := range []string{now, other} {
		if path == "" || path == to.path || !beside(path, to.path) {
			continue
		}
		fd, err := openat(unix.AT_FDCWD, path, unix.O_PATH|unix.O_DIRECTORY, 0)
		if err != nil {
			continue // it is gone, and with it what was in it
		}
		err = l.o.cleanSealed(fd)
		if err == nil {
			if err = unix.Renameat2(fd, orphanDir, to.work, orphanDir, unix.RENAME_NOREPLACE); err == nil {
				l.moved = l.o.sealedBeside(path)
			}
		}
		_ = unix.Close(fd) // O_PATH
		if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EEXIST) && !errors.Is(err, unix.EXDEV) {
			return err
		}
	}
	return nil
}
