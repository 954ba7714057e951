package layers

import "golang.org/x/sys/unix"

// Which names are one file. A layer says so by its own means: a link count above one, and the host's inode number in a
// directory or the inode's reference in an image. The number that callers see comes from inode info or an image, which
// somebody else may have written: two files that claim one number stay two.

// inodeID is what a layer itself calls an inode: the host's number of it, or its reference in an image plus one; n is 0
// if that is not known.
type inodeID struct {
	n     uint64
	image bool
}

// id is o's inode, in the form that the layer had when o was found.
func (o *part) id() inodeID {
	if ref := o.imageRef(); ref != 0 {
		return inodeID{ref, true}
	}
	return inodeID{o.host, false}
}

// settle has id tell the reference in the image by which the sealed directory that o was found in has been replaced
// since. o has its name in the layer. Overlay.tree is held.
func (o *part) settle() error {
	if s := o.imageStore(); s != nil && o.imageRef() == 0 && o.parent != nil {
		_, err := s.inode(o)
		return err
	}
	return nil
}

// sameInode reports whether two parts that have their names are one inode of one layer. Overlay.tree is held.
func sameInode(a, b *part) bool {
	if a.layer != b.layer {
		return false
	}
	if samePath(a, b) {
		return true
	}
	if a.settle() != nil || b.settle() != nil {
		return false // damage, which a read of them reports
	}
	return a.id() == b.id() && a.id().n != 0
}

// samePath reports whether two parts are one name of one layer.
func samePath(a, b *part) bool {
	for a != b {
		if a == nil || b == nil || a.layer != b.layer || a.name != b.name {
			return false
		}
		a, b = a.parent, b.parent
	}
	return true
}

// candidate is an inode that a look-up has found under a name.
type candidate struct {
	dir  *node
	name string
	top  *part
	attr *Attr // as the layer has it
}

// verdict is what is known of a node and a candidate.
type verdict int

const (
	other verdict = iota // another inode
	same                 // the inode of the node
	doubt                // the layer must be asked
)

// at reports whether n is known by a name, under which its layer still shows the same number, or is about to be.
// Overlay.tree is held.
func (n *node) at(p *node, name string, l *layer, ino uint64) bool {
	if c := n.pending; c != nil && c.location == (alias{p, name}) && c.layer == l {
		return n.ino == ino
	}
	return n.parent == p && n.name == name && !n.dead && n.top.layer == l && n.ino == ino
}

// judge compares a node with what was met, without waiting for anything. Overlay.tree is held.
func (n *node) judge(s candidate) verdict {
	switch {
	case n.ino != s.top.ino || n.id == RootNode || n.typ != s.attr.typ():
		return other
	case n.at(s.dir, s.name, s.top.layer, s.top.ino):
		return same
	case n.top.layer != s.top.layer || n.free || isDir(n.typ):
		return other // a directory has one name
	case n.dead && n.pin == 0:
		return other // what its layer shows again is another file to the kernel
	case !n.dead && s.attr.Nlink < 2:
		return other
	}
	was, now := n.top.id(), s.top.id()
	switch {
	case was == now && was.n != 0:
		return same
	case was.image == now.image && was.n != 0 && now.n != 0:
		return other
	}
	return doubt
}

// ask settles a doubt about n, whose part was found before an image replaced the sealed directory. Overlay.tree is
// held, and table.mu if n is dead.
func (n *node) ask(s candidate) bool {
	if !n.dead {
		return sameInode(n.top, s.top)
	}
	// The name under which it was known is gone from the layer. What its pin holds is the inode that the image has a
	// copy of, which nobody changes any more.
	a, err := location{dirfd: int(n.pin) - 1}.stat()
	b := s.attr
	return err == nil && a.Nlink > 0 && a.Btime == b.Btime && a.Mtime == b.Mtime && a.Size == b.Size && a.UID == b.UID && a.Mode == b.Mode
}

// typ is the file type, as a node has it.
func (a *Attr) typ() uint32 { return a.Mode & unix.S_IFMT }

// lockFor locks the table and gives the live node of what was met, or nil. Overlay.tree is held.
func (t *table) lockFor(s candidate) *node {
	var asked map[*node]bool
	if isDir(s.attr.Mode) {
		t.refreshAt(s.dir, s.name)
	}
	for {
		t.mu.Lock()
		t.refreshLocked(s.dir, s.name, s.top.ino, layerInode{s.top.layer, s.top.id()})
		t.recallLocked(s.dir, s.name, s.top.ino, s.attr.typ())
		n := t.findLocked(s, asked)
		if n == nil || n.judge(s) == same || asked[n] {
			return n
		}
		if asked == nil {
			asked = map[*node]bool{}
		}
		if n.dead { // the call that forgets it closes its pin, once it is out of the table
			asked[n] = n.ask(s)
			t.mu.Unlock()
			continue
		}
		t.mu.Unlock()
		asked[n] = n.ask(s)
	}
}

