package layers

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// Stale is what the kernel may still remember of the tree that a rollback has replaced. The server of the overlay makes
// it forget this once Rollback has returned: not before, because the kernel may hold a directory's lock for a request
// that waits at the gate.
type Stale struct {
	Dirs    []NodeID     // directories with other attributes or other names
	Entries []StaleEntry // names that lead, or did lead, to something else or to nothing
	// Orphans are names of Entries with what they led to. As long as the kernel keeps that, what was rolled back stays
	// on the host.
	Orphans []Orphan
}

// Orphan is a node that has lost its name.
type Orphan struct {
	StaleEntry
	Node NodeID
}

// Known reports whether the kernel still refers to a node.
func (o *Overlay) Known(id NodeID) bool {
	o.nodes.mu.Lock()
	defer o.nodes.mu.Unlock()
	return o.nodes.takenLocked(id)
}

// StaleEntry is one name in a directory.
type StaleEntry struct {
	Parent NodeID
	Name   string
}

// Rollback replaces upper and lowers under the running overlay: behind the gate the empty upper and work given come in
// place of the present upper, whose contents are dropped, and lowers (topmost first) in place of the present ones.
// Directories keep their nodes by path. Other files keep theirs if nothing about them changes; else what the kernel
// holds open becomes an orphan: it has no name any more, keeps its contents, and is written where nobody else sees it.
// What must be found again after a crash is recorded before, as for Seal. With an error nothing has changed. Changes
// are held back for a moment that does not depend on how much there is to go back over; what becomes of a node is found
// out when it is next used, at the latest before Rollback returns. released is called once, from under the overlay's
// locks, when the last orphan is forgotten: until then the directory of the old upper and those of sealed lowers must
// stay.
func (o *Overlay) Rollback(ctx context.Context, lowers []*Lower, upperDir, workDir string, inoBase uint64,
	released func(),
) (Stale, error) {
	if o.opts.ReadOnly {
		return Stale{}, unix.EROFS
	}
	opts := o.opts
	opts.InoBase = inoBase
	next, err := openUpper(upperDir, workDir, opts, &o.share)
	if err != nil {
		return Stale{}, err
	}
	o.restacking.Lock()
	defer o.restacking.Unlock()
	if err := o.recallAll(); err != nil {
		next.release()
		_ = next.layer.lower.Close() // the first error counts
		return Stale{}, fmt.Errorf("roll back: %w", err)
	}
	r := &rollback{catchUp: catchUp{o: o}, next: next, outcomes: map[*node]*outcome{}, stays: map[dirKey]bool{}}
	r.by = r
	o.nameLost()
	if err := r.run(ctx, lowers, released); err != nil {
		for _, l := range r.fresh {
			_ = l.lower.Close() // the first error counts
		}
		next.release()
		_ = next.layer.lower.Close()
		return Stale{}, fmt.Errorf("roll back: %w", err)
	}
	o.carryNameless()
	r.finish()
	return r.stale, nil
}

// run swaps the stacks. It changes no node but the root.
func (r *rollback) run(ctx context.Context, lowers []*Lower, released func()) error {
	o := r.o
	if err := r.prepare(lowers); err != nil {
		return err
	}
	r.survey(lookAtOnce, func([]*node) {})
	defer o.nodes.watched()
	var unused []*Lower
	var fds []int
	defer func() {
		closeAll(fds)
		for _, c := range unused {
			_ = c.Close() // read only
		}
	}()
	defer o.closeGate()()
	if err := ctx.Err(); err != nil {
		return err
	}
	o.tree.Lock()
	defer o.tree.Unlock()
	r.enlist(o.nodes.watched())
	r.match(lowers)
	o.stack = r.stack
	parts, err := rootParts(o.stack)
	if err == nil {
		err = o.moveOrphans(o.upper, r.next)
	}
	if err != nil {
		o.stack = r.was
		return err
	}
	for l, form := range r.replaced {
		unused = append(unused, l.lower)
		l.lower = form.acquire()
		fds = append(fds, descriptors.takeOut(func(k fdKey) bool { return k.o.layer == l })...)
		o.groups.forget(unused[len(unused)-1])
		o.nodes.settleRenumbered(l)
	}
	r.detached = &detachedLayers{released: released}
	for _, l := range r.was {
		if r.removed[l] {
			r.detached.layers = append(r.detached.layers, l)
			o.groups.forget(l.lower)
		}
	}
	o.detached.add(r.detached, 1) // finish gives that up
	r.old = o.upper
	o.upper = r.next
	r.old.release()
	o.countAnew(false)
	o.nodes.begin(&r.catchUp)
	r.root(parts)
	if o.reads != nil {
		o.reads.Restart()
	}
	return nil
}

// prepare does what needs no lock.
func (r *rollback) prepare(lowers []*Lower) error {
	if err := r.next.clean(false); err != nil {
		return err
	}
	var below *part
	if len(lowers) > 0 {
		below = rootPart(&layer{lower: lowers[0]})
	}
	if err := r.next.initRoot(below); err != nil {
		return fmt.Errorf("prepare the root of the new upper: %w", err)
	}
	return nil
}

// match finds out what the two stacks have in common at the bottom. tree is held for writing.
func (r *rollback) match(lowers []*Lower) {
	r.was, r.removed, r.replaced = r.o.stack, map[*layer]bool{}, map[*layer]*Lower{}
	stack := make([]*layer, len(lowers)+1)
	stack[0] = r.next.layer
	kept := len(r.was)
	for i := len(lowers) - 1; i >= 0; i-- {
		lower := lowers[i]
		if kept > 1 && r.was[kept-1].lower.key == lower.key && len(r.was)-kept == len(lowers)-1-i {
			kept--
			stack[i+1] = r.was[kept]
			if r.was[kept].lower != lower {
				r.replaced[r.was[kept]] = lower
			}
			continue
		}
		l := &layer{lower: lower.acquire(), share: &r.o.share}
		r.fresh = append(r.fresh, l)
		stack[i+1] = l
	}
	for _, l := range r.was[:kept] {
		r.removed[l] = true
	}
	r.stack = stack
}

// compareParts tells what of two lists of parts only one has; what both have becomes the same part in both.
func compareParts(was, now []*part) (gone, come []*part) {
	kept := map[*part]bool{}
	for i, p := range now {
		at := slices.IndexFunc(was, func(q *part) bool { return sameEntry(p, q) })
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

// sameEntry reports whether two parts are the same name and inode of the same layer.
func sameEntry(a, b *part) bool {
	for a != b {
		if a == nil || b == nil || a.layer != b.layer || a.name != b.name || a.ino != b.ino {
			return false
		}
		a, b = a.parent, b.parent
	}
	return true
}

// eachRawName lists one layer's names in a directory, whiteouts included.
func eachRawName(dir *part, fn func(name string)) error {
	s := dir.dirStore()
	if s == nil {
		return dir.backend().list(dir, func(e rawEntry) error { fn(e.name); return nil })
	}
	h, err := s.dir(dir)
	if err != nil {
		return err
	}
	defer h.release()
	return eachName(h.fd, func(name string, _ uint64, _ uint32) error { fn(name); return nil })
}
