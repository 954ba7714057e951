package layers

import (
	"maps"
	"slices"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"snapfs/internal/lockorder"
	"snapfs/internal/readset"
	"snapfs/squashfs"
)

// NodeID names a node of a live overlay as FUSE does; the root is 1.
type NodeID uint64

// RootNode is the root directory of every overlay.
const RootNode NodeID = 1

// node is one file or directory that the kernel, or a child in memory, refers to.
type node struct {
	// Immutable.
	id          NodeID
	typ         uint32 // S_IFMT bits
	birth       uint32 // generation of the time of birth
	numberTaken bool   // another node shows the number that this one's layer reports

	stale    bool // its image has another version than was told; guarded by table.mu. Here there is room for it.
	numbered bool // kept is all of the name; guarded as kept. Here there is room for it, too.

	inherited bool // references of the process before count, see reconcile.go. Immutable; as the two before.

	// bare says that there are no extended attributes but the overlay's own. The kernel asks for one before the first
	// write of a file and at every ls, nearly always in vain.
	bare atomic.Bool
	lost atomic.Bool   // a look-up wants its name to be that by which it was found; see revive
	gen  atomic.Uint32 // generation of id; changed under table.mu
	seen atomic.Uint32 // reads that were noted, with the epoch of their set; see reads.go
	// kept is the serial of the name in the orphan directory of what is pinned; 0: none. Guarded by Overlay.tree.
	kept uint32

	lock lockorder.Mutex[lockorder.Node] // see mutation

	// Guarded by Overlay.tree.
	ino     uint64 // as the topmost layer reports it; see number
	parent  *node  // of name; nil for the root
	name    string
	top     *part
	below   []*part         // merged directories: the further parts; metacopies: the parts down to the one with the data
	pin     int32           // O_PATH descriptor of a dead inode of a directory layer plus one; 0 = none
	dead    bool            // no known name leads here: removed, or made without one
	unnamed bool            // a file in the orphan directory that was made without a name, and may be given one
	alone   bool            // a file whose further names were looked for in vain
	free    bool            // the inode of a dead node is in no layer of the stack, so that it stays writable over a seal
	held    *readset.Entity // what a dead node was to Options.Reads; nil: not known, or nothing

	pending *pendingChange // a change under way; nil: none

	// Guarded by table.mu.
	lookups uint64  // references that the kernel holds
	holds   int     // nodes whose parent or alias is this, and calls in progress
	aliases []alias // names of a hard-linked file beside the primary one, in no order
	epoch   uint32  // table.epoch when n was last made true; fields of one that is behind belong to catchUp.settle
	slot    uint32  // of its record, see live; 0: none
}

// pendingChange is what look-ups must know of a change of a node that the host may have made already.
type pendingChange struct {
	location alias // the node may be found here; parent nil: its names stay
	layer    *layer
	visible  *Attr // of a directory: the times and the link count that callers see meanwhile; nil: those that it has
	over     bool  // of a file with one name: it is being renamed over
}

// table holds the nodes of an overlay.
type table struct {
	mu         lockorder.Mutex[lockorder.Table]
	m          map[NodeID]*node // guarded by mu
	peak       int              // the most nodes that m has had room for; guarded by mu
	own        atomic.Int64     // nodes of m but the root
	next       uint64           // for ids of nodes whose inode number is taken; guarded by mu
	renumbered renumberedNodes  // those nodes; guarded by mu

	many map[*node]map[alias]int // the indices of the aliases of nodes that have more than fewAliases; guarded by mu

	elsewhere map[*node]struct{} // dead, but perhaps not free; guarded by mu

	recent *[recentIDs]recently // of ids that have gone; nil: none. Guarded by mu.

	live *live // what a successor is left; nil: nothing. Immutable.

	epoch uint32                  // counts rollbacks and calls of Restack; guarded by mu
	late  atomic.Pointer[catchUp] // of the last one, while nodes may be of the epoch before

	watching bool    // Restack or Rollback wants to know of nodes that get other parts; guarded by mu
	noted    []*node // those since watch; guarded by mu
}