// findLocked finds the node of what was met, or one about which the layer must be asked: asked has the answers. mu is
// held.
func (t *table) findLocked(s candidate, asked map[*node]bool) *node {
	id := s.top.id()
	for i := range 3 {
		var n *node
		switch {
		case i == 0:
			n = t.m[NodeID(s.top.ino)]
		case i == 1:
			n = t.renumbered.names[alias{s.dir, s.name}]
		case id.n != 0:
			n = t.renumbered.inodes[layerInode{s.top.layer, id}]
		}
		if n == nil {
			continue
		}
		v := n.judge(s)
		if yes, known := asked[n]; v == doubt && known && !yes {
			v = other
		}
		if v != other {
			return n
		}
	}
	return nil
}

// spareIDs is the first of the ids given out where inode numbers clash.
const spareIDs = 1 << 63

// renumberedNodes finds the nodes whose number another node has, or had, as its id.
type renumberedNodes struct {
	keys    map[*node]renumberedKeys
	names   map[alias]*node
	inodes  map[layerInode]*node
	numbers map[uint64]*node // those that show the number that their layer reports
}

// layerInode is one inode of one layer.
type layerInode struct {
	l  *layer
	id inodeID
}

// renumberedKeys are the keys under which a node is in renumberedNodes.
type renumberedKeys struct {
	name   alias // parent nil: it has none
	inode  layerInode
	number uint64
}

// renumbered reports whether n must be found by renumberedNodes.
func (n *node) renumbered() bool { return n.id != NodeID(n.ino) }

// number is the inode number that callers see: the one that the layer reports, unless another file has it.
func (n *node) number() uint64 {
	if n.numberTaken {
		return uint64(n.id)
	}
	return n.ino
}

// spareIDLocked gives an id that nobody has. mu is held.
func (t *table) spareIDLocked() NodeID {
	for {
		t.next++
		if id := NodeID(spareIDs | t.next); !t.takenLocked(id) {
			return id
		}
	}
}

// clashLocked reports whether a living file shows the number that n's layer reports, n being of another inode. mu is
// held.
func (t *table) clashLocked(n *node) bool {
	if n.ino == 0 || n.ino >= spareIDs || n.ino == rootIno || t.renumbered.numbers[n.ino] != nil {
		return true
	}
	c := t.m[NodeID(n.ino)]
	return c != nil && c.ino == n.ino && !c.numberTaken && c.living()
}

// living reports whether a layer of the stack has a name for n, if perhaps one that nobody has looked up.
func (n *node) living() bool { return !n.free && (!n.dead || n.pin > 0) }

// showLocked lets n be found as it is now; what is in no layer is not to be found. mu is held, and Overlay.tree, for
// writing unless n is new.
func (t *table) showLocked(n *node) {
	t.hideLocked(n)
	if !n.renumbered() || n.free {
		return
	}
	o := &t.renumbered
	if o.keys == nil {
		*o = renumberedNodes{map[*node]renumberedKeys{}, map[alias]*node{}, map[layerInode]*node{}, map[uint64]*node{}}
	}
	k := renumberedKeys{inode: layerInode{n.top.layer, n.top.id()}}
	if !n.dead {
		k.name = alias{n.parent, n.name}
		o.names[k.name] = n
	}
	if !n.numberTaken && n.living() {
		k.number = n.ino
		o.numbers[n.ino] = n
	}
	if !isDir(n.typ) && k.inode.id.n != 0 {
		o.inodes[k.inode] = n
	}
	o.keys[n] = k
}

// hideLocked takes n out of renumberedNodes, where another may have come in its place. mu is held.
func (t *table) hideLocked(n *node) {
	o := &t.renumbered
	k, ok := o.keys[n]
	if !ok {
		return
	}
	delete(o.keys, n)
	if o.names[k.name] == n {
		delete(o.names, k.name)
	}
	if o.inodes[k.inode] == n {
		delete(o.inodes, k.inode)
	}
	if o.numbers[k.number] == n {
		delete(o.numbers, k.number)
	}
}

// settleRenumbered has the renumbered nodes of a layer found by its new form. Overlay.tree is held for writing.
func (t *table) settleRenumbered(l *layer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for n := range t.renumbered.keys {
		if n.top.layer == l && !n.dead && !isDir(n.typ) && n.top.settle() == nil { // else its names are found apart
			t.showLocked(n)
		}
	}
}
