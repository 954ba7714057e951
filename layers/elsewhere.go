package layers

// A file that has lost the only name that is known, but has others, is pinned. In the upper and in a sealed directory the
// pin is the file itself; once an image has come in the place of that, the directory is removed, and the pin tells neither
// what the file shows nor under which names. So such a file is given another name before.

// losesLocked notes that n has lost its last known name. mu and Overlay.tree are held.
func (t *table) losesLocked(n *node) {
	if n.free || n.pin == 0 || isDir(n.typ) {
		return
	}
	if t.elsewhere == nil {
		t.elsewhere = map[*node]struct{}{}
	}
	t.elsewhere[n] = struct{}{}
}

// nameLost gives files of sealed directories a name that they still have, where none is known. It takes as long as the
// layers are large in which there are such files. The caller holds no lock.
func (o *Overlay) nameLost() {
	for l, lost := range o.lostNames() {
		o.nameLostIn(l, lost)
	}
}

// lostNames gives the files of sealed directories that have no known name, held in the table, by the layer.
func (o *Overlay) lostNames() map[*layer][]*node {
	t := &o.nodes
	o.tree.RLock()
	defer o.tree.RUnlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	var lost map[*layer][]*node
	for n := range t.elsewhere {
		switch {
		case !n.dead || n.free || n.pin == 0:
			delete(t.elsewhere, n)
		case n.top.layer != o.upper.layer && n.top.dirStore() != nil:
			if lost == nil {
				lost = map[*layer][]*node{}
			}
			n.holds++
			lost[n.top.layer] = append(lost[n.top.layer], n)
			delete(t.elsewhere, n)
		}
	}
	return lost
}

// nameLostIn does so for the files of one layer, in one walk.
func (o *Overlay) nameLostIn(l *layer, lost []*node) {
	links := map[uint64][]link{}
	for _, n := range lost {
		links[n.ino] = nil
	}
	err := o.eachLink(l, func(e rawEntry, it link) {
		if _, ok := links[e.ino]; ok {
			links[e.ino] = append(links[e.ino], it)
		}
	})
	for _, n := range lost {
		if err == nil { // else it was reported, and what is read of the file is an error
			_, _ = o.lookUp(n, links[n.ino], func(*node, string) bool { return true })
		}
	}
	o.tree.RLock()
	defer o.tree.RUnlock()
	for _, n := range lost {
		o.discard(o.nodes.drop(n, 0, 1))
	}
}