// watch lists all nodes, and has the table note those that get parts until watched is called.
func (t *table) watch() []*node {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.watching = true
	return slices.Collect(maps.Values(t.m))
}

// watched gives the nodes that have got parts since watch.
func (t *table) watched() []*node {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := t.noted
	t.watching, t.noted = false, nil
	return list
}

// noteAnew gives the nodes that have got parts, or a name, since watch or the last call.
func (t *table) noteAnew() []*node {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := t.noted
	t.noted = nil
	return list
}

// noteLocked notes that n has got parts. mu is held.
func (t *table) noteLocked(n *node) {
	if t.watching {
		t.noted = append(t.noted, n)
	}
}

// get gives the node of an id the kernel knows; ESTALE for one it cannot know. tree is held.
func (t *table) get(id NodeID) (*node, error) {
	t.mu.Lock()
	n := t.m[id]
	behind := t.behindLocked(n)
	past := n == nil && t.pastLocked(id)
	t.mu.Unlock()
	if past {
		var err error
		if n, err = t.live.recall(id, alias{}); err != nil {
			return nil, err
		}
	}
	if n == nil {
		return nil, unix.ESTALE
	}
	if behind {
		t.refresh(n)
	}
	return n, nil
}

// enter finds or makes the node that p's entry name resolved to, with one more reference. tree is held for reading.
func (t *table) enter(p *node, name string, h hit) *node {
	top := h.parts[0]
	n := t.lockFor(candidate{p, name, top, &h.attr})
	defer t.mu.Unlock()
	if n == nil {
		n = &node{
			id: NodeID(top.ino), ino: top.ino, typ: h.attr.Mode & unix.S_IFMT,
			parent: p, name: name, top: top,
		}
		n.bare.Store(h.found.bare)
		if len(h.parts) > 1 {
			n.below = h.parts[1:]
		}
		t.addLocked(n, h.attr.Btime)
	} else {
		if n.parent != p || n.name != name {
			t.aliasLocked(n, p, name)
		}
		t.renewLocked(n, top.layer, h.found.ref)
	}
	t.refLocked(n)
	return n
}

// renewLocked takes in that a look-up has found another version of a file than the kernel knows. The kernel does not
// take another size of a file that it has in memory; as another inode it takes it. mu is held.
func (t *table) renewLocked(n *node, l *layer, ref uint64) {
	was, gen := n.top.ref.Load(), n.gen.Load()
	now := gen
	if n.stale {
		n.stale = false
		now++
	}
	if ref&sourceNotes == sourceNotes && n.top.layer == l {
		n.top.ref.Store(ref)
		if was&sourceNotes == sourceNotes && was&noteFleet != 0 {
			now += uint32(ref&noteVersion) - uint32(was&noteVersion)
		}
	}
	if now = max(now, 1); now != gen {
		n.gen.Store(now)
		t.recordLocked(n)
	}
}

// enterKnown gives the node of an inode that was found as p's entry name before, with one more reference, or nil. tree
// is held for reading.
func (t *table) enterKnown(p *node, name string, l *layer, ino, ref uint64) *node {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refreshLocked(p, name, ino, layerInode{})
	t.recallLocked(p, name, ino, 0)
	n := t.m[NodeID(ino)]
	if n == nil || !n.at(p, name, l, ino) {
		if n = t.renumbered.names[alias{p, name}]; n == nil || !n.at(p, name, l, ino) {
			return nil
		}
	}
	t.renewLocked(n, l, ref)
	t.refLocked(n)
	return n
}

