package layers

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"

	"golang.org/x/sys/unix"
)

// This file finds what has moved. What is on one side only is a list of paths; directories in it are opened step by
// step, new ones first, because what has moved may lie in a new directory, and old ones, which most likely have moved
// themselves, only if they find no counterpart.

// pair matches what is on one side only, and says what is left.
func (d *differ) pair() error {
	for all := false; ; all = true {
		opened := false
		for _, s := range []*side{&d.old, &d.now} {
			grown, err := d.expand(s, all)
			if err != nil {
				return err
			}
			opened = opened || grown
		}
		grown, err := d.match()
		if err != nil {
			return err
		}
		if opened || grown || !all {
			continue
		}
		settled, err := d.settle()
		if err != nil {
			return err
		}
		if !settled {
			break
		}
	}
	for _, t := range d.old.only {
		if !t.used {
			d.add(Deleted, t, nil)
		}
	}
	for _, t := range d.now.only {
		if !t.used {
			d.add(Added, nil, t)
		}
	}
	return nil
}

// settle decides about conflicting entries that are still there when everything that can be matched has been.
func (d *differ) settle() (any bool, err error) {
	for i := 0; i < len(d.old.only); i++ {
		x := d.old.only[i]
		y := x.conflicting
		if y == nil {
			continue
		}
		any = true
		x.conflicting, y.conflicting = nil, nil
		switch {
		case !x.used && !y.used: // nothing has moved: the file was written anew
			d.old.use(x)
			d.now.use(y)
			if err := d.whole(x, y); err != nil {
				return false, err
			}
		case !x.used && !isDir(x.attr.Mode): // overwritten by what moved here
			d.old.use(x)
		}
	}
	return any, nil
}

// comparable reports whether an entry's inode number says that it is the same as one of the other stack.
func (d *differ) comparable(t *treeEntry) bool { return d.related || t.parts[0].ino >= movedIno }

// whole compares two entries of one type that count as one, and all that is in them.
func (d *differ) whole(x, y *treeEntry) error {
	if isDir(x.attr.Mode) {
		same, err := d.equal(x, y)
		if err == nil && !same {
			d.add(Modified, x, y)
		}
		return errors.Join(err, d.dirs(x, y))
	}
	return d.inPlace(x, y)
}

// expand opens directories of a side: those that lie in no layer of the other stack, or all.
func (d *differ) expand(s *side, all bool) (grown bool, err error) {
	other := &d.old
	if s == other {
		other = &d.now
	}
	for i := 0; i < len(s.only); i++ {
		t := s.only[i]
		if t.open || t.conflicting != nil || !isDir(t.attr.Mode) || t.used || !all && inStack(t.parts, other.o) {
			continue
		}
		t.open, grown = true, true
		if err := d.contents(s, t); err != nil {
			return false, err
		}
	}
	return grown, nil
}

// inStack reports whether one of the parts lies in a layer of the overlay.
func inStack(parts []*part, o *Overlay) bool {
	return slices.ContainsFunc(parts, func(p *part) bool {
		return slices.ContainsFunc(o.stack, func(l *layer) bool { return sameLower(p.layer, l) })
	})
}

// movedIno is the least inode number that is unique without the stacks being related: it has a base of Options.InoBase.
const movedIno = 1 << 40

