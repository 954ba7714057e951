package layers

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// Stale is what the kernel may still remember of the tree that a rollback has replaced. Whoever serves the overlay makes it forget
// this once Rollback has returned: not before, because the kernel may hold a directory's lock for a request that waits at
// the gate.
type Stale struct {
	Dirs    []NodeID     // directories with other attributes or other names
	Entries []StaleEntry // names that lead, or did lead, to something else or to nothing
	// Orphans are names of Entries with what they led to. As long as the kernel keeps that, what was rolled back stays on the host.
	Orphans []Orphan
}

// Orphan is a node that has lost its name.
type Orphan struct {
	StaleEntry
	Node NodeID
}

// Known tells whether the kernel still refers to a node.
func (o *Overlay) Known(id NodeID) bool {
	_, err := o.nodes.get(id)
	return err == nil
}

// StaleEntry is one name in a directory.
type StaleEntry struct {
	Parent NodeID
	Name   string
}

// Rollback replaces upper and lowers under the running overlay: behind the gate the empty upper and work given come in place of
// the present upper, whose contents are dropped, and lowers (topmost first) in place of the present ones. Directories keep their nodes
// by path. Other files keep theirs if nothing about them changes; else what the kernel holds open becomes an orphan: it has
// no name any more, keeps its contents, and is written where nobody else sees it. What is to be found again after a crash is
// recorded before, as for Seal. With an error nothing has changed. released is called once, from under the overlay's locks, when the last orphan is
// forgotten: until then the directory of the old upper and those of sealed lowers must stay.
func (o *Overlay) Rollback(ctx context.Context, lowers []Lower, upperDir, workDir string, inoBase uint64,
	released func(),
) (Stale, error) {
	if o.opts.ReadOnly {
		return Stale{}, unix.EROFS
	}
	opts := o.opts
	opts.InoBase = inoBase
	next, err := openUpper(upperDir, workDir, opts)
	if err != nil {
		return Stale{}, err
	}
	r := &rollback{o: o, next: next, kids: map[*node][]*node{}, dead: map[*node]bool{}, changed: map[*node]map[string]bool{}}
	if err := r.run(ctx, lowers, released); err != nil {
		for _, l := range r.fresh {
			_ = l.lower.Close() // the first error counts
		}
		next.release()
		_ = next.layer.lower.Close()
		return Stale{}, fmt.Errorf("roll back: %w", err)
	}
	return r.stale, nil
}

// rollback is one call of Rollback: first a plan that changes nothing, then the change, which cannot fail.
type rollback struct {
	o    *Overlay
	next *upper

	was      []*layer          // the stack before
	stack    []*layer          // the stack to be, next on top
	fresh    []*layer          // of stack, what the old one has not
	replaced map[*layer]*lower // of both stacks, what is there in another form now
	removed  map[*layer]bool   // of was, what stack has not

	kids    map[*node][]*node         // known directories by their parents
	dirs    []dirChange               // directories that stay, with other parts
	changed map[*node]map[string]bool // of those that get or lose parts of layers that stay: the names that may have changed
	orphans []*node                   // what loses its place
	dead    map[*node]bool            // directories among them
	lost    []lostName                // names that go while their file keeps another

	stale Stale
}

// dirChange is a directory that stays.
type dirChange struct {
	n *node
	h hit
}

// lostName is a name that a file with several loses.
type lostName struct {
	n *node
	alias
}

func (r *rollback) run(ctx context.Context, lowers []Lower, released func()) error {
	o := r.o
	if err := r.next.clean(); err != nil {
		return err
	}
	defer o.closeGate()()
	if err := ctx.Err(); err != nil {
		return err
	}
	o.tree.Lock()
	defer o.tree.Unlock()
	if err := r.match(lowers); err != nil {
		return err
	}
	// Look-ups of the plan see the new stack.
	o.stack = r.stack
	err := r.plan()
	if err == nil {
		err = o.orphans.move(o.upper, r.next)
	}
	if err != nil {
		o.stack = r.was
		return err
	}
	r.apply(released)
	return nil
}

