package layers

import (
	"errors"
	"slices"

	"golang.org/x/sys/unix"
)

// What becomes of a node that a rollback leaves behind, its outcome, follows from that of its parents and from the two
// trees, neither of which changes any more: the old one has no upper, and of the new one only what the new upper has
// does, which was empty. So it does not matter when it is found out, as long as nobody sees a node before that.

// rollback is one call of Rollback, and what it leaves to be done to the nodes.
type rollback struct {
	catchUp
	next *upper

	// Immutable once the gate is open.
	old      *upper            // the upper before
	was      []*layer          // the stack before
	stack    []*layer          // the stack that it has made, next on top
	fresh    []*layer          // of stack, what the old one has not
	replaced map[*layer]*Lower // of both stacks, what is there in another form now
	removed  map[*layer]bool   // of was, what stack has not
	detached *detachedLayers

	outcomes map[*node]*outcome // of directories; guarded by mu
	stays    map[dirKey]bool    // directories that stay in one that changes; guarded by mu
	stale    Stale              // guarded by mu
}

// outcome is what becomes of a directory. It is guarded by rollback.mu.
type outcome struct {
	dead    bool
	same    bool // with all that is below it
	changed []*part
	parts   []*part         // in the new tree, as it was made
	names   map[string]bool // that may have changed, of those that changed has; nil: not listed yet
	all     bool            // any name may have changed
}

// become is what the rollback makes of a node.
func (r *rollback) become(n *node, names []alias, lost []*node) []*node {
	switch {
	case isDir(n.typ) && !n.dead:
		return r.dir(n, lost)
	case r.touches(n), n.dead && n.pin == 0 && slices.Contains(r.stack, n.top.layer):
		// The second kind was removed from above its layer, which shows it again now: as another node.
		return r.orphan(n, lost)
	case !n.dead:
		return r.file(n, names, lost)
	}
	return lost
}

// touches reports whether a part of n lies in a layer that is removed.
func (r *rollback) touches(n *node) bool {
	if r.removed[n.top.layer] && (n.pin == 0 || len(n.below) > 0) || r.o.orphans.has(n) && len(n.below) > 0 {
		return true
	}
	return slices.ContainsFunc(n.below, func(p *part) bool { return r.removed[p.layer] })
}

// root gives the root its new parts. The gate is closed.
func (r *rollback) root(parts []*part) {
	n := r.o.root
	was := n.parts()
	r.move(n, hit{parts: parts}, was)
	if f := r.outcomes[n]; f.same { // but for the upper's
		r.o.nodes.moveDir(n, hit{parts: parts})
	}
	r.o.nodes.mu.Lock()
	n.epoch = r.epoch
	r.o.nodes.mu.Unlock()
}

// dir settles a directory.
func (r *rollback) dir(n *node, lost []*node) []*node {
	up := r.outcomes[n.parent]
	switch {
	case up == nil || up.dead:
	case up.same || !r.mayDiffer(up, n.name):
		r.outcomes[n] = &outcome{same: true}
		return lost
	default:
		h, err := r.find(up, n.name)
		if err == nil && isDir(h.attr.Mode) {
			r.stays[dirKey{n.parent, n.name}] = true
			r.move(n, h, n.parts())
			return lost
		}
	}
	r.outcomes[n] = &outcome{dead: true}
	return r.orphan(n, lost)
}

// move gives a directory the parts that the new tree has at its path.
func (r *rollback) move(n *node, h hit, was []*part) {
	gone, come := compareParts(was, h.parts)
	come = slices.DeleteFunc(come, func(p *part) bool { return p.layer == r.next.layer }) // empty
	if len(gone) == 0 && len(come) == 0 {
		r.outcomes[n] = &outcome{same: true}
		return
	}
	f := &outcome{changed: slices.Concat(gone, come)}
	f.parts = slices.DeleteFunc(slices.Clone(h.parts), func(p *part) bool { return p.layer == r.next.layer })
	r.outcomes[n] = f
	r.stale.Dirs = append(r.stale.Dirs, n.id)
	r.o.listings.drop(n)
	r.o.nodes.moveDir(n, h)
}

// mayDiffer reports whether a name may lead elsewhere in the new tree.
func (r *rollback) mayDiffer(f *outcome, name string) bool {
	if f.names == nil {
		f.names = map[string]bool{}
		for _, part := range f.changed {
			if err := eachRawName(part, func(name string) { f.names[name] = true }); err != nil {
				_ = r.o.report(err, part, "") // a caller that uses the directory gets the error
				f.all = true
			}
		}
	}
	return f.all || f.names[name]
}

// find looks a name up in the new tree, as it was made.
func (r *rollback) find(f *outcome, name string) (hit, error) {
	if len(f.parts) == 0 {
		return hit{}, unix.ENOENT
	}
	h, err := r.o.search(&node{top: f.parts[0], below: f.parts[1:]}, 0, name)
	if err != nil && !errors.Is(err, unix.ENOENT) {
		err = r.o.report(err, f.parts[0], name)
	}
	return h, err
}

// file settles a file whose own parts all stay, but whose names may not.
func (r *rollback) file(n *node, names []alias, lost []*node) []*node {
	var gone []alias
	for _, a := range names {
		if !r.keepsName(n, a) {
			gone = append(gone, a)
		}
	}
	if len(gone) == len(names) {
		return r.orphan(n, lost)
	}
	for _, a := range gone {
		lost = append(lost, r.o.nodes.loseName(n, a))
	}
	return lost
}

// keepsName reports whether a name still leads to the file.
func (r *rollback) keepsName(n *node, a alias) bool {
	f := r.outcomes[a.parent]
	if f == nil || f.dead {
		return false
	}
	if f.same || !r.mayDiffer(f, a.name) {
		return true
	}
	h, err := r.find(f, a.name)
	if err != nil {
		return false
	}
	gone, come := compareParts(n.parts(), h.parts)
	return len(gone) == 0 && len(come) == 0
}

// orphan takes a node's names away.
func (r *rollback) orphan(n *node, lost []*node) []*node {
	if n.parent != nil {
		r.stale.Orphans = append(r.stale.Orphans, Orphan{StaleEntry{n.parent.id, n.name}, n.id})
	}
	return append(lost, r.detached.orphan(r.o, n, r.old.layer)...)
}

// finish settles all nodes and tells what the kernel must be told.
func (r *rollback) finish() {
	o := r.o
	r.settleAll()
	o.tree.RLock()
	defer o.tree.RUnlock()
	r.mu.Lock()
	for n, f := range r.outcomes {
		if len(f.changed) == 0 {
			continue
		}
		r.mayDiffer(f, "")
		for name := range f.names {
			if !r.stays[dirKey{n, name}] {
				r.stale.Entries = append(r.stale.Entries, StaleEntry{n.id, name})
			}
		}
	}
	r.mu.Unlock()
	o.nodes.late.Store(nil)
	o.detached.release(r.detached)
}

// moveDir gives a directory other parts, which may be those of another inode. tree is held.
func (t *table) moveDir(n *node, h hit) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n.top, n.below = h.parts[0], h.parts[1:]
	if n.id != RootNode {
		n.ino = n.top.ino
	}
	n.bare.Store(h.found.bare)
	t.showLocked(n)
	t.recordLocked(n)
}

// loseName takes a name away from a file that has another. It gives the directory, with the reference that the name
// held.
func (t *table) loseName(n *node, a alias) *node {
	t.mu.Lock()
	defer t.mu.Unlock()
	a.parent.holds++
	if t.unaliasLocked(n, a.parent, a.name) {
		return a.parent
	}
	t.promoteLocked(n)
	return a.parent
}