// addLocked enters a new node of an inode born at that time. mu is held.
func (t *table) addLocked(n *node, birth squashfs.Time) {
	if n.parent != nil {
		n.parent.holds++
	}
	if n.id == 0 || n.id >= spareIDs || t.takenLocked(n.id) || t.renumbered.numbers[n.ino] != nil {
		n.numberTaken = t.clashLocked(n)
		n.id = t.spareIDLocked()
		t.showLocked(n)
	}
	n.epoch = t.epoch
	n.birth = generation(birth)
	n.gen.Store(t.generationLocked(n.id, birth))
	t.m[n.id] = n
	t.count(1)
	t.peak = max(t.peak, len(t.m))
	t.recordLocked(n)
	t.noteLocked(n)
}

// shrinkLocked gives the room of forgotten nodes back, which a map keeps. mu is held.
func (t *table) shrinkLocked() {
	if t.peak < 4096 || len(t.m) > t.peak/8 {
		return
	}
	m := make(map[NodeID]*node, len(t.m))
	maps.Copy(m, t.m)
	t.m, t.peak = m, len(m)
}

// drop takes references of n away and removes what nothing refers to any more. It returns the removed nodes.
func (t *table) drop(n *node, lookups uint64, holds int) []*node {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.dropLocked(n, lookups, holds)
}

// dropLocked is drop with mu held.
func (t *table) dropLocked(n *node, lookups uint64, holds int) (gone []*node) {
	if lookups > 0 {
		n.lookups -= min(lookups, n.lookups)
		t.countedLocked(n)
		t.live.touchLocked(n.id)
		if n.inherited && n.lookups > 0 {
			t.live.remainLocked(n.id)
		}
	}
	n.holds -= holds
	for work := []*node{n}; len(work) > 0; {
		n := work[len(work)-1]
		work = work[:len(work)-1]
		if n.lookups > 0 || n.holds > 0 || n.id == RootNode || t.m[n.id] != n {
			continue
		}
		delete(t.m, n.id)
		t.hideLocked(n)
		t.unrecordLocked(n)
		if n.dead {
			t.goneLocked(n)
			delete(t.elsewhere, n)
		}
		gone = append(gone, n)
		for _, a := range t.takeAliasesLocked(n) {
			a.parent.holds--
			work = append(work, a.parent)
		}
		if n.parent != nil {
			n.parent.holds--
			work = append(work, n.parent)
		}
	}
	t.count(-len(gone))
	t.shrinkLocked()
	return gone
}

// setTop gives n a new topmost part. tree is held for writing.
func (t *table) setTop(n *node, top *part, below []*part) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n.top, n.below = top, below
	t.showLocked(n)
	t.noteLocked(n)
}

// hold keeps n in the table during a call.
func (t *table) hold(n *node) {
	t.mu.Lock()
	n.holds++
	t.mu.Unlock()
}

// location gives the host's name of n's top part, which must lie in a directory layer. tree is held for reading.
func (n *node) location() (location, hold, error) {
	if n.pin > 0 {
		return location{dirfd: int(n.pin) - 1}, hold{}, nil
	}
	return n.top.dirStore().at(n.top)
}

// parts are the layers' parts of n, topmost first.
func (n *node) parts() []*part {
	if len(n.below) == 0 {
		return []*part{n.top}
	}
	return append([]*part{n.top}, n.below...)
}

// pin pins n's inode, which is about to lose its last known name. tree is held for writing.
func (o *Overlay) pin(n *node) error {
	p, h, err := n.location()
	if err != nil {
		return err
	}
	defer h.release()
	fd, err := openat(p.dirfd, p.name, unix.O_PATH, 0)
	if err != nil {
		return err
	}
	o.setPin(n, fd)
	return nil
}

// setPin has n hold an open inode.
func (o *Overlay) setPin(n *node, fd int) {
	n.pin = int32(fd) + 1
	o.share.hold(1)
}

// unpin gives the pinned inode up. Nothing refers to n, or n has a name again.
func (o *Overlay) unpin(n *node) {
	if n.pin > 0 {
		_ = unix.Close(int(n.pin) - 1) // O_PATH
		o.share.hold(-1)
		n.pin, n.free = 0, false
	}
}