// match finds out what the two stacks have in common at the bottom.
func (r *rollback) match(lowers []Lower) error {
	r.was, r.removed, r.replaced = r.o.stack, map[*layer]bool{}, map[*layer]*lower{}
	stack := make([]*layer, len(lowers)+1)
	stack[0] = r.next.layer
	kept := len(r.was)
	for i := len(lowers) - 1; i >= 0; i-- {
		lw, ok := lowers[i].(*lower)
		if !ok {
			return errForeignLower
		}
		if kept > 1 && r.was[kept-1].lower.key == lw.key && len(r.was)-kept == len(lowers)-1-i {
			kept--
			stack[i+1] = r.was[kept]
			if r.was[kept].lower != lw {
				r.replaced[r.was[kept]] = lw
			}
			continue
		}
		l := &layer{lower: lw.acquire()}
		r.fresh = append(r.fresh, l)
		stack[i+1] = l
	}
	for _, l := range r.was[:kept] {
		r.removed[l] = true
	}
	r.stack = stack
	return nil
}

// plan finds out what becomes of every node.
func (r *rollback) plan() error {
	var below *obj
	if len(r.stack) > 1 {
		below = rootObj(r.stack[1])
	}
	if err := r.next.initRoot(below); err != nil {
		return fmt.Errorf("prepare the root of the new upper: %w", err)
	}
	parts, err := r.o.rootParts()
	if err != nil {
		return err
	}
	r.survey()
	if err := r.dir(r.o.root, hit{parts: parts}); err != nil {
		return err
	}
	if len(r.dead) == 0 && len(r.changed) == 0 {
		return nil
	}
	return r.others()
}

// survey sorts the nodes: directories by their parents, and the rest that stands on what is removed.
func (r *rollback) survey() {
	for _, n := range r.o.nodes.m {
		switch {
		case n == r.o.root:
		case isDir(n.typ) && !n.dead:
			r.kids[n.parent] = append(r.kids[n.parent], n)
		case r.touches(n), n.dead && n.pin == 0 && slices.Contains(r.stack, n.top.layer):
			// The second kind was removed from above its layer, which shows it again now: as another node.
			r.orphans = append(r.orphans, n)
		}
	}
}

// touches tells whether a part of n lies in a layer that is removed.
func (r *rollback) touches(n *node) bool {
	if r.removed[n.top.layer] && (n.pin == 0 || len(n.below) > 0) {
		return true
	}
	return slices.ContainsFunc(n.below, func(p *obj) bool { return r.removed[p.layer] })
}

// dir plans for a directory that stays, and for what is below it. Where its parts stay the same, so does the whole tree below.
func (r *rollback) dir(n *node, h hit) error {
	gone, come := compareParts(n.parts(), h.parts)
	come = slices.DeleteFunc(come, func(p *obj) bool { return p.layer == r.next.layer }) // empty
	if len(gone) == 0 && len(come) == 0 {
		return nil
	}
	r.dirs = append(r.dirs, dirChange{n, h})
	r.stale.Dirs = append(r.stale.Dirs, n.id)
	names := map[string]bool{}
	for _, part := range slices.Concat(gone, come) {
		if err := eachRawName(part, func(name string) { names[name] = true }); err != nil {
			return r.o.report(err, part, "")
		}
	}
	if len(come) > 0 || slices.ContainsFunc(gone, func(p *obj) bool { return !r.removed[p.layer] }) {
		r.changed[n] = names
	}
	now := node{top: h.parts[0], below: h.parts[1:]}
	stays := map[string]bool{}
	for _, kid := range r.kids[n] {
		if !names[kid.name] {
			continue
		}
		h, err := r.o.search(&now, 0, kid.name)
		switch {
		case err == nil && isDir(h.attr.Mode):
			stays[kid.name] = true
			err = r.dir(kid, h)
		case err == nil, errors.Is(err, unix.ENOENT):
			r.bury(kid)
			err = nil
		}
		if err != nil {
			return r.o.report(err, now.top, kid.name)
		}
	}
	for name := range names {
		if !stays[name] {
			r.stale.Entries = append(r.stale.Entries, StaleEntry{n.id, name})
		}
	}
	return nil
}

// bury plans for a directory that loses its place, with the known directories below it.
func (r *rollback) bury(n *node) {
	r.orphans = append(r.orphans, n)
	r.dead[n] = true
	for _, kid := range r.kids[n] {
		r.bury(kid)
	}
}

// others plans for files whose own parts all stay, but whose names may not.
func (r *rollback) others() error {
	for _, n := range r.o.nodes.m {
		if n == r.o.root || n.dead || isDir(n.typ) || r.touches(n) {
			continue
		}
		names := append([]alias{{n.parent, n.name}}, n.aliases...)
		var lost []lostName
		for _, a := range names {
			stays, err := r.keepsName(n, a)
			if err != nil {
				return err
			}
			if !stays {
				lost = append(lost, lostName{n, a})
			}
		}
		if len(lost) == len(names) {
			r.orphans = append(r.orphans, n)
		} else {
			r.lost = append(r.lost, lost...)
		}
	}
	return nil
}

