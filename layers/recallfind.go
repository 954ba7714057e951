package layers

import (
	"context"
	"errors"
	"strings"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
	"golang.org/x/sys/unix"

	"snapfs/internal/livestate"
)

// What a record is of is found by the names that it has, in the orphan directory, or below what covers it.

// find finds the inode of a node by its records, which are two at most, each with the directory that it names; nil if
// it is nowhere. tree is held.
func (l *live) find(records []livestate.Node, dirs [2]*node, orphan string, hint alias) (*recalled, error) {
	r := records[0]
	for _, loose := range []bool{false, true} {
		if loose && !isDir(r.Flags&flagType<<12) {
			break
		}
		for i, name := range records {
			if name.ID == 0 || i == 0 && r.Flags&flagDead != 0 || dirs[i] == nil || dirs[i].dead {
				continue
			}
			f, err := l.named(r, name.Name, dirs[i], hint, loose)
			if f != nil || err != nil {
				return f, err
			}
		}
		if orphan != "" && !loose {
			f, err := l.kept(r, records[1], orphan)
			if f != nil || err != nil {
				return f, err
			}
		}
	}
	if r.Flags&flagOther != 0 && !isDir(r.Flags&flagType<<12) {
		return l.elsewhere(r)
	}
	for i, name := range records {
		if dirs[i] == nil {
			continue
		}
		f, err := l.covered(r, name.Name, dirs[i])
		if f != nil || err != nil {
			return f, err
		}
	}
	return nil, nil
}

// is reports whether what was found has the type and the inode number of a record.
func (h *hit) is(r livestate.Node) bool {
	return h.attr.typ()>>12 == r.Flags&flagType && h.parts[0].ino == r.Inode
}

// stays reports whether what was found as a name of dir is a directory that a record may be of though it is another
// inode: a rollback changes what a directory is in its layer. It is none if something else that is known is that inode.
func (l *live) stays(r livestate.Node, dir *node, h *hit) bool {
	if !isDir(h.attr.Mode) || h.attr.typ()>>12 != r.Flags&flagType {
		return false
	}
	t := &l.o.nodes
	t.mu.Lock()
	defer t.mu.Unlock()
	return !l.knownLocked(NodeID(r.ID), dir, h.parts[0].name, h.parts[0].ino)
}

// knownLocked reports whether an inode number that was found as a name of dir is that of a node, or of a record that is
// not stale, other than id's. mu is held.
func (l *live) knownLocked(id NodeID, dir *node, name string, ino uint64) bool {
	t := &l.o.nodes
	for _, n := range []*node{t.m[NodeID(ino)], t.renumbered.numbers[ino], t.renumbered.names[alias{dir, name}]} {
		if n != nil && n.id != id && n.ino == ino {
			return true
		}
	}
	if l.past == nil {
		return false
	}
	for _, other := range append([]NodeID{NodeID(ino)}, l.past.other[ino]...) {
		if p, ok := l.past.of[other]; ok && other != id && !p.stale && l.nodes.Get(p.slot).Inode == ino {
			return true
		}
	}
	return false
}

// named finds what has a name; loose says that it may be another inode, see stays.
func (l *live) named(r livestate.Node, hash uint64, dir *node, hint alias, loose bool) (*recalled, error) {
	names := []string{strings.Clone(hint.name)} // the node keeps it, a look-up does not
	if hint.parent != dir || nameCookie(hint.name) != hash {
		items, err := l.o.itemsOf(dir)
		if err != nil {
			return nil, passing(err)
		}
		names = items.hashed(hash)
	}
	for _, name := range names {
		h, err := l.o.search(dir, 0, name)
		if err != nil {
			if err = passing(err); err != nil {
				return nil, err
			}
			continue
		}
		if h.is(r) || loose && l.stays(r, dir, &h) {
			return &recalled{parent: dir, name: h.parts[0].name, hit: h, loose: !h.is(r), pin: -1}, nil
		}
	}
	return nil, nil
}

// passing gives an error that may not come again; nil for one that says that there is nothing, or damage.
func passing(err error) error {
	var errno unix.Errno
	if errors.As(err, &errno) && errno != unix.ENOENT && errno != unix.ENOTDIR && errno != unix.ESTALE {
		return err
	}
	return nil
}

// hashed gives the names of a hash.
func (s dirItems) hashed(hash uint64) (names []string) {
	s.from(hash, func(it dirItem) bool { // a name may have the cookie after its hash, see spread
		own := nameCookie(it.name)
		if own == hash {
			names = append(names, it.name)
		}
		return own <= hash
	})
	return names
}

