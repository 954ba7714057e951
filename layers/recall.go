package layers

import (
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"

	"snapfs/internal/livestate"
)

// A process that goes on with an overlay has records of nodes (live.go) instead of nodes. A node is made of its record
// when it is first used: by its id, or when a look-up meets something that it may be. The directory that has its name
// comes first. What is not found any more is stale: its id stays taken until the kernel has forgotten it.

// past is the records of which there are no nodes yet. It is guarded by table.mu.
type past struct {
	of       map[NodeID]pastNode
	other    map[uint64][]NodeID // those whose id is not the number, by that
	dirs     map[pastDir]NodeID  // directories by their names
	children map[NodeID]int      // how many of these records are in a directory, as long as that has no node either
	orphans  map[NodeID]pastOrphan
	serials  map[uint64]NodeID // of those whose names in the orphan directory say nothing else
}

// pastNode is where a node is recorded.
type pastNode struct {
	slot, next uint32 // next: of a second name; 0: none
	stale      bool   // it was looked for in vain
}

// pastDir is where a directory is recorded: its parent, and its name by nameCookie.
type pastDir struct{ parent, name uint64 }

// pastOrphan is a name in the orphan directory.
type pastOrphan struct {
	name   string
	serial uint64
}

// maxPast bounds the records that are taken over.
const maxPast = 1 << 25

// inherit reads the records of the process before.
func (l *live) inherit() error {
	if l.nodes.Len() == 0 {
		return nil
	}
	if l.nodes.Len() > maxPast {
		return fmt.Errorf("%w: %d nodes", livestate.ErrFormat, l.nodes.Len())
	}
	p := &past{
		of: make(map[NodeID]pastNode, l.nodes.Len()), other: map[uint64][]NodeID{}, dirs: map[pastDir]NodeID{},
		children: map[NodeID]int{}, orphans: map[NodeID]pastOrphan{}, serials: map[uint64]NodeID{},
	}
	for _, next := range []bool{false, true} {
		for slot, r := range l.nodes.All() {
			if next != (r.Flags&flagNext != 0) {
				continue
			}
			id := NodeID(r.ID)
			r, serial := numbered(r)
			known, ok := p.of[id]
			switch {
			case id == RootNode || r.Parent == r.ID || ok && known.next != 0 || next && !ok:
				l.nodes.Remove(slot)
				continue
			case ok:
				p.number(serial, id)
				known.next = slot
				p.of[id] = known
				continue
			}
			p.number(serial, id)
			p.of[id] = pastNode{slot: slot}
			if id != NodeID(r.Inode) {
				p.other[r.Inode] = append(p.other[r.Inode], id)
			}
			if isDir(r.Flags & flagType << 12) {
				p.dirs[pastDir{r.Parent, r.Name}] = id
			}
			if r.Parent != 0 {
				p.children[NodeID(r.Parent)]++
			}
			if t := &l.o.nodes; id >= spareIDs {
				t.next = max(t.next, uint64(id)-spareIDs)
			}
		}
	}
	l.o.root.holds += p.children[RootNode]
	l.past = p
	t := &l.o.nodes
	t.mu.Lock()
	defer t.mu.Unlock()
	for id := range p.of { // what was held by further names, of which nothing is recorded, or by calls
		if l.forgetLocked(id, 0) != nil {
			l.o.root.holds--
		}
	}
	if l.past != nil {
		l.doubts.left = make(map[NodeID]struct{}, len(p.of))
		for id := range p.of {
			l.doubts.left[id] = struct{}{}
		}
	}
	return nil
}

// number notes whose name in the orphan directory a serial is, if it is not 0.
func (p *past) number(serial uint64, id NodeID) {
	if serial != 0 {
		p.serials[serial] = id
	}
}

// numbered gives who has a serial as a name in the orphan directory; 0: nobody. A nil past has none.
func (p *past) numbered(serial uint64) NodeID {
	if p == nil {
		return 0
	}
	return p.serials[serial]
}

// orphan gives the name that a node has in the orphan directory; "" if it has none.
func (p *past) orphan(id NodeID) string {
	if p == nil {
		return ""
	}
	return p.orphans[id].name
}

// adopt notes a name in the orphan directory, and reports whether it is of use. Of two of one id the later counts.
func (p *past) adopt(id NodeID, name string, serial uint64) bool {
	if p == nil {
		return false
	}
	if _, known := p.of[id]; !known || p.orphans[id].serial > serial {
		return false
	}
	p.orphans[id] = pastOrphan{name, serial}
	return true
}

// record gives the record of an id that has no node yet. A nil past, as it is when all have nodes, has none.
func (p *past) record(id NodeID) (r pastNode, ok bool) {
	if p == nil {
		return r, false
	}
	r, ok = p.of[id]
	return r, ok
}

// pastLocked reports whether an id has a record, of which a node may be made, but no node. mu is held.
func (t *table) pastLocked(id NodeID) bool {
	if t.live == nil || t.live.past == nil || t.m[id] != nil {
		return false
	}
	p, ok := t.live.past.of[id]
	return ok && !p.stale
}

