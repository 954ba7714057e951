package catalog

import (
	"cmp"
	"slices"
	"time"

	"snapfs/sandbox/api"
)

// index holds workspaces, snapshots and layers with what is derived from them, so that no question needs to look at all
// of them. It has no lock; see Catalog.mu.
type index struct {
	workspaces map[string]*Workspace // by name
	snapshots  map[string]*Snapshot  // by id
	nodes      map[string]*node      // by id: layers, and what is named and has no record

	names  ids // of workspaces
	made   ids // of workspaces, by MadeKey
	order  ids // of snapshots
	layers ids // that have a record
	sealed int // how many of the layers are not stored

	chains map[string]ids // layers of container images, by chain id

	tokens      map[string]*Token
	renames     []*Rename           // oldest first
	ofWorkspace lists[string]       // snapshots by workspace
	called      lists[calling]      // snapshots by name
	sessions    map[string]*session // those that own something
	expiring    []*Snapshot         // those that expire, in order of that time
	lapsed      int                 // so many of expiring are past their time, as of the newest question
}

// calling is what a snapshot is called: within a workspace, or with workspace "" anywhere.
type calling struct{ workspace, name string }

// session is what one session owns.
type session struct {
	workspaces ids
	made       ids // of workspaces, by MadeKey
	snapshots  ids
	counted    int   // snapshots that are not lapsed
	bytes      int64 // of the layers on which those stand, each once
}

// node is a layer among others. A layer that is named and has no record is one, too: parent is nil, depth 0.
type node struct {
	id       string
	layer    *Layer // nil: there is no record
	parent   *node
	at       int // in the children of parent
	children []*node

	workspaces set // whose base it is, or will be when a staged change is visible
	snapshots  set // whose topmost layer it is
	compared   set // snapshots that are compared with it
	ends       set // layers whose tiers lie on it

	depth  int                // layers from here down; 0 if the record of one is missing
	sealed int                // so many of those are not stored
	needs  few[*session, int] // by session: its snapshots that are counted, and children that it needs
}

func newIndex() *index {
	return &index{
		workspaces: map[string]*Workspace{}, snapshots: map[string]*Snapshot{}, nodes: map[string]*node{},
		tokens:      map[string]*Token{},
		ofWorkspace: lists[string]{}, called: lists[calling]{}, sessions: map[string]*session{},
		chains: map[string]ids{},
	}
}

// node gives the node of an id, which is not "", and makes it.
func (x *index) node(id string) *node {
	n := x.nodes[id]
	if n == nil {
		n = &node{id: id}
		x.nodes[id] = n
	}
	return n
}

// layer gives the record of a layer, or nil.
func (x *index) layer(id string) *Layer {
	if n := x.nodes[id]; n != nil {
		return n.layer
	}
	return nil
}

// tidy forgets a node that nothing names and that has no record.
func (x *index) tidy(n *node) {
	if n.layer == nil && n.held() == 0 && n.compared.size() == 0 && n.ends.size() == 0 {
		delete(x.nodes, n.id)
	}
}

// held counts what names the layer.
func (n *node) held() int { return len(n.children) + n.workspaces.size() + n.snapshots.size() }

// holds reports whether h names the layer.
func (n *node) holds(h Holder) bool {
	switch h.kind {
	case 'w':
		return n.workspaces.has(h.id)
	case 's':
		return n.snapshots.has(h.id)
	}
	return slices.ContainsFunc(n.children, func(c *node) bool { return c.id == h.id })
}

// onlyChild is what lies on the layer, if nothing else names it.
func (n *node) onlyChild() *node {
	if len(n.children) == 1 && n.held() == 1 {
		return n.children[0]
	}
	return nil
}

// holdBase notes that a layer is the base of a workspace.
func (x *index) holdBase(layer, workspace string) {
	if layer != "" {
		x.node(layer).workspaces.put(workspace, struct{}{})
	}
}

// dropBase is the opposite of holdBase. It reports whether the workspace was noted.
func (x *index) dropBase(layer, workspace string) bool {
	n := x.nodes[layer]
	if n == nil || !n.workspaces.has(workspace) {
		return false
	}
	n.workspaces.drop(workspace)
	x.tidy(n)
	return true
}

func (x *index) putWorkspace(w *Workspace) {
	if old := x.workspaces[w.ID]; old != nil {
		x.dropBase(old.Base, old.ID)
		x.unlist(old)
	}
	x.workspaces[w.ID] = w
	x.names.add(w.ID)
	x.made.add(w.made())
	of := x.session(w.Session)
	of.workspaces.add(w.ID)
	of.made.add(w.made())
	x.holdBase(w.Base, w.ID)
}

