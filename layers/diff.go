package layers

import (
	"context"
	"errors"
	"iter"
	"slices"

	"golang.org/x/sys/unix"
)

// Kind of change in a diff.
type Kind byte

// A added, M contents or metadata modified, D deleted, T type changed, R renamed.
const (
	Added    Kind = 'A'
	Modified Kind = 'M'
	Deleted  Kind = 'D'
	Retyped  Kind = 'T'
	Renamed  Kind = 'R'
)

// Change is one line of a diff, in path order.
type Change struct {
	Kind    Kind
	Path    string // relative, slash-separated, raw bytes; in the old tree if deleted, else in the new one
	OldPath string // of a rename, and of what changed in a directory that was renamed
	Mode    uint32 // new mode, or the old one if deleted
	Size    int64  // new size; 0 if deleted, and of directories
	OldMode uint32 // 0 if added
	OldSize int64  // old size; 0 if added, and of directories
}

// errStop ends a listing whose caller has seen enough.
var errStop = errors.New("stop")

// Comparison is two stacks side by side, for who wants to see more of them than the list of changes. It borrows the
// layers, which must stay open until Close. Not safe for concurrent use.
type Comparison struct {
	old, now       *view
	oldTree, newer *Tree
}

// Compare puts two stacks (topmost first) side by side.
func Compare(a, b []*Lower) (*Comparison, error) {
	old, err := openView(a)
	if err != nil {
		return nil, err
	}
	now, err := openView(b)
	if err != nil {
		_ = old.Close() // it cannot fail
		return nil, err
	}
	return &Comparison{old: old, now: now, oldTree: newTree(old.o), newer: newTree(now.o)}, nil
}

// Close gives up what the walk has left in caches.
func (c *Comparison) Close() {
	_ = c.old.Close() // neither can fail
	_ = c.now.Close()
}

// Changes yields what leads from the old stack to the new one, skipping what they share, in time proportional to what
// differs. The changes come in order of paths. What has moved is found by its inode number: a renamed directory is one
// change, plus what changed in it. The modification time of a directory alone is no change. What is so deep that its
// path is longer than MaxPath is told as a change of the last directory above it whose path is not. Nothing follows an
// error.
func (c *Comparison) Changes(ctx context.Context) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		d, err := c.compare(ctx)
		if err == nil {
			err = d.emit(func(c Change) error {
				if !yield(c, nil) {
					return errStop
				}
				return nil
			})
		}
		if err != nil && !errors.Is(err, errStop) {
			yield(Change{}, err)
		}
	}
}

// compare finds all changes.
func (c *Comparison) compare(ctx context.Context) (*differ, error) {
	old, now := c.old, c.now
	d := &differ{ctx: ctx, paths: paths{}}
	d.old = side{o: old.o, taken: map[*pathNode]bool{}}
	d.now = side{o: now.o, taken: map[*pathNode]bool{}}
	for _, x := range old.o.stack {
		for _, y := range now.o.stack {
			if sameLower(x, y) {
				d.related = true
			}
		}
	}
	ra, rb := old.o.root, now.o.root
	if err := d.dirs(&treeEntry{parts: ra.parts()}, &treeEntry{parts: rb.parts()}); err != nil {
		return nil, err
	}
	return d, d.pair()
}

// sameLower reports whether two layers of different stacks are one.
func sameLower(a, b *layer) bool {
	return a.lower == b.lower || a.lower.key != "" && a.lower.key == b.lower.key
}

// samePart reports whether parts of different stacks are one inode of one layer. It may miss names of a hard-linked
// file.
func samePart(a, b *part) bool {
	if !sameLower(a.layer, b.layer) {
		return false
	}
	if x, y := a.id(), b.id(); a.layer.lower == b.layer.lower && x.n != 0 && y.n != 0 && x.image == y.image {
		return x == y
	}
	for a != nil && b != nil && a.name == b.name {
		a, b = a.parent, b.parent
	}
	return a == nil && b == nil
}

// treeEntry is what one path of one tree leads to.
type treeEntry struct {
	up          *treeEntry // directory that it is in; nil: the root
	name        string
	size        int // of the path
	parts       []*part
	attr        Attr
	listable    *treeEntry // the last on the way to it, itself included, whose path can be told; nil: the root
	at          *pathNode
	children    [2]int     // where in side.only its contents are, if it is open
	conflicting *treeEntry // another inode of the same type, at the same path on the other side: either may have moved
	used        bool       // it, or a directory above it, has found its counterpart
	open        bool       // a directory whose contents are in the list too
	deep        bool       // in differ.deep
}

// side is one of the two stacks, with what only it has.
type side struct {
	o     *Overlay
	only  []*treeEntry
	taken map[*pathNode]bool // where what has moved was, or is: a later look at the directory above must not find it again
}