// recallLocked makes the nodes that a look-up's inode may be found to be. typ is its type, 0 if that is not known. mu is
// held, but given up for a moment; tree is held.
func (t *table) recallLocked(p *node, name string, ino uint64, typ uint32) {
	for t.live != nil && t.live.past != nil {
		id := NodeID(ino)
		if !t.pastLocked(id) {
			id = 0
			for _, other := range t.live.past.other[ino] {
				if t.pastLocked(other) {
					id = other
				}
			}
		}
		if id == 0 { // a directory may have got another inode by a rollback
			if id = t.live.past.dirs[pastDir{uint64(p.id), nameCookie(name)}]; !t.pastLocked(id) {
				return
			}
		}
		r := t.live.nodes.Get(t.live.past.of[id].slot)
		if typ != 0 && r.Flags&flagType != typ>>12 {
			return
		}
		t.mu.Unlock()
		_, err := t.live.recall(id, alias{p, name})
		t.mu.Lock()
		if err != nil {
			return
		}
	}
}

// recall makes the node of an id that has a record, and before it those of the directories that it is in. hint is a
// name that it may have. nil: it is stale. tree is held.
func (l *live) recall(id NodeID, hint alias) (*node, error) {
	t := &l.o.nodes
	begun := map[NodeID]bool{}
	for todo := []NodeID{id}; len(todo) > 0; {
		at := todo[len(todo)-1]
		up, ok := l.above(at, begun)
		if len(up) > 0 {
			begun[at] = true
			todo = append(todo, up...)
			continue
		}
		todo = todo[:len(todo)-1]
		if !ok {
			continue
		}
		if err := l.make(at, hint); err != nil {
			return nil, err
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.m[id], nil
}

// above gives the directories that an id's record names and that have no nodes yet, unless they are begun, and reports
// whether the id needs a node itself. Where a directory was, whose id a file has now, the record says nothing: to find
// the file by its other names may need the node of the very id.
func (l *live) above(id NodeID, begun map[NodeID]bool) (up []NodeID, ok bool) {
	t := &l.o.nodes
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.pastLocked(id) {
		return nil, false
	}
	p := l.past.of[id]
	for _, slot := range []uint32{p.slot, p.next} {
		r, _ := l.get(slot)
		dir := NodeID(r.Parent)
		if dir != 0 && !begun[dir] && dir != id && t.pastLocked(dir) && l.wasDirLocked(dir) {
			up = append(up, dir)
		}
	}
	return up, true
}

// wasDirLocked reports whether the record of an id is that of a directory. table.mu is held.
func (l *live) wasDirLocked(id NodeID) bool {
	return isDir(l.nodes.Get(l.past.of[id].slot).Flags & flagType << 12)
}

// recalled is what a record has turned out to be.
type recalled struct {
	parent *node
	name   string
	hit
	dead, free, unnamed bool
	loose               bool  // a directory that only its name tells
	pin                 int   // -1: none
	held                *node // has one more reference; nil: none
}

// make makes the node of a record, or notes that it is stale. With an error it may be tried again.
func (l *live) make(id NodeID, hint alias) error {
	o, t := l.o, &l.o.nodes
	t.mu.Lock()
	p, known := l.past.record(id)
	if !known || p.stale {
		t.mu.Unlock()
		return nil
	}
	first, _ := l.get(p.slot)
	second, _ := l.get(p.next)
	var dirs [2]*node
	for i, r := range []livestate.Node{first, second} {
		if dirs[i] = t.m[NodeID(r.Parent)]; dirs[i] != nil && isDir(dirs[i].typ) {
			dirs[i].holds++
		} else {
			dirs[i] = nil
		}
	}
	orphan := l.past.orphans[id].name
	t.mu.Unlock()
	defer func() {
		for _, d := range dirs {
			if d != nil {
				o.discard(t.drop(d, 0, 1))
			}
		}
	}()
	found, err := l.find([]livestate.Node{first, second}, dirs, orphan, hint)
	if err != nil {
		return err
	}
	if found != nil && found.held != nil {
		defer func() { o.discard(t.drop(found.held, 0, 1)) }()
	}
	drop := ""
	t.mu.Lock()
	if p, known = l.past.record(id); !known || t.m[id] != nil {
		t.mu.Unlock()
		if found != nil && found.pin >= 0 {
			_ = unix.Close(found.pin) // O_PATH
		}
		return nil
	}
	if found != nil && found.loose && l.knownLocked(id, found.parent, found.name, found.parts[0].ino) {
		found = nil // a look-up has met it meanwhile
	}
	var gone *node
	if found == nil {
		p.stale = true
		l.past.of[id] = p
		o.log.Warn("something that the kernel knows is not there any more", "node", uint64(id))
	} else {
		if drop = orphan; found.parts[0].layer == o.orphans.layer {
			drop = ""
		}
		gone = l.enterLocked(id, found)
	}
	t.mu.Unlock()
	if drop != "" {
		o.orphans.remove(drop)
	}
	if gone != nil {
		o.discard(t.drop(gone, 0, 1))
	}
	return nil
}

// enterLocked enters the node of a record, and gives a directory of which a reference must be given back. mu is held.
func (l *live) enterLocked(id NodeID, f *recalled) (gone *node) {
	t, p := &l.o.nodes, l.past
	was := p.of[id]
	r, _ := l.get(was.slot)
	n := &node{
		id: id, ino: r.Inode, typ: (r.Flags & flagType) << 12, numberTaken: r.Flags&flagTaken != 0,
		birth: generation(f.attr.Btime), parent: f.parent, name: f.name, top: f.parts[0], dead: f.dead, free: f.free,
		unnamed: f.unnamed, lookups: r.Lookups, slot: was.slot, epoch: t.epoch, inherited: true,
	}
	if len(f.parts) > 1 {
		n.below = f.parts[1:]
	}
	if isDir(n.typ) && !n.dead {
		n.ino = n.top.ino // another one's, if a rollback has changed it
	}
	n.gen.Store(r.Gen)
	n.bare.Store(f.found.bare)
	if f.pin >= 0 {
		l.o.setPin(n, f.pin)
	}
	n.holds = p.children[id]
	delete(p.children, id)
	if n.parent != nil {
		n.parent.holds++
	}
	t.m[id] = n
	t.count(1)
	t.peak = max(t.peak, len(t.m))
	t.showLocked(n)
	t.noteLocked(n)
	p.remove(id, r)
	t.recordLocked(n)
	if was.next != 0 {
		l.nodes.Remove(was.next)
	}
	return l.leaveLocked(NodeID(r.Parent))
}

// remove forgets a record.
func (p *past) remove(id NodeID, r livestate.Node) {
	delete(p.of, id)
	delete(p.orphans, id)
	if at := (pastDir{r.Parent, r.Name}); p.dirs[at] == id {
		delete(p.dirs, at)
	}
	if list, ok := p.other[r.Inode]; ok {
		kept := list[:0]
		for _, x := range list {
			if x != id {
				kept = append(kept, x)
			}
		}
		if p.other[r.Inode] = kept; len(kept) == 0 {
			delete(p.other, r.Inode)
		}
	}
}

// leaveLocked notes that a record in a directory is none any more. It gives the directory's node, with the reference
// that the record held, if there is one. mu is held.
func (l *live) leaveLocked(dir NodeID) *node {
	if len(l.past.of) == 0 {
		defer func() { l.past = nil }()
	}
	if dir == 0 {
		return nil
	}
	if n := l.o.nodes.m[dir]; n != nil {
		return n
	}
	if l.past.children[dir]--; l.past.children[dir] <= 0 {
		delete(l.past.children, dir)
	}
	return nil
}

// forgetLocked gives references of a node back that has only a record. It gives a directory of which a reference must
// be given back. mu is held.
func (l *live) forgetLocked(id NodeID, lookups uint64) (drop *node) {
	for {
		p, ok := l.past.record(id)
		if !ok {
			return nil
		}
		r, _ := l.get(p.slot)
		r.Lookups -= min(r.Lookups, lookups)
		l.nodes.SetLookups(p.slot, r.Lookups)
		if l.touchLocked(id); lookups > 0 && r.Lookups > 0 {
			l.remainLocked(id)
		}
		if r.Lookups > 0 || l.past.children[id] > 0 {
			return nil
		}
		if name := l.past.orphans[id].name; name != "" {
			l.o.countErased(name)
			l.o.eraseOrphan(name)
		}
		l.nodes.Remove(p.slot)
		if p.next != 0 {
			l.nodes.Remove(p.next)
		}
		l.past.remove(id, r)
		if drop = l.leaveLocked(NodeID(r.Parent)); drop != nil || r.Parent == 0 || l.past == nil {
			return drop
		}
		id, lookups = NodeID(r.Parent), 0
	}
}

// recallAll makes all nodes that have only a record. No lock is held.
func (o *Overlay) recallAll() error {
	t := &o.nodes
	if t.live == nil {
		return nil
	}
	t.mu.Lock()
	var ids []NodeID
	if t.live.past != nil {
		for id := range t.live.past.of {
			ids = append(ids, id)
		}
	}
	t.mu.Unlock()
	for len(ids) > 0 {
		some := ids[:min(settleAtOnce, len(ids))]
		ids = ids[len(some):]
		o.tree.RLock()
		for _, id := range some {
			if _, err := t.live.recall(id, alias{}); err != nil {
				o.tree.RUnlock()
				return err
			}
		}
		o.tree.RUnlock()
	}
	return nil
}

// beside reports whether two work directories belong to one home, by their paths: they have the same directory above
// them, or the same two levels up and one name.
func beside(a, b string) bool {
	a, b = filepath.Clean(a), filepath.Clean(b)
	up, as := filepath.Dir(a), filepath.Dir(b)
	return filepath.IsAbs(a) && (up == as || filepath.Dir(up) == filepath.Dir(as) && filepath.Base(a) == filepath.Base(b))
}