// dropWorkspace removes a workspace, of which the caller's record may be an earlier one.
func (x *index) dropWorkspace(w *Workspace) {
	if w = x.workspaces[w.ID]; w == nil {
		return
	}
	x.dropBase(w.Base, w.ID)
	delete(x.workspaces, w.ID)
	x.names.drop(w.ID)
	x.unlist(w)
}

// unlist takes a workspace out of what depends on more of it than its name.
func (x *index) unlist(w *Workspace) {
	x.made.drop(w.made())
	x.disown(w.Session, func(s *session) { s.workspaces.drop(w.ID); s.made.drop(w.made()) })
}

// session gives what a session owns, to be added to.
func (x *index) session(id string) *session {
	s := x.sessions[id]
	if s == nil {
		s = &session{}
		x.sessions[id] = s
	}
	return s
}

// disown takes something from what a session owns.
func (x *index) disown(id string, take func(*session)) {
	s := x.session(id)
	if take(s); len(s.workspaces)+len(s.snapshots) == 0 {
		delete(x.sessions, id)
	}
}

// putSnapshot adds a snapshot, or replaces one, of which only ParentTop and names change.
func (x *index) putSnapshot(s *Snapshot) {
	if old := x.snapshots[s.ID]; old != nil {
		x.snapshots[s.ID] = s
		if old.Workspace != s.Workspace || old.Name != s.Name {
			x.unname(old)
			x.name(s)
		}
		x.compare(old, s)
		if at, found := x.expiry(old); found {
			x.expiring[at] = s
		}
		return
	}
	x.snapshots[s.ID] = s
	x.order.add(s.ID)
	x.name(s)
	x.session(s.Session).snapshots.add(s.ID)
	if s.Top != "" {
		x.node(s.Top).snapshots.put(s.ID, struct{}{})
	}
	x.compare(nil, s)
	if s.ExpiresAt != nil {
		at, _ := x.expiry(s)
		x.expiring = slices.Insert(x.expiring, at, s)
		if at < x.lapsed {
			x.lapsed++
			return
		}
	}
	x.count(s)
}

// dropSnapshot removes a snapshot. The caller's record may be an earlier one: a merge changes ParentTop.
func (x *index) dropSnapshot(s *Snapshot) {
	if s = x.snapshots[s.ID]; s == nil {
		return
	}
	counted := true
	if at, found := x.expiry(s); found {
		if counted = at >= x.lapsed; !counted {
			x.lapsed--
		}
		x.expiring = slices.Delete(x.expiring, at, at+1)
	}
	if counted {
		x.discount(s)
	}
	delete(x.snapshots, s.ID)
	x.order.drop(s.ID)
	x.unname(s)
	x.disown(s.Session, func(of *session) { of.snapshots.drop(s.ID) })
	if n := x.nodes[s.Top]; n != nil {
		n.snapshots.drop(s.ID)
		x.tidy(n)
	}
	x.compare(s, nil)
}

// name notes how a snapshot is called.
func (x *index) name(s *Snapshot) {
	x.ofWorkspace.add(s.Workspace, s.ID)
	if s.Name != "" {
		x.called.add(calling{s.Workspace, s.Name}, s.ID)
		x.called.add(calling{"", s.Name}, s.ID)
	}
}

// unname is the opposite of name.
func (x *index) unname(s *Snapshot) {
	x.ofWorkspace.drop(s.Workspace, s.ID)
	if s.Name != "" {
		x.called.drop(calling{s.Workspace, s.Name}, s.ID)
		x.called.drop(calling{"", s.Name}, s.ID)
	}
}

// compare notes with which layer a snapshot is compared, now that a record has taken the place of the one before.
func (x *index) compare(before, now *Snapshot) {
	if now != nil && now.ParentTop != "" {
		x.node(now.ParentTop).compared.put(now.ID, struct{}{})
	}
	if before == nil || now != nil && before.ParentTop == now.ParentTop {
		return
	}
	if n := x.nodes[before.ParentTop]; n != nil {
		n.compared.drop(before.ID)
		x.tidy(n)
	}
}

// expiry is the index of a snapshot in expiring, or that at which it belongs. One that never expires has none.
func (x *index) expiry(s *Snapshot) (at int, found bool) {
	if s.ExpiresAt == nil {
		return 0, false
	}
	return slices.BinarySearchFunc(x.expiring, s, func(a, b *Snapshot) int {
		return cmp.Or(a.ExpiresAt.Compare(*b.ExpiresAt), cmp.Compare(a.ID, b.ID))
	})
}

