package layers

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// errOtherTree says that what was to come in place of a row of lowers does not show what they do.
var errOtherTree = errors.New("the lowers do not show the same")

// Restack puts the lowers by in place of row, neighbours in the stack, beneath the running overlay: both, topmost
// first, show the same over what is below them, as an image and the ones that Merge has made it of. Every node stays
// what it is to the kernel. With an error nothing has changed. released is called once for each lower of row, by its
// index and from under the overlay's locks, when nobody uses that any more: what is dead, but open, keeps the layers
// that it lies in. Changes are held back for a moment that does not depend on how much there is in memory.
func (o *Overlay) Restack(row, by []*Lower, released func(i int)) error {
	o.restacking.Lock()
	defer o.restacking.Unlock()
	if err := o.recallAll(); err != nil {
		return fmt.Errorf("restack: %w", err)
	}
	r := &restack{
		catchUp: catchUp{o: o}, parts: map[*node][]*part{}, fresh: map[*layer]bool{}, gone: map[*layer]bool{},
		detached: map[*layer]*detachedLayers{},
	}
	r.by = r
	o.nameLost()
	defer func() {
		for l := range r.fresh {
			_ = l.lower.Close() // they did not get into the stack
		}
	}()
	if err := r.find(row, by); err != nil {
		return fmt.Errorf("restack: %w", err)
	}
	r.survey(settleAtOnce, r.plan)
	if err := r.run(released); err != nil {
		return fmt.Errorf("restack: %w", err)
	}
	r.settleAll()
	o.tree.RLock()
	defer o.tree.RUnlock()
	o.nodes.late.Store(nil)
	for _, l := range r.row {
		o.detached.release(r.detached[l])
	}
	return nil
}

// restack is one call of Restack: the nodes with parts in the row are looked for, and their new parts found, beside
// what goes on. A node gets them after the gate has opened again.
type restack struct {
	catchUp
	row      []*layer                   // the layers that go
	gone     map[*layer]bool            // the same
	come     []*layer                   // those that come in their place
	fresh    map[*layer]bool            // the same, until they are in the stack
	detached map[*layer]*detachedLayers // each of the row for itself; immutable once the gate is open

	stack []*layer          // with them; tree is held
	parts map[*node][]*part // what is planned; immutable once the gate is open
	retry []*node           // whose plan has failed: they may have been changing
}

// find finds the row in the stack.
func (r *restack) find(row, by []*Lower) error {
	o := r.o
	o.tree.RLock()
	defer o.tree.RUnlock()
	for _, l := range by {
		n := &layer{lower: l.acquire(), share: &o.share}
		r.come, r.fresh[n] = append(r.come, n), true
	}
	for _, l := range o.stack {
		if len(r.row) < len(row) && l.lower.key == row[len(r.row)].Key() && (o.upper == nil || l != o.upper.layer) {
			r.row = append(r.row, l)
			r.gone[l] = true
		}
	}
	if len(row) == 0 || len(by) == 0 || len(r.row) < len(row) || !r.restacked() {
		return errors.New("no such row in the stack")
	}
	return nil
}

// restacked makes the new stack of the present one, and reports whether the row is in it, one beside the other. tree is
// held.
func (r *restack) restacked() bool {
	was := r.o.stack
	at := slices.Index(was, r.row[0])
	if at < 0 || at+len(r.row) > len(was) || !slices.Equal(was[at:at+len(r.row)], r.row) {
		return false
	}
	r.stack = slices.Concat(was[:at], r.come, was[at+len(r.row):])
	return true
}

// touches reports whether a part of n lies in the row.
func (r *restack) touches(n *node) bool {
	return r.gone[n.top.layer] || slices.ContainsFunc(n.below, func(p *part) bool { return r.gone[p.layer] })
}

// plan finds the new parts of some nodes. Those of which it cannot have them now are tried again behind the gate. tree
// is held.
func (r *restack) plan(some []*node) {
	if !r.restacked() {
		return // which run finds out, too
	}
	for _, n := range some {
		delete(r.parts, n) // a node comes again when it has changed
	}
	for _, n := range some {
		if _, err := r.partsOf(n); err != nil {
			r.retry = append(r.retry, n)
		}
	}
}

