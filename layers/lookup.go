package layers

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"snapfs/internal/readset"
	"snapfs/squashfs"
)

// maxName is the longest name of the hosts we run on and of the kernel's VFS.
const maxName = 255

// hit is what a name resolves to.
type hit struct {
	parts []*part // topmost first, never empty when found
	attr  Attr    // of parts[0], as its layer has it
	found found   // of parts[0]
}

func checkName(name string) error {
	if len(name) > maxName {
		return unix.ENAMETOOLONG
	}
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
		return unix.EINVAL
	}
	return nil
}

// Lookup finds name in parent; ENOENT. What it keeps of the name is a copy.
func (o *Overlay) Lookup(parent NodeID, name string) (Entry, error) {
	if err := checkName(name); err != nil {
		return Entry{}, err
	}
	o.tree.RLock()
	e, n, err := o.lookupIn(parent, name)
	lost := err == nil && n.dead
	o.tree.RUnlock()
	if lost {
		o.revive(n)
	}
	return e, err
}

// lookupIn is Lookup below the lock; tree is held.
func (o *Overlay) lookupIn(parent NodeID, name string) (Entry, *node, error) {
	p, err := o.dirNode(parent)
	if err != nil {
		return Entry{}, nil, err
	}
	if p.dead {
		return Entry{}, nil, unix.ENOENT
	}
	s := scan{nodes: &o.nodes}
	h, err := o.searchFor(&s, p, 0, name)
	if err != nil {
		if o.reads != nil {
			o.noteAbsent(p, name, err)
		}
		return Entry{}, nil, o.report(awayOr(err, p.parts(), name), p.top, name)
	}
	n := s.known
	if n == nil {
		n = o.nodes.enter(p, h.parts[0].name, h)
	}
	if o.reads != nil {
		o.noteLookup(p, name, n)
	}
	return o.entry(n, h.attr), n, nil
}

// entry is the answer of a look-up that has found a node. tree is held.
func (o *Overlay) entry(n *node, a Attr) Entry {
	return Entry{Node: n.id, Gen: uint64(n.gen.Load()), Attr: o.shape(n, a), Fleeting: n.top.fleeting()}
}

// revive gives nodes that have lost their only known name the further name under which they were found. Where one is
// being changed, for which its name must stay, it is left to who changes it: a look-up does not wait for the host.
func (o *Overlay) revive(lost ...*node) {
	for _, n := range lost {
		n.lost.Store(true)
		o.reviveLost(n)
	}
}

// unlock unlocks a node, and gives it the name that a look-up has wanted it to have meanwhile. tree is not held.
func (o *Overlay) unlock(n *node) {
	n.lock.Unlock()
	o.reviveLost(n)
}

// reviveLost is revive for a node for which it was asked, unless somebody has its lock: he calls this when he has given
// that back.
func (o *Overlay) reviveLost(n *node) {
	for n.lost.Load() && n.lock.TryLock() {
		if n.lost.Swap(false) {
			o.tree.Lock()
			o.reviveLocked(n)
			o.tree.Unlock()
		}
		n.lock.Unlock()
	}
}

// reviveLocked is revive with tree held for writing.
func (o *Overlay) reviveLocked(n *node) {
	t := &o.nodes
	t.refresh(n)
	if !n.dead || n.free {
		return
	}
	t.mu.Lock()
	names := n.aliases
	t.mu.Unlock()
	for _, a := range names {
		h, err := o.search(a.parent, 0, a.name)
		if err != nil || t.find(candidate{a.parent, a.name, h.parts[0], &h.attr}) != n {
			continue // gone again meanwhile
		}
		descriptors.drop(n.top)
		o.unpin(n)
		n.dead = false
		t.setTop(n, h.parts[0], h.parts[1:])
		t.mu.Lock()
		t.unaliasLocked(n, a.parent, a.name)
		t.moveLocked(n, a.parent, a.name)
		t.mu.Unlock()
		return
	}
}

// search resolves name in p's parts from the part with index from on; unix.ENOENT. tree is held.
func (o *Overlay) search(p *node, from int, name string) (hit, error) {
	var s scan
	return o.searchFor(&s, p, from, name)
}

// searchFor is search, which ends early at the node of the name if the scan knows nodes.
func (o *Overlay) searchFor(s *scan, p *node, from int, name string) (hit, error) {
	for i := from; i <= len(p.below); i++ {
		d := p.top
		if i > 0 {
			d = p.below[i-1]
		}
		f, err := d.backend().find(d, name)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return hit{}, err
		}
		if o.opts.Nested {
			f.nest()
		}
		if s.nodes != nil && len(s.parts) == 0 && !f.whiteout {
			if !f.metacopy {
				s.known = s.nodes.enterKnown(p, name, d.layer, f.attr.Ino, f.ref)
			}
			if s.known != nil {
				s.attr, s.found = f.attr, f
				return s.hit, nil
			}
			name = strings.Clone(name)
		}
		if s.take(d, name, f) {
			break
		}
		if r := f.redirect; r != "" {
			if r[0] != '/' {
				name = r
				continue
			}
			if err := o.follow(s, d.layer, r); err != nil {
				return hit{}, err
			}
			break
		}
	}
	return s.hit, s.result()
}

// scan gathers a node's parts from the top down.
type scan struct {
	hit
	incomplete bool // a metacopy's data is still missing

	stack []*layer // that redirects are followed through; nil: the overlay's
	nodes *table   // nil: nobody knows nodes, and names are kept as they are
	known *node    // of the name, with one more reference; parts are not looked for then
}

