package layers

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"path"
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
	OldPath string // of a rename
	Mode    uint32 // new mode, or the old one if deleted
	Size    int64
}

// Diff compares two stacks (topmost first), skipping what they share, in time proportional to what differs. The
// changes come in order of paths. What has moved is found by its inode number: a renamed directory is one line, plus
// what changed in it. The modification time of a directory alone is no change.
func Diff(ctx context.Context, a, b []Lower) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		changes, err := diff(ctx, a, b)
		if err != nil {
			yield(Change{}, err)
			return
		}
		for _, c := range changes {
			if !yield(c, nil) {
				return
			}
		}
	}
}

func diff(ctx context.Context, a, b []Lower) ([]Change, error) {
	old, err := openView(a)
	if err != nil {
		return nil, err
	}
	defer func() { _ = old.Close() }() // it cannot fail
	now, err := openView(b)
	if err != nil {
		return nil, err
	}
	defer func() { _ = now.Close() }() // it cannot fail
	d := &differ{ctx: ctx, old: side{o: old.o}, now: side{o: now.o}}
	for _, x := range old.o.stack {
		for _, y := range now.o.stack {
			if sameLower(x, y) {
				d.related = true
			}
		}
	}
	ra, rb := old.o.root, now.o.root
	if err := d.dirs(&thing{parts: ra.parts()}, &thing{parts: rb.parts()}); err != nil {
		return nil, err
	}
	if err := d.pair(); err != nil {
		return nil, err
	}
	slices.SortStableFunc(d.out, func(x, y Change) int { return cmp.Compare(x.Path, y.Path) })
	return d.out, nil
}

// sameLower tells whether two layers of different stacks are one.
func sameLower(a, b *layer) bool {
	return a.lower == b.lower || a.lower.key != "" && a.lower.key == b.lower.key
}

func samePart(a, b *obj) bool { return sameLower(a.layer, b.layer) && a.ino == b.ino }

// thing is one path of one side.
type thing struct {
	path  string
	parts []*obj
	attr  Attr
	under *thing // directory it was found in by expansion; nil for what a comparison found
	rival *thing // another inode of the same type, at the same path on the other side: either may have moved
	used  bool   // moved, or in a directory that moved
	open  bool   // a directory whose contents are in the list too
}

// consumed tells whether the thing, or a directory above it, has found its counterpart.
func (t *thing) consumed() bool {
	for ; t != nil; t = t.under {
		if t.used {
			return true
		}
	}
	return false
}

// side is one of the two stacks, with what only it has.
type side struct {
	o    *Overlay
	only []*thing
}

func (s *side) look(dir *thing, name string) (*thing, error) {
	p := &node{top: dir.parts[0], below: dir.parts[1:]}
	h, err := s.o.search(p, 0, name)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, s.o.report(err, p.top, name)
	}
	return &thing{path: path.Join(dir.path, name), parts: h.parts, attr: h.attr}, nil
}

// differ is one comparison.
type differ struct {
	ctx      context.Context
	old, now side
	related  bool // the stacks share a layer, so that inode numbers mean the same
	out      []Change
}

func (d *differ) say(kind Kind, t *thing, oldPath string) {
	d.out = append(d.out, Change{Kind: kind, Path: t.path, OldPath: oldPath, Mode: t.attr.Mode, Size: int64(t.attr.Size)})
}

// dirs compares what is in two directories. Names that only shared parts have cannot differ.
func (d *differ) dirs(a, b *thing) error {
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
		x, err := d.old.look(a, name)
		if err != nil {
			return err
		}
		y, err := d.now.look(b, name)
		if err != nil {
			return err
		}
		if err := d.compare(x, y); err != nil {
			return err
		}
	}
	return nil
}

// compare compares what two paths lead to; nil is nothing.
func (d *differ) compare(x, y *thing) error {
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
		d.say(Retyped, y, "")
		if isDir(x.attr.Mode) {
			return d.contents(&d.old, x)
		}
		if isDir(y.attr.Mode) {
			return d.contents(&d.now, y)
		}
		return nil
	}
	if x.parts[0].ino != y.parts[0].ino && d.comparable(x) && d.comparable(y) {
		x.rival, y.rival = y, x
		d.old.only = append(d.old.only, x)
		d.now.only = append(d.now.only, y)
		return nil
	}
	return d.inPlace(x, y)
}

// inPlace compares two things of one type that count as one.
func (d *differ) inPlace(x, y *thing) error {
	same, err := d.equal(x, y)
	if err != nil {
		return err
	}
	if !same {
		d.say(Modified, y, "")
	}
	if isDir(x.attr.Mode) {
		return d.dirs(x, y)
	}
	return nil
}

// contents notes everything directly in a directory as being on one side only.
func (d *differ) contents(s *side, dir *thing) error {
	items, err := s.o.merge(dir.parts)
	if err != nil {
		return err
	}
	for _, it := range items {
		t, err := s.look(dir, it.name)
		if err != nil {
			return err
		}
		if t != nil {
			t.under = dir
			s.only = append(s.only, t)
		}
	}
	return d.ctx.Err()
}
