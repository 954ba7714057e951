package layers

import (
	"slices"

	"snapfs/internal/lockorder"
)

// detachedLayers are layers that a rollback or Restack has taken out of the stack, for the orphans whose parts lie in
// them: files that programs have open, and directories they are in, which have no names any more.
type detachedLayers struct {
	released func() // called when the last user is gone

	layers []*layer // each with its reference; immutable once the rollback is over
	users  int      // guarded by detachedSets.mu
}

// detachedSets are the sets of detached layers of an overlay that nodes use. The zero value is ready.
type detachedSets struct {
	mu lockorder.Mutex[lockorder.Orphans]
	of map[*node][]*detachedLayers // guarded by mu: a node may outlive several rollbacks
	// all are those that have users, guarded by mu.
	all []*detachedLayers
}

func (s *detachedSets) add(a *detachedLayers, users int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a.users = users
	s.all = append(s.all, a)
}

// orphan makes n an orphan that uses a. upper is the layer that was the upper. It gives the directories of the further
// names that n had, each with the reference that the name held. tree is held.
func (a *detachedLayers) orphan(o *Overlay, n *node, upper *layer) (parents []*node) {
	o.nodes.mu.Lock()
	for _, x := range o.nodes.takeAliasesLocked(n) {
		parents = append(parents, x.parent)
	}
	n.dead = true
	if n.top.layer == upper {
		n.free = true // nobody else has it: it is written where it is
		o.countOrphan(n)
	}
	o.nodes.showLocked(n)
	o.nodes.recordLocked(n)
	o.nodes.mu.Unlock()
	switch {
	case n.free:
	case n.pin == 0 && !slices.Contains(a.layers, n.top.layer):
		// Its layer stays, and a look-up of its inode there must lead to a node of its own.
		top := &part{layer: a.copyOf(n.top.layer), parent: n.top.parent, name: n.top.name, ino: n.top.ino, host: n.top.host}
		top.ref.Store(n.top.ref.Load())
		descriptors.drop(n.top)
		o.nodes.setTop(n, top, n.below)
	}
	o.listings.drop(n)
	o.detached.use(n, a)
	return parents
}

// use counts n as a user of a.
func (s *detachedSets) use(n *node, a *detachedLayers) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a.users++
	if s.of == nil {
		s.of = map[*node][]*detachedLayers{}
	}
	s.of[n] = append(s.of[n], a)
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

// Detached counts the files and directories without a name that are open and lie in layers which have left the stack.
func (o *Overlay) Detached() int {
	s := &o.detached
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.of)
}

// release gives up a use that no node has.
func (s *detachedSets) release(a *detachedLayers) {
	s.mu.Lock()
	a.users--
	done := a.users == 0
	s.mu.Unlock()
	if done {
		s.free(a)
	}
}

// forget notes that a node is gone.
func (s *detachedSets) forget(n *node) {
	s.mu.Lock()
	var done []*detachedLayers
	for _, a := range s.of[n] {
		if a.users--; a.users == 0 {
			done = append(done, a)
		}
	}
	delete(s.of, n)
	s.mu.Unlock()
	for _, a := range done {
		s.free(a)
	}
}

// free closes layers that have no user.
func (s *detachedSets) free(a *detachedLayers) {
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

// close closes all layers; the overlay is being closed.
func (s *detachedSets) close() {
	s.mu.Lock()
	all := slices.Clone(s.all)
	s.mu.Unlock()
	for _, a := range all {
		s.free(a)
	}
}
