package layers

import (
	"snapfs/internal/lockorder"
)

// A rollback, and Restack, make all nodes those of an epoch that is over, in no time. What becomes of one from then on
// is settled when it is next used, its parents first, or when the call comes to it, whatever is first.

// catchUp is what such a call leaves to be done to the nodes.
type catchUp struct {
	o  *Overlay
	by interface {
		// become settles one node, all of whose parents, by its names, are settled. It appends directories to lost of
		// which a reference must be given back. tree is held, and mu.
		become(n *node, names []alias, lost []*node) []*node
	}

	// Immutable once the gate is open.
	epoch      uint32             // that the call has begun
	nodes      []*node            // all there were
	index      map[dirKey]*node   // the directories among them
	renumbered map[uint64][]*node // those that have another id, by the number that their layer reports

	mu lockorder.Mutex[lockorder.CatchUp]
}

// dirKey is a directory by its name.
type dirKey struct {
	parent *node
	name   string
}

// surveyRounds is how often the nodes that have changed during a survey are looked at before the gate is closed for the
// rest of them.
const surveyRounds = 5

const (
	lookAtOnce   = 1024 // how many nodes are listed before others may go on
	settleAtOnce = 64   // how many are settled, or looked up
)

// survey lists the nodes, and shows them to look, some at a time. Those that come or move until the gate is closed the
// table notes.
func (c *catchUp) survey(atOnce int, look func(some []*node)) {
	c.index, c.renumbered = map[dirKey]*node{}, map[uint64][]*node{}
	all := c.o.nodes.watch()
	for range surveyRounds {
		for rest := all; len(rest) > 0; {
			some := rest[:min(atOnce, len(rest))]
			rest = rest[len(some):]
			c.o.tree.RLock()
			c.enlist(some)
			look(some)
			c.o.tree.RUnlock()
		}
		if len(all) < atOnce {
			return
		}
		all = c.o.nodes.noteAnew()
	}
}

// enlist notes nodes. tree is held.
func (c *catchUp) enlist(nodes []*node) {
	c.nodes = append(c.nodes, nodes...)
	for _, n := range nodes {
		if isDir(n.typ) && !n.dead && n.parent != nil {
			c.index[dirKey{n.parent, n.name}] = n
		}
		if n.renumbered() {
			c.renumbered[n.ino] = append(c.renumbered[n.ino], n)
		}
	}
}

// begin makes all nodes those of an epoch that is over. tree is held for writing.
func (t *table) begin(c *catchUp) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.epoch++
	c.epoch = t.epoch
	t.late.Store(c)
}

// refresh settles a node that is behind the last rollback or Restack. tree is held.
func (t *table) refresh(n *node) {
	if c := t.late.Load(); c != nil {
		c.settle(n)
	}
}

// refreshAt is refresh for a directory by its name, if it is known.
func (t *table) refreshAt(p *node, name string) {
	if c := t.late.Load(); c != nil {
		if n := c.index[dirKey{p, name}]; n != nil {
			c.settle(n)
		}
	}
}

// refreshLocked is refresh for the nodes that a look-up's inode may be found to be. mu is held, but given up for a
// moment where there is one that is behind; tree is held.
func (t *table) refreshLocked(p *node, name string, ino uint64, id layerInode) {
	c := t.late.Load()
	if c == nil {
		return
	}
	for more := true; more; {
		more = false
		known := []*node{t.m[NodeID(ino)], t.renumbered.names[alias{p, name}], t.renumbered.inodes[id], t.renumbered.numbers[ino]}
		for _, n := range append(known, c.renumbered[ino]...) {
			if t.behindLocked(n) && t.m[n.id] == n {
				t.mu.Unlock()
				c.settle(n)
				t.mu.Lock()
				more = true
				break
			}
		}
	}
}

// behindLocked reports whether n is of an epoch that is over. mu is held.
func (t *table) behindLocked(n *node) bool { return n != nil && n.epoch != t.epoch }

// settle makes true what becomes of n, unless it is forgotten. tree is held.
func (c *catchUp) settle(n *node) {
	t := &c.o.nodes
	t.mu.Lock()
	if !t.behindLocked(n) || t.m[n.id] != n {
		t.mu.Unlock()
		return
	}
	n.holds++ // keeps it
	t.mu.Unlock()
	c.mu.Lock()
	lost := c.settleLocked(n, nil)
	c.mu.Unlock()
	c.o.discard(t.drop(n, 0, 1))
	for _, p := range lost {
		c.o.discard(t.drop(p, 0, 1))
	}
}

// settleLocked is settle with mu held. It appends directories to lost of which a reference must be given back.
func (c *catchUp) settleLocked(n *node, lost []*node) []*node {
	t := &c.o.nodes
	t.mu.Lock()
	if !t.behindLocked(n) {
		t.mu.Unlock()
		return lost
	}
	names := n.aliases
	if n.parent != nil {
		names = append([]alias{{n.parent, n.name}}, names...)
	}
	t.mu.Unlock()
	for _, a := range names {
		lost = c.settleLocked(a.parent, lost)
	}
	lost = c.by.become(n, names, lost)
	t.mu.Lock()
	n.epoch = c.epoch
	t.mu.Unlock()
	return lost
}

// settleAll settles all nodes.
func (c *catchUp) settleAll() {
	for rest := c.nodes; len(rest) > 0; {
		some := rest[:min(settleAtOnce, len(rest))]
		rest = rest[len(some):]
		c.o.tree.RLock()
		for _, n := range some {
			c.settle(n)
		}
		c.o.tree.RUnlock()
	}
}
