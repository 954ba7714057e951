package layers

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// errOtherTree says that what was to come in the place of a row of lowers does not show what they do.
var errOtherTree = errors.New("the lowers do not show the same")

// Restack puts the lowers by in the place of row, neighbours in the stack, beneath the running overlay: both, topmost first, show the
// same over what is below them, as an image and the ones that Merge has made it of. Every node stays what it is to the kernel.
// With an error nothing has changed. released is called once, from under the overlay's locks, when nobody uses row any more: what is
// dead, but open, keeps its layers.
func (o *Overlay) Restack(row, by []Lower, released func()) error {
	o.restacking.Lock()
	defer o.restacking.Unlock()
	r := &restack{o: o, parts: map[*node][]*obj{}, fresh: map[*layer]bool{}, gone: map[*layer]bool{}}
	defer func() {
		for l := range r.fresh {
			_ = l.lower.Close() // they did not get into the stack
		}
	}()
	if err := r.begin(row, by); err != nil {
		return fmt.Errorf("restack: %w", err)
	}
	found := r.look()
	if err := r.run(found, released); err != nil {
		return fmt.Errorf("restack: %w", err)
	}
	return nil
}

// restack is one call of Restack: nodes that stand on the row are looked for beside what goes on, their new parts are found and set
// behind the gate.
type restack struct {
	o     *Overlay
	row   []*layer        // the layers that go
	gone  map[*layer]bool // the same
	by    []*layer        // the layers that come
	fresh map[*layer]bool // the same, until they are in the stack

	parts map[*node][]*obj // what is planned
}

// begin finds the row in the stack.
func (r *restack) begin(row, by []Lower) error {
	o := r.o
	o.tree.RLock()
	defer o.tree.RUnlock()
	for _, l := range by {
		lw, ok := l.(*lower)
		if !ok {
			return errForeignLower
		}
		n := &layer{lower: lw.acquire(), share: &o.share}
		r.by, r.fresh[n] = append(r.by, n), true
	}
	for _, l := range o.stack {
		if len(r.row) < len(row) && l.lower.key == row[len(r.row)].Key() && (o.upper == nil || l != o.upper.layer) {
			r.row = append(r.row, l)
			r.gone[l] = true
		}
	}
	if len(row) == 0 || len(by) == 0 || len(r.row) < len(row) || r.at() < 0 {
		return errors.New("no such row in the stack")
	}
	return nil
}

// at is where the row is in the stack; below 0 if it is not there, one beside the other. tree is held.
func (r *restack) at() int {
	at := slices.Index(r.o.stack, r.row[0])
	if at < 0 || at+len(r.row) > len(r.o.stack) || !slices.Equal(r.o.stack[at:at+len(r.row)], r.row) {
		return -1
	}
	return at
}

// lookAtOnce is how many nodes are looked at before others get their turn.
const lookAtOnce = 1024

// look finds the nodes that stand on the row. Those that come to do so meanwhile the table notes.
func (r *restack) look() []*node {
	o := r.o
	all := o.nodes.watch()
	var found []*node
	for len(all) > 0 {
		some := all[:min(lookAtOnce, len(all))]
		all = all[len(some):]
		o.tree.RLock()
		for _, n := range some {
			if r.touches(n) {
				found = append(found, n)
			}
		}
		o.tree.RUnlock()
	}
	return found
}

func (r *restack) touches(n *node) bool {
	return r.gone[n.top.layer] || slices.ContainsFunc(n.below, func(p *obj) bool { return r.gone[p.layer] })
}

// run makes the change.
func (r *restack) run(found []*node, released func()) error {
	o := r.o
	defer o.closeGate()()
	o.tree.Lock()
	defer o.tree.Unlock()
	found = append(found, o.nodes.watched()...)
	at := r.at()
	if at < 0 {
		return errors.New("the row has left the stack")
	}
	was := o.stack
	o.stack = slices.Concat(was[:at], r.by, was[at+len(r.row):]) // look-ups of the plan see it
	var dead []*node
	for _, n := range found {
		switch {
		case o.nodes.m[n.id] != n || !r.touches(n):
		case n.dead:
			if !slices.Contains(dead, n) {
				dead = append(dead, n)
			}
		default:
			if _, err := r.plan(n); err != nil {
				o.stack = was
				return err
			}
		}
	}
	for n, parts := range r.parts {
		for _, p := range slices.Concat([]*obj{n.top}, n.below) {
			if r.gone[p.layer] {
				descriptors.drop(p)
				o.blocks.drop(p)
			}
		}
		o.nodes.setTop(n, parts[0], parts[1:])
	}
	a := &attic{released: released, layers: r.row}
	for _, l := range r.row {
		o.groups.forget(l.lower)
	}
	o.attics.add(a, len(dead))
	for _, n := range dead {
		o.attics.enter(n, a)
	}
	clear(r.fresh)
	if len(dead) == 0 {
		o.attics.empty(a)
	}
	return nil
}

// plan finds a node's parts in the new stack, the objs that stay among them.
func (r *restack) plan(n *node) ([]*obj, error) {
	if p, ok := r.parts[n]; ok {
		return p, nil
	}
	was := n.parts()
	if !r.touches(n) {
		return was, nil
	}
	var now []*obj
	if n == r.o.root {
		var err error
		if now, err = r.o.rootParts(); err != nil {
			return nil, err
		}
	} else if n.parent == nil {
		return nil, errOtherTree
	} else {
		dir, err := r.plan(n.parent)
		if err != nil {
			return nil, err
		}
		h, err := r.o.search(&node{top: dir[0], below: dir[1:]}, 0, n.name)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errOtherTree, err)
		}
		if now = h.parts; h.attr.Mode&unix.S_IFMT != n.typ {
			return nil, errOtherTree
		}
	}
	for i, p := range now {
		if k := slices.IndexFunc(was, func(q *obj) bool { return sameObj(p, q) }); k >= 0 {
			now[i] = was[k]
		}
	}
	if top := now[0]; top != n.top && (!r.gone[n.top.layer] || !r.fresh[top.layer] || top.ino != n.top.ino) {
		return nil, errOtherTree
	}
	r.parts[n] = now
	return now, nil
}