// take adds what one layer has under the name and reports whether nothing below it counts.
func (s *scan) take(d *part, name string, f found) (done bool) {
	if f.whiteout {
		return true
	}
	dir := isDir(f.attr.Mode)
	if len(s.parts) > 0 && (dir != isDir(s.attr.Mode) || !dir && !isReg(f.attr.Mode)) {
		return true // hidden by the other kind above
	}
	s.parts = append(s.parts, d.child(name, f))
	if len(s.parts) == 1 {
		s.attr, s.found = f.attr, f
	}
	if dir {
		return f.opaque
	}
	s.incomplete = f.metacopy
	return !f.metacopy
}

func (s *scan) result() error {
	if len(s.parts) == 0 {
		return unix.ENOENT
	}
	if s.incomplete {
		return errNoData
	}
	return nil
}

// errNoData says that a metacopy's data is nowhere below.
var errNoData = fmt.Errorf("%w: metadata-only file without data below", squashfs.ErrCorrupt)

// follow gathers the parts that an absolute redirect leads to in the layers below after.
func (o *Overlay) follow(s *scan, after *layer, path string) error {
	below := false
	stack := s.stack
	if stack == nil {
		stack = o.stack
	}
	for _, l := range stack {
		if !below {
			below = l == after
			continue
		}
		next, done, err := walkRedirect(s, l, path)
		if err != nil || done {
			return err
		}
		path = next
	}
	return nil
}

// walkRedirect resolves path in one layer. A redirect met on the way changes the path for the layers further down;
// a whiteout, an opaque directory or a file on the way ends the search.
func walkRedirect(s *scan, l *layer, path string) (next string, done bool, err error) {
	dir := rootPart(l)
	var parents []string // names passed
	rest := strings.Split(strings.Trim(path, "/"), "/")
	next = path
	for i, name := range rest {
		f, err := dir.backend().find(dir, name)
		if errors.Is(err, unix.ENOENT) {
			return next, done, nil
		}
		if err != nil {
			return "", true, err
		}
		last := i == len(rest)-1
		tail := strings.Join(rest[i+1:], "/")
		if last {
			done = s.take(dir, name, f) || done
		} else {
			if f.whiteout || !isDir(f.attr.Mode) {
				return "", true, nil
			}
			done = done || f.opaque
		}
		if r := f.redirect; r != "" && (last || !f.opaque) {
			if r[0] != '/' {
				r = "/" + strings.Join(append(parents[:len(parents):len(parents)], r), "/")
			} else if !last || isDir(f.attr.Mode) || f.metacopy {
				done = false // it leads out of what was opaque on the way
			}
			next = strings.TrimSuffix(r+"/"+tail, "/")
		}
		if !last {
			parents = append(parents, name)
			dir = dir.child(name, f)
		}
	}
	return next, done, nil
}

// dirSize is the size of every directory: a layer's own way of storing it is of no meaning to others.
const dirSize = 4096

// shape turns the top part's attributes into those of the node. tree is held.
func (o *Overlay) shape(n *node, a Attr) Attr {
	a.Ino = n.number()
	if c := n.pending; c != nil && c.visible != nil {
		a.Atime, a.Mtime, a.Ctime, a.Nlink = c.visible.Atime, c.visible.Mtime, c.visible.Ctime, c.visible.Nlink
	}
	if isDir(n.typ) {
		a.Size, a.Blocks = dirSize, dirSize/512
		if n.top.dirStore() != nil && len(n.below) > 0 && n.top.ref.Load()&(noteLook|noteCount) == 0 {
			a.Nlink = 1 // another's layer: as with the kernel's overlayfs nobody counts
		}
	}
	if n.typ == unix.S_IFCHR && isReg(a.Mode) {
		a.Mode = a.Mode&^unix.S_IFMT | unix.S_IFCHR // see xattrNode
	}
	switch c := n.pending; {
	case n.dead && (n.pin == 0 || n.kept != 0 || isDir(n.typ)):
		a.Nlink = 0
	case c != nil && c.over:
		a.Nlink = 1 // the other one is in the orphan directory
	}
	return a
}

// GetAttr stats a node.
func (o *Overlay) GetAttr(id NodeID) (Attr, error) {
	o.tree.RLock()
	defer o.tree.RUnlock()
	n, err := o.nodes.get(id)
	if err != nil {
		return Attr{}, err
	}
	if o.reads != nil {
		o.noteRead(n, readset.Attributes)
	}
	return o.attr(n)
}

// attr stats a node; tree is held.
func (o *Overlay) attr(n *node) (Attr, error) {
	var a Attr
	var err error
	if n.pin > 0 {
		p := location{dirfd: int(n.pin) - 1}
		if a, err = p.stat(); err == nil {
			err = n.top.look(p, &a)
		}
	} else {
		a, err = n.top.backend().stat(n.top)
	}
	if err != nil {
		return Attr{}, o.report(err, n.top, "")
	}
	if len(n.below) > 0 && isReg(n.typ) {
		a.Blocks = o.hostBlocks(n, a)
		if t, ok := o.ups.times(n); ok {
			a.Atime, a.Mtime = t.Atime, t.Mtime
		}
	}
	return o.shape(n, a), nil
}

// Readlink gives a symlink's target.
func (o *Overlay) Readlink(id NodeID) (string, error) {
	o.tree.RLock()
	defer o.tree.RUnlock()
	n, err := o.nodes.get(id)
	if err != nil {
		return "", err
	}
	if !isLnk(n.typ) {
		return "", unix.EINVAL
	}
	if o.reads != nil {
		o.noteRead(n, readset.Content)
	}
	if n.pin > 0 {
		return location{dirfd: int(n.pin) - 1}.readlink()
	}
	s, err := n.top.backend().readlink(n.top)
	if err != nil {
		return "", o.report(err, n.top, "")
	}
	return s, nil
}
