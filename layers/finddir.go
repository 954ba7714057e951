package layers

import (
	"errors"
	"slices"

	"golang.org/x/sys/unix"
)

// This file finds the directories of the overlay that show those of a layer: nearly always each is where it is in the
// layer, below the one that shows its parent. Else it was renamed, and is found by looking through all directories:
// once for all that are wanted, and what was renamed is remembered for the next time.

// maxMoved bounds the directories of a layer that are remembered, and the length of their paths there.
const (
	maxMoved     = 1 << 14
	maxMovedPath = 4096
)

// foundDirs are the directories of the overlay that show those of a layer, each with a reference; nil: it is not shown,
// or not yet found.
type foundDirs map[*part]*node

// dirFinder looks for directories.
type dirFinder struct {
	o     *Overlay
	found foundDirs
}

// dirsOf finds the directories that show those of a layer, their parents included. The caller holds no lock, and calls
// releaseDirs.
func (o *Overlay) dirsOf(wanted []*part) (foundDirs, error) {
	f := dirFinder{o, foundDirs{}}
	var missing []*part
	for _, part := range wanted {
		o.tree.RLock()
		n, err := f.find(part)
		o.tree.RUnlock()
		if err != nil {
			o.releaseDirs(f.found)
			return nil, err
		}
		if n == nil {
			missing = append(missing, part)
		}
	}
	if err := f.search(missing); err != nil {
		o.releaseDirs(f.found)
		return nil, err
	}
	return f.found, nil
}

// releaseDirs gives back the references of directories.
func (o *Overlay) releaseDirs(found foundDirs) {
	held := make([]*node, 0, len(found))
	for _, n := range found {
		if n != nil {
			held = append(held, n)
		}
	}
	o.dropHeld(held)
}

// merges reports whether a directory of a layer is one of n's parts.
func (n *node) merges(dir *part) bool {
	return samePath(n.top, dir) || slices.ContainsFunc(n.below, func(p *part) bool { return samePath(p, dir) })
}

// find finds a directory by its parent, or as one that is known to have been renamed. tree is held.
func (f *dirFinder) find(part *part) (*node, error) {
	if n, ok := f.found[part]; ok {
		return n, nil
	}
	n, err := f.inParent(part)
	if err == nil && n == nil {
		n = f.o.renamedDir(part)
	}
	if err == nil {
		f.found[part] = n
	}
	return n, err
}

// inParent finds a directory where it is in its layer, with a reference.
func (f *dirFinder) inParent(part *part) (*node, error) {
	o := f.o
	var n *node
	if part.parent == nil {
		n = o.root
		o.nodes.ref(n)
	} else {
		p, err := f.find(part.parent)
		if p == nil || err != nil {
			return nil, err
		}
		if n, err = o.childDir(p, part.name); n == nil || err != nil {
			return nil, err
		}
	}
	if !n.merges(part) {
		o.discard(o.nodes.drop(n, 1, 0))
		return nil, nil
	}
	return n, nil
}

// childDir looks a directory up; nil if there is none of that name. tree is held.
func (o *Overlay) childDir(n *node, name string) (*node, error) {
	_, c, err := o.lookupIn(n.id, name)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if !isDir(c.typ) {
		o.discard(o.nodes.drop(c, 1, 0))
		return nil, nil
	}
	return c, nil
}

// renamedDir gives the directory that showed another's part when it was looked for before, with a reference, if it
// still does. tree is held.
func (o *Overlay) renamedDir(part *part) *node {
	g := &o.groups
	g.mu.Lock()
	var id NodeID
	if moved := g.moved[part.layer.lower]; moved != nil {
		id = moved[part.path()]
	}
	g.mu.Unlock()
	if id == 0 {
		return nil
	}
	n := o.nodes.refByID(id)
	if n == nil {
		return nil
	}
	o.nodes.refresh(n)
	if n.dead || !isDir(n.typ) || !n.merges(part) {
		o.discard(o.nodes.drop(n, 1, 0))
		return nil
	}
	return n
}

// noteRenamed notes which directory shows part, or rather the innermost one above it that was renamed: n does. tree is
// held.
func (o *Overlay) noteRenamed(part *part, n *node) {
	for part.parent != nil && n.parent != nil && n.name == part.name && n.parent.merges(part.parent) {
		part, n = part.parent, n.parent
	}
	path := part.path()
	if len(path) > maxMovedPath {
		return
	}
	g := &o.groups
	g.mu.Lock()
	defer g.mu.Unlock()
	moved := g.moved[part.layer.lower]
	if moved == nil || len(moved) >= maxMoved {
		moved = map[string]NodeID{}
		if g.moved == nil {
			g.moved = map[*Lower]map[string]NodeID{}
		}
		g.moved[part.layer.lower] = moved
	}
	moved[path] = n.id
}

// refByID gives a node with one more reference, or nil.
func (t *table) refByID(id NodeID) *node {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.m[id]
	if n == nil && t.pastLocked(id) {
		t.mu.Unlock()
		_, _ = t.live.recall(id, alias{}) // else it is as if it were not known
		t.mu.Lock()
		n = t.m[id]
	}
	if n != nil {
		t.refLocked(n)
	}
	return n
}

// ref takes one more look-up reference.
func (t *table) ref(n *node) {
	t.mu.Lock()
	t.refLocked(n)
	t.mu.Unlock()
}

// search looks for directories of one layer through all of the overlay's.
func (f *dirFinder) search(missing []*part) error {
	if len(missing) == 0 {
		return nil
	}
	s := dirSearch{f, missing[0].layer, map[string]*part{}, map[string]bool{}}
	for _, part := range missing {
		s.wanted[part.path()] = part
		s.names[part.name] = true
	}
	f.o.nodes.ref(f.o.root)
	return s.walk(f.o.root)
}

// dirSearch is a search through all directories.
type dirSearch struct {
	*dirFinder
	layer  *layer
	wanted map[string]*part // by path in the layer
	names  map[string]bool  // of these
}

// walk looks at a directory, of which it takes the reference that the caller has, and at all below it until nothing is
// wanted any more.
func (s *dirSearch) walk(n *node) error {
	o := s.o
	o.tree.RLock()
	subs, err := s.visit(n)
	o.tree.RUnlock()
	for _, name := range subs {
		if len(s.wanted) == 0 || err != nil {
			break
		}
		var c *node
		o.tree.RLock()
		c, err = o.childDir(n, name)
		o.tree.RUnlock()
		if c != nil {
			err = s.walk(c)
		}
	}
	o.dropHeld([]*node{n})
	return err
}

// visit notes what is wanted of a directory's parts, and lists the directories in it. tree is held.
func (s *dirSearch) visit(n *node) ([]string, error) {
	s.o.nodes.refresh(n)
	if n.dead {
		return nil, nil
	}
	for _, p := range n.parts() {
		if p.layer != s.layer || !s.names[p.name] {
			continue
		}
		path := p.path()
		if part := s.wanted[path]; part != nil {
			delete(s.wanted, path)
			s.o.nodes.ref(n)
			s.found[part] = n
			s.o.noteRenamed(part, n)
		}
	}
	items, err := s.o.merge(n.parts())
	if err != nil {
		return nil, err
	}
	var subs []string
	for _, it := range items {
		if it.typ == unix.S_IFDIR {
			subs = append(subs, it.name)
		}
	}
	return subs, nil
}