// match pairs equal inode numbers, outer directories first, and compares the pairs, which may find more.
func (d *differ) match() (grown bool, err error) {
	type key struct {
		ino uint64
		typ uint32
	}
	of := func(t *treeEntry) key { return key{t.parts[0].ino, t.attr.Mode & unix.S_IFMT} }
	unsure := map[key]bool{} // inodes of one side share the number, so that it says nothing
	for _, s := range []*side{&d.old, &d.now} {
		first := map[key]*treeEntry{}
		for _, t := range s.only {
			k := of(t)
			if f := first[k]; f == nil {
				first[k] = t
			} else if !t.used && !f.used && !samePart(f.parts[0], t.parts[0]) {
				unsure[k] = true
			}
		}
	}
	old := d.old.only[:0:0]
	wanted := map[key]bool{}
	for _, x := range d.old.only {
		if d.comparable(x) && !x.used && !unsure[of(x)] {
			old, wanted[of(x)] = append(old, x), true
		}
	}
	now := d.now.only[:0:0]
	for _, t := range d.now.only {
		if wanted[of(t)] && !t.used {
			now = append(now, t)
		}
	}
	byPath := func(a, b *treeEntry) int { return comparePaths(d.paths.of(a), d.paths.of(b)) }
	slices.SortFunc(old, byPath)
	slices.SortFunc(now, byPath)
	index := map[key][]*treeEntry{}
	for _, t := range now {
		index[of(t)] = append(index[of(t)], t)
	}
	for _, x := range old {
		k := of(x)
		if x.used { // meanwhile
			continue
		}
		list := index[k]
		for len(list) > 0 && list[0].used {
			list = list[1:]
		}
		if len(list) == 0 {
			continue
		}
		y := list[0]
		index[k] = list[1:]
		d.old.use(x)
		d.now.use(y)
		grown = true
		d.old.taken[d.paths.of(x)], d.now.taken[d.paths.of(y)] = true, true
		d.add(Renamed, x, y)
		if err := d.whole(x, y); err != nil {
			return false, err
		}
	}
	return grown, nil
}

// equal reports whether two entries of one type are the same but for their path, and for what is in directories.
func (d *differ) equal(x, y *treeEntry) (bool, error) {
	if slices.EqualFunc(x.parts, y.parts, samePart) {
		return true, nil
	}
	a, b := x.attr, y.attr
	if a.Mode != b.Mode || a.UID != b.UID || a.GID != b.GID || a.Rdev != b.Rdev {
		return false, nil
	}
	if !isDir(a.Mode) && (a.Size != b.Size || a.Mtime != b.Mtime) {
		return false, nil
	}
	xs, err := publicXattrs(x.parts[0])
	if err != nil {
		return false, err
	}
	ys, err := publicXattrs(y.parts[0])
	if err != nil {
		return false, err
	}
	if len(xs) != len(ys) {
		return false, nil
	}
	for name, v := range xs {
		if w, ok := ys[name]; !ok || v != w {
			return false, nil
		}
	}
	switch {
	case isLnk(a.Mode):
		s, err := x.parts[0].backend().readlink(x.parts[0])
		if err != nil {
			return false, err
		}
		t, err := y.parts[0].backend().readlink(y.parts[0])
		return s == t, err
	case isReg(a.Mode):
		return d.sameData(x, y, int64(a.Size))
	}
	return true, nil
}

// sameData compares the contents of two files of one size.
func (d *differ) sameData(a, b *treeEntry, size int64) (bool, error) {
	return sameData(d.ctx, d.old.o, a, d.now.o, b, size)
}

// sameData compares the contents of two files of one size, each in a stack of its own.
func sameData(ctx context.Context, old *Overlay, a *treeEntry, now *Overlay, b *treeEntry, size int64) (bool, error) {
	xs, err := old.dataParts(a.parts, nil)
	if err != nil {
		return false, old.report(err, a.parts[0], "")
	}
	ys, err := now.dataParts(b.parts, nil)
	if err != nil {
		return false, now.report(err, b.parts[0], "")
	}
	if slices.EqualFunc(xs, ys, samePart) {
		return true, nil
	}
	x, y := xs[0], ys[0]
	f, err := old.openOnce(xs)
	if err != nil {
		return false, old.report(err, x, "")
	}
	defer func() { _ = f.Close() }() // read only
	g, err := now.openOnce(ys)
	if err != nil {
		return false, now.report(err, y, "")
	}
	defer func() { _ = g.Close() }() // read only
	p, q := make([]byte, min(size, 256<<10)), make([]byte, min(size, 256<<10))
	for off := int64(0); off < size; off += int64(len(p)) {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		n, err := f.ReadAt(p, off)
		if err != nil && !errors.Is(err, io.EOF) {
			return false, old.report(err, x, "")
		}
		m, err := g.ReadAt(q, off)
		if err != nil && !errors.Is(err, io.EOF) {
			return false, now.report(err, y, "")
		}
		if n != m || !bytes.Equal(p[:n], q[:m]) {
			return false, nil
		}
	}
	return true, nil
}