// lapse makes counted and bytes of all sessions those of a time. Clocks go back, too.
func (x *index) lapse(now time.Time) {
	for x.lapsed < len(x.expiring) && x.expiring[x.lapsed].Expired(now) {
		x.discount(x.expiring[x.lapsed])
		x.lapsed++
	}
	for x.lapsed > 0 && !x.expiring[x.lapsed-1].Expired(now) {
		x.lapsed--
		x.count(x.expiring[x.lapsed])
	}
}

// count counts a snapshot as its session's.
func (x *index) count(s *Snapshot) {
	of := x.sessions[s.Session]
	of.counted++
	need(x.nodes[s.Top], of)
}

// discount is the opposite of count.
func (x *index) discount(s *Snapshot) {
	of := x.sessions[s.Session]
	of.counted--
	unneed(x.nodes[s.Top], of)
}

// need notes that a session needs a layer once more, and with the first time the layer below.
func need(n *node, of *session) {
	for ; n != nil; n = n.parent {
		times, _ := n.needs.get(of)
		if n.needs.put(of, times+1); times > 0 {
			return
		}
		of.bytes += n.size()
	}
}

// unneed is the opposite of need.
func unneed(n *node, of *session) {
	for ; n != nil; n = n.parent {
		times, _ := n.needs.get(of)
		if times > 1 {
			n.needs.put(of, times-1)
		}
		if times != 1 {
			return
		}
		n.needs.drop(of)
		of.bytes -= n.size()
	}
}

// size is that of the layer's image; 0 while it has none.
func (n *node) size() int64 {
	if n.layer == nil {
		return 0
	}
	return n.layer.Size
}

// putLayer adds a layer or replaces its record.
func (x *index) putLayer(l *Layer) {
	n := x.node(l.ID)
	x.layers.add(l.ID)
	x.replace(n, l)
	var to *node
	if l.Parent != "" {
		to = x.node(l.Parent)
	}
	x.move(n, to)
	measure(n, len(x.nodes))
}

func (x *index) dropLayer(l *Layer) {
	n := x.nodes[l.ID]
	if n == nil || n.layer == nil {
		return
	}
	x.layers.drop(l.ID)
	x.replace(n, nil)
	x.move(n, nil)
	measure(n, len(x.nodes))
	x.tidy(n)
}

// replace changes the record of a node, but for what lies where.
func (x *index) replace(n *node, l *Layer) {
	before, was := n.size(), n.layer
	n.layer = l
	for of := range n.needs.all() {
		of.bytes += n.size() - before
	}
	x.chain(was, l)
	if was != nil && was.State != api.Stored {
		x.sealed--
	}
	if l != nil && l.State != api.Stored {
		x.sealed++
	}
	from, to := tierEnd(was), tierEnd(l)
	if from == to {
		return
	}
	if to != "" {
		x.node(to).ends.put(n.id, struct{}{})
	}
	if end := x.nodes[from]; end != nil {
		end.ends.drop(n.id)
		x.tidy(end)
	}
}

// tierEnd is the layer on which the tier of a layer lies; "" if there is none.
func tierEnd(l *Layer) string {
	if l == nil || l.Tier == nil {
		return ""
	}
	return l.Tier.Down
}

// move makes a node lie on another, nil for none.
func (x *index) move(n, to *node) {
	from := n.parent
	if from == to {
		return
	}
	n.parent = to
	if to != nil {
		to.children = append(to.children, n)
		for of := range n.needs.all() {
			need(to, of)
		}
	}
	if from == nil {
		n.at = len(to.children) - 1
		return
	}
	last := from.children[len(from.children)-1]
	from.children[n.at], last.at = last, n.at
	from.children[len(from.children)-1] = nil
	from.children = from.children[:len(from.children)-1]
	if to != nil {
		n.at = len(to.children) - 1
	}
	for of := range n.needs.all() {
		unneed(from, of)
	}
	x.tidy(from)
}

// measure counts the layers from a node down, after a change there, and those from all nodes above. There are no deeper
// stacks than most.
func measure(n *node, most int) {
	for changed := []*node{n}; len(changed) > 0; {
		n := changed[len(changed)-1]
		changed = changed[:len(changed)-1]
		depth, sealed := 0, 0
		switch {
		case n.layer == nil:
		case n.layer.Parent == "":
			depth = 1
		case n.parent.depth > 0 && n.parent.depth < most: // else the records are those of a ring
			depth, sealed = n.parent.depth+1, n.parent.sealed
		}
		if depth > 0 && n.layer.State != api.Stored {
			sealed++
		}
		if depth != n.depth || sealed != n.sealed {
			n.depth, n.sealed = depth, sealed
			changed = append(changed, n.children...)
		}
	}
}