// keepsName tells whether a name still leads to the file.
func (r *rollback) keepsName(n *node, a alias) (bool, error) {
	if r.dead[a.parent] {
		return false, nil
	}
	if !r.changed[a.parent][a.name] {
		return true, nil
	}
	at := slices.IndexFunc(r.dirs, func(d dirChange) bool { return d.n == a.parent })
	parts := r.dirs[at].h.parts
	h, err := r.o.search(&node{top: parts[0], below: parts[1:]}, 0, a.name)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, r.o.report(err, parts[0], a.name)
	}
	gone, come := compareParts(n.parts(), h.parts)
	return len(gone) == 0 && len(come) == 0, nil
}

// apply makes the change.
func (r *rollback) apply(released func()) {
	o := r.o
	old := o.upper
	for l, form := range r.replaced {
		was := l.lower
		l.lower = form.acquire()
		descriptors.purge(func(k fdKey) bool { return k.o.layer == l })
		o.groups.forget(was)
		o.nodes.settleOdd(l)
		_ = was.Close() // read only
	}
	for _, d := range r.dirs {
		o.listings.drop(d.n)
		o.nodes.moveDir(d.n, d.h)
	}
	for _, l := range r.lost {
		o.nodes.loseName(l.n, l.alias)
	}
	a := &attic{released: released}
	for _, l := range r.was {
		if r.removed[l] {
			a.layers = append(a.layers, l)
			o.groups.forget(l.lower)
		}
	}
	o.attics.add(a, len(r.orphans))
	var parents []*node
	for _, n := range r.orphans {
		if n.parent != nil {
			r.stale.Orphans = append(r.stale.Orphans, Orphan{StaleEntry{n.parent.id, n.name}, n.id})
		}
		parents = append(parents, a.take(o, n, old.layer)...)
	}
	for _, p := range parents {
		o.discard(o.nodes.drop(p, 0, 1))
	}
	for _, l := range r.lost {
		o.discard(o.nodes.drop(l.parent, 0, 0))
	}
	o.upper = r.next
	old.release()
	if len(r.orphans) == 0 {
		o.attics.empty(a)
	}
}

// moveDir gives a directory other parts, which may be those of another inode. tree is held for writing.
func (t *table) moveDir(n *node, h hit) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n.top, n.below = h.parts[0], h.parts[1:]
	if n.id != RootNode {
		n.ino = n.top.ino
	}
	n.bare.Store(h.found.bare)
	t.showLocked(n)
	t.noteLocked(n)
}

// loseName takes a name away from a file that has another. tree is held for writing.
func (t *table) loseName(n *node, a alias) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.unaliasLocked(n, a.parent, a.name) {
		return
	}
	to := n.aliases[0]
	n.aliases = n.aliases[1:]
	to.parent.kids-- // moveLocked counts it again
	t.moveLocked(n, to.parent, to.name)
}

// compareParts tells what of two lists of parts only one has; what both have becomes the same obj in both.
func compareParts(was, now []*obj) (gone, come []*obj) {
	kept := map[*obj]bool{}
	for i, p := range now {
		at := slices.IndexFunc(was, func(q *obj) bool { return sameObj(p, q) })
		if at < 0 {
			come = append(come, p)
			continue
		}
		now[i] = was[at]
		kept[was[at]] = true
	}
	for _, q := range was {
		if !kept[q] {
			gone = append(gone, q)
		}
	}
	return gone, come
}

// sameObj tells whether two objs are the same place of the same layer.
func sameObj(a, b *obj) bool {
	for a != b {
		if a == nil || b == nil || a.layer != b.layer || a.name != b.name || a.ino != b.ino {
			return false
		}
		a, b = a.parent, b.parent
	}
	return true
}

// eachRawName lists one layer's names in a directory, whiteouts included.
func eachRawName(dir *obj, fn func(name string)) error {
	s, ok := dir.backend().(*dirStore)
	if !ok {
		return dir.backend().list(dir, func(e rawEntry) error { fn(e.name); return nil })
	}
	h, err := s.dir(dir)
	if err != nil {
		return err
	}
	defer h.release()
	return eachName(h.fd, func(name string, _ uint64, _ uint32) error { fn(name); return nil })
}