// run makes the change. It gives no node but the root its new parts.
func (r *restack) run(released func(i int)) error {
	o := r.o
	defer o.nodes.watched()
	defer o.closeGate()()
	o.tree.Lock()
	defer o.tree.Unlock()
	if !r.restacked() {
		return errors.New("the row has left the stack")
	}
	last := append(o.nodes.watched(), o.root)
	r.enlist(last)
	last = append(last, r.retry...)
	for _, n := range last {
		delete(r.parts, n)
	}
	for _, n := range last {
		if o.nodes.m[n.id] != n {
			continue
		}
		if _, err := r.partsOf(n); err != nil {
			return err
		}
	}
	o.stack = r.stack
	clear(r.fresh)
	for _, l := range r.row {
		o.groups.forget(l.lower)
	}
	for i, l := range r.row {
		d := &detachedLayers{layers: []*layer{l}}
		if released != nil {
			d.released = func() { released(i) }
		}
		r.detached[l] = d
		o.detached.add(d, 1) // Restack gives that up
	}
	o.nodes.begin(&r.catchUp)
	o.nodes.refresh(o.root)
	return nil
}

// rootParts is the root's parts in the new stack. Only the layers that come are looked at: however deep the stack is, that
// takes no longer. tree is held.
func (r *restack) rootParts(was []*part) ([]*part, error) {
	at := slices.IndexFunc(was, func(p *part) bool { return r.gone[p.layer] })
	if at < 0 {
		return was, nil
	}
	below := was[at:]
	for len(below) > 0 && r.gone[below[0].layer] {
		below = below[1:]
	}
	come, err := rootParts(r.come)
	if err != nil {
		return nil, err
	}
	if len(come) < len(r.come) && len(below) > 0 {
		return nil, fmt.Errorf("%w: the root of layer %s is opaque", errOtherTree, come[len(come)-1].layer.lower.key)
	}
	return slices.Concat(was[:at], come, below), nil
}

// become gives a node its new parts. What is dead stays where it is, and has these layers stay as long.
func (r *restack) become(n *node, _ []alias, lost []*node) []*node {
	if !r.touches(n) {
		return lost
	}
	parts := r.parts[n]
	if n.dead || parts == nil {
		used := map[*layer]bool{}
		for _, p := range n.parts() {
			if d := r.detached[p.layer]; d != nil && !used[p.layer] {
				used[p.layer] = true
				r.o.detached.use(n, d)
			}
		}
		return lost
	}
	for _, p := range n.parts() {
		if r.gone[p.layer] {
			descriptors.drop(p)
			r.o.blocks.drop(p)
		}
	}
	r.o.nodes.setTop(n, parts[0], parts[1:])
	return lost
}

// partsOf finds a node's parts in the new stack, the parts that stay among them; none of a dead one. tree is held.
func (r *restack) partsOf(n *node) ([]*part, error) {
	if p, ok := r.parts[n]; ok {
		return p, nil
	}
	was := n.parts()
	if n.dead || !r.touches(n) {
		return was, nil
	}
	var now []*part
	if n == r.o.root {
		var err error
		if now, err = r.rootParts(was); err != nil {
			return nil, err
		}
	} else if n.parent == nil {
		return nil, errOtherTree
	} else {
		dir, err := r.partsOf(n.parent)
		if err != nil {
			return nil, err
		}
		s := scan{stack: r.stack}
		h, err := r.o.searchFor(&s, &node{top: dir[0], below: dir[1:]}, 0, n.name)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errOtherTree, err)
		}
		if now = h.parts; h.attr.Mode&unix.S_IFMT != n.typ {
			return nil, errOtherTree
		}
	}
	for i, p := range now {
		if k := slices.IndexFunc(was, func(q *part) bool { return sameEntry(p, q) }); k >= 0 {
			now[i] = was[k]
		}
	}
	if top := now[0]; top != n.top && (!r.gone[n.top.layer] || !slices.Contains(r.come, top.layer) || top.ino != n.top.ino) {
		return nil, errOtherTree
	}
	r.parts[n] = now
	return now, nil
}