// use marks what has found its counterpart, and all that is in it. Directories that are marked are not opened any more.
func (s *side) use(t *treeEntry) {
	for todo := []*treeEntry{t}; len(todo) > 0; {
		t := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if !t.used {
			t.used = true
			todo = append(todo, s.only[t.children[0]:t.children[1]]...)
		}
	}
}

func (s *side) look(dir *treeEntry, name string) (*treeEntry, error) { return s.o.treeEntry(dir, name) }

// treeEntry looks a name up in a directory; nil if it is not there.
func (o *Overlay) treeEntry(dir *treeEntry, name string) (*treeEntry, error) {
	p := &node{top: dir.parts[0], below: dir.parts[1:]}
	h, err := o.search(p, 0, name)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, o.report(err, p.top, name)
	}
	return dir.child(name, h), nil
}

// differ is one comparison.
type differ struct {
	ctx      context.Context
	old, now side
	related  bool            // the stacks share a layer, so that inode numbers mean the same
	todo     [][2]*treeEntry // directories still to be compared
	out      []finding
	paths    paths
	deep     []*treeEntry // directories below which something changed that has no path to tell
}

// contentSize is the size of what has contents: that of a directory says nothing about it.
func (a *Attr) contentSize() int64 {
	if isDir(a.Mode) {
		return 0
	}
	return int64(a.Size)
}

// dirs compares two directories and all that is in them.
func (d *differ) dirs(a, b *treeEntry) error {
	d.todo = append(d.todo, [2]*treeEntry{a, b})
	for len(d.todo) > 0 {
		last := d.todo[len(d.todo)-1]
		d.todo = d.todo[:len(d.todo)-1]
		if err := d.names(last[0], last[1]); err != nil {
			return err
		}
	}
	return nil
}

// names compares what is in two directories. Names that only shared parts have cannot differ.
func (d *differ) names(a, b *treeEntry) error {
	if err := d.ctx.Err(); err != nil {
		return err
	}
	pa, pb := a.parts, b.parts
	for len(pa) > 0 && len(pb) > 0 && samePart(pa[len(pa)-1], pb[len(pb)-1]) {
		pa, pb = pa[:len(pa)-1], pb[:len(pb)-1]
	}
	names := map[string]bool{}
	for _, part := range slices.Concat(pa, pb) {
		err := part.backend().list(part, func(e rawEntry) error {
			names[e.name] = true
			return nil
		})
		if err != nil {
			return d.now.o.report(err, part, "")
		}
	}
	for name := range names {
		x, err := d.left(&d.old, a, name)
		if err != nil {
			return err
		}
		y, err := d.left(&d.now, b, name)
		if err != nil {
			return err
		}
		if err := d.compare(x, y); err != nil {
			return err
		}
	}
	return nil
}

// left looks a name up in a directory; nil if it is not there, or has found its counterpart.
func (d *differ) left(s *side, dir *treeEntry, name string) (*treeEntry, error) {
	t, err := s.look(dir, name)
	if t == nil || err != nil || len(s.taken) == 0 || !s.taken[d.paths.of(t)] {
		return t, err
	}
	return nil, nil
}

// compare compares what two paths lead to; nil is nothing.
func (d *differ) compare(x, y *treeEntry) error {
	switch {
	case x == nil && y == nil:
		return nil
	case x == nil:
		d.now.only = append(d.now.only, y)
		return nil
	case y == nil:
		d.old.only = append(d.old.only, x)
		return nil
	case x.attr.Mode&unix.S_IFMT != y.attr.Mode&unix.S_IFMT:
		d.add(Retyped, x, y)
		if isDir(x.attr.Mode) {
			return d.contents(&d.old, x)
		}
		if isDir(y.attr.Mode) {
			return d.contents(&d.now, y)
		}
		return nil
	}
	if x.parts[0].ino != y.parts[0].ino && d.comparable(x) && d.comparable(y) {
		x.conflicting, y.conflicting = y, x
		d.old.only = append(d.old.only, x)
		d.now.only = append(d.now.only, y)
		return nil
	}
	return d.inPlace(x, y)
}

// inPlace compares two entries of one type that count as one. What is in directories is still to be compared.
func (d *differ) inPlace(x, y *treeEntry) error {
	same, err := d.equal(x, y)
	if err != nil {
		return err
	}
	if !same {
		d.add(Modified, x, y)
	}
	if isDir(x.attr.Mode) {
		d.todo = append(d.todo, [2]*treeEntry{x, y})
	}
	return nil
}

// contents notes everything directly in a directory as being on one side only.
func (d *differ) contents(s *side, dir *treeEntry) error {
	items, err := s.o.merge(dir.parts)
	if err != nil {
		return err
	}
	dir.children = [2]int{len(s.only), len(s.only)}
	for _, it := range items {
		t, err := s.look(dir, it.name)
		if err != nil {
			return err
		}
		if t != nil {
			s.only = append(s.only, t)
			dir.children[1] = len(s.only)
		}
	}
	return d.ctx.Err()
}