// covered finds what a layer below still has, and a whiteout hides.
func (l *live) covered(r livestate.Node, hash uint64, dir *node) (*recalled, error) {
	for i, d := range dir.parts() {
		var names []string
		err := d.backend().list(d, func(e rawEntry) error {
			if !e.whiteout && nameCookie(e.name) == hash {
				names = append(names, e.name)
			}
			return nil
		})
		if err != nil && passing(err) != nil {
			return nil, err
		}
		for _, name := range names {
			if shown, err := l.o.search(dir, 0, name); err == nil && shown.parts[0].ino == r.Inode {
				continue // it has its name: a rollback has brought it back, as another node
			}
			h, err := l.o.search(dir, i, name)
			if err == nil && h.parts[0].layer == d.layer && h.is(r) {
				return &recalled{parent: dir, name: name, hit: h, dead: true, pin: -1}, nil
			}
		}
	}
	return nil, nil
}

// kept finds what is in the orphan directory. next is a second record, if there is one.
func (l *live) kept(r, next livestate.Node, name string) (*recalled, error) {
	o, s := l.o, &l.o.orphans
	f, err := s.layer.lower.dir.examine(nameIn(s.root(), name))
	if err != nil {
		return nil, passing(err)
	}
	if f.attr.typ()>>12 != r.Flags&flagType {
		return nil, nil
	}
	if id, _, _ := parseOrphan(name); id == 0 && r.Flags&flagOrphan == 0 && (f.host == 0 || f.host != next.Name) {
		return nil, nil // it was not moved there
	}
	top := &part{layer: s.layer, parent: rootPart(s.layer), name: name, ino: r.Inode, host: f.host}
	top.ref.Store(f.ref)
	at := &recalled{dead: true, free: true, unnamed: r.Flags&flagUnnamed != 0, pin: -1}
	at.parts, at.attr, at.found = []*part{top}, f.attr, f
	if f.redirect == "" || !f.metacopy && !isDir(f.attr.Mode) {
		if f.metacopy {
			return nil, nil // nobody knows where its data is
		}
		return at, nil
	}
	after := l.origin(r)
	if f.redirect[0] != '/' || after == nil {
		if f.metacopy {
			return nil, nil
		}
		return at, nil
	}
	v := scan{hit: at.hit, incomplete: f.metacopy}
	if err := o.follow(&v, after, f.redirect); err != nil {
		return nil, passing(err)
	}
	if v.incomplete {
		return nil, nil
	}
	at.parts = v.parts
	return at, nil
}

// origin gives the layer below which the redirect of something in the orphan directory leads.
func (l *live) origin(r livestate.Node) *layer {
	stack := l.o.stack
	for i := 1; i < len(stack); i++ {
		if r.Flags&flagOrphan == 0 && i == l.topmost() || r.Flags&flagOrphan != 0 && nameCookie(stack[i].lower.key) == r.Name {
			return stack[i-1]
		}
	}
	return nil
}

// elsewhere finds a file that has lost the names by which it was known, but has others. It takes as long as the tree is
// large.
func (l *live) elsewhere(r livestate.Node) (*recalled, error) {
	var at *treeEntry
	ctx, enough := context.WithCancel(context.Background())
	defer enough()
	err := l.o.eachOf(ctx, roaring64.BitmapOf(r.Inode), func(e *treeEntry) {
		if at == nil && e.attr.typ()>>12 == r.Flags&flagType && e.attr.Nlink > 0 {
			at = e
			enough()
		}
	})
	if at == nil {
		return nil, err
	}
	var names []string
	for e := at; e.up != nil; e = e.up {
		names = append(names, e.name)
	}
	dir := l.o.root
	l.o.nodes.hold(dir)
	for i := len(names) - 1; ; i-- {
		h, err := l.o.search(dir, 0, names[i])
		switch {
		case err == nil && i == 0 && h.is(r):
			return &recalled{parent: dir, name: h.parts[0].name, hit: h, held: dir, pin: -1}, nil
		case err == nil && i > 0 && isDir(h.attr.Mode):
			next := l.o.nodes.enter(dir, h.parts[0].name, h)
			l.o.nodes.hold(next)
			l.o.discard(l.o.nodes.drop(next, 1, 0))
			l.o.discard(l.o.nodes.drop(dir, 0, 1))
			dir = next
			continue
		case err != nil:
			err = passing(err)
		}
		l.o.discard(l.o.nodes.drop(dir, 0, 1))
		return nil, err
	}
}
