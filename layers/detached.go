package layers

import (
	"slices"

	"snapfs/internal/lockorder"
)

// attic holds what a rollback or Restack has taken from under the tree, for the nodes that still stand on it: files that programs have
// open, and directories they are in. They have no names any more.
type detachedLayers struct {
	released func() // called when it is empty

	layers []*layer // each with its reference; immutable once the rollback is over
	users  int      // guarded by detachedSets.mu
}

// detachedSets are the sets of detached layers of an overlay that nodes use. The zero value is ready.
type detachedSets struct {
	mu lockorder.Mutex[lockorder.Orphans]
	in map[*node][]*detachedLayers // guarded by mu: a node may outlive several rollbacks
	// all are those that are not empty, guarded by mu.
	all []*detachedLayers
}

func (s *detachedSets) add(a *detachedLayers, users int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a.users = users
	s.all = append(s.all, a)
}

// take makes n an orphan that stands on a. upper is the layer that was the upper. It gives the directories of the further names that
// n had, each with the reference that the name held. tree is held.
func (a *detachedLayers) take(o *Overlay, n *node, upper *layer) (parents []*node) {
	o.nodes.mu.Lock()
	for _, x := range o.nodes.takeAliasesLocked(n) {
		parents = append(parents, x.parent)
	}
	n.dead = true
	if n.top.layer == upper {
		n.free = true // nobody else has it: it is written where it is
	}
	o.nodes.showLocked(n)
	o.nodes.mu.Unlock()
	switch {
	case n.free:
	case n.pin == 0 && !slices.Contains(a.layers, n.top.layer):
		// Its layer stays, and whoever looks its inode up there must meet a node of its own.
		top := &part{layer: a.copyOf(n.top.layer), parent: n.top.parent, name: n.top.name, ino: n.top.ino, host: n.top.host}
		top.ref.Store(n.top.ref.Load())
		descriptors.drop(n.top)
		o.nodes.setTop(n, top, n.below)
	}
	o.listings.drop(n)
	o.detached.join(n, a)
	return parents
}

// join is enter for a node that a does not count yet.
func (s *detachedSets) join(n *node, a *detachedLayers) {
	s.mu.Lock()
	a.users++
	s.mu.Unlock()
	s.enter(n, a)
}

// enter notes that n stands on a, which counts it already.
func (s *detachedSets) enter(n *node, a *detachedLayers) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.in == nil {
		s.in = map[*node][]*detachedLayers{}
	}
	s.in[n] = append(s.in[n], a)
}

// copyOf gives a layer that reads what l does.
func (a *detachedLayers) copyOf(l *layer) *layer {
	for _, c := range a.layers {
		if c.lower == l.lower {
			return c
		}
	}
	c := &layer{lower: l.lower.acquire(), share: l.share}
	a.layers = append(a.layers, c)
	return c
}

// give gives up a use of an attic that no node has.
func (s *detachedSets) give(a *detachedLayers) {
	s.mu.Lock()
	a.users--
	done := a.users == 0
	s.mu.Unlock()
	if done {
		s.empty(a)
	}
}

// leave notes that a node is gone.
func (s *detachedSets) leave(n *node) {
	s.mu.Lock()
	var done []*detachedLayers
	for _, a := range s.in[n] {
		if a.users--; a.users == 0 {
			done = append(done, a)
		}
	}
	delete(s.in, n)
	s.mu.Unlock()
	for _, a := range done {
		s.empty(a)
	}
}

// empty gives up an attic that nobody stands on.
func (s *detachedSets) empty(a *detachedLayers) {
	s.mu.Lock()
	s.all = slices.DeleteFunc(s.all, func(x *detachedLayers) bool { return x == a })
	s.mu.Unlock()
	descriptors.purge(func(k fdKey) bool { return slices.Contains(a.layers, k.o.layer) })
	for _, l := range a.layers {
		_ = l.lower.Close() // read only, or nobody's any more
	}
	if a.released != nil {
		a.released()
	}
}

// close gives up all attics; the overlay is being closed.
func (s *detachedSets) close() {
	s.mu.Lock()
	all := slices.Clone(s.all)
	s.mu.Unlock()
	for _, a := range all {
		s.empty(a)
	}
}
