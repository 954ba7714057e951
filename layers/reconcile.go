package layers

import "maps"

// A process that is killed may have read from the kernel that it forgets nodes, and not have noted it: the kernel does
// not say so twice. It may also have noted a reference that the kernel has never taken. So references that were
// inherited may be too many, and what has them would stay for ever, with its place in the orphan directory if it has no
// name.
//
// The kernel can be asked whether it has a node. That it has none tells only of now: an answer that gives a reference
// may be on its way, or a FORGET. So a node goes if no reference was given or came back for a round before the
// kernel denied it, and for another one after. Of what it has, nothing is wrong until it forgets: then it gives back all
// that it has, and what is left over is looked at again.
//
// If an answer took longer than a round to reach its program, that would get ESTALE once, upon which the kernel looks the
// path up again.

// doubts are references that may be too many. They are guarded by table.mu.
type doubts struct {
	left    map[NodeID]struct{} // nodes that nobody has asked about yet
	watched map[NodeID]bool     // to which nothing has happened for a round; true: the kernel does not have it
}

// maxWatched bounds how many nodes are asked about in a round.
const maxWatched = 1 << 16

// touchLocked notes that references of a node were given or have come back. A nil live has no doubts. mu is held.
func (l *live) touchLocked(id NodeID) {
	if l != nil && len(l.doubts.watched) > 0 {
		delete(l.doubts.watched, id)
	}
}

// remainLocked notes that the kernel has forgotten a node whose references were inherited, and some are left. mu is held.
func (l *live) remainLocked(id NodeID) {
	if l.doubts.left == nil {
		l.doubts.left = map[NodeID]struct{}{}
	}
	l.doubts.left[id] = struct{}{}
}

// Reconcile does a round of giving back references that the process before has counted and the kernel does not have. has
// asks the kernel for a node; it is called with nothing locked. Between two rounds there must be more time than an answer
// takes to reach its program, and a FORGET to be handled.
func (o *Overlay) Reconcile(has func(NodeID) (bool, error)) error {
	t := &o.nodes
	if t.live == nil {
		return nil
	}
	d := &t.live.doubts
	t.mu.Lock()
	watched := maps.Clone(d.watched)
	t.mu.Unlock()
	for id, denied := range watched {
		if denied {
			o.giveBack(id)
			continue
		}
		has, err := has(id)
		if err != nil {
			return err
		}
		t.mu.Lock()
		if _, still := d.watched[id]; still && has {
			delete(d.watched, id)
		} else if still {
			d.watched[id] = true
		}
		t.mu.Unlock()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(d.watched) == 0 {
		d.watched = nil
	}
	for id := range d.left {
		if len(d.watched) >= maxWatched {
			break
		}
		if d.watched == nil {
			d.watched = make(map[NodeID]bool, min(len(d.left), maxWatched))
		}
		d.watched[id] = false
		delete(d.left, id)
	}
	if len(d.left) == 0 {
		d.left = nil
	}
	return nil
}

// giveBack gives all references of a node back, unless something has happened to it.
func (o *Overlay) giveBack(id NodeID) {
	t := &o.nodes
	o.tree.RLock()
	defer o.tree.RUnlock()
	t.mu.Lock()
	if !t.live.doubts.watched[id] {
		t.mu.Unlock()
		return
	}
	delete(t.live.doubts.watched, id)
	var gone []*node
	if n := t.m[id]; n != nil {
		gone = t.dropLocked(n, n.lookups, 0)
	} else if dir := t.live.forgetLocked(id, noLimit); dir != nil {
		gone = t.dropLocked(dir, 0, 1)
	}
	t.mu.Unlock()
	o.discard(gone)
}

// noLimit is more references than there are.
const noLimit = 1<<64 - 1

// ForgetTwice gives references back, one of each node, that were given for an answer which the process before had given
// them for. Where Reconcile has given that back, they stay.
func (o *Overlay) ForgetTwice(list []NodeID) {
	o.tree.RLock()
	defer o.tree.RUnlock()
	t := &o.nodes
	for _, id := range list {
		t.mu.Lock()
		var gone []*node
		if n := t.m[id]; n != nil && n.inherited {
			gone = t.dropLocked(n, 1, 0)
		}
		t.mu.Unlock()
		o.discard(gone)
	}
}
