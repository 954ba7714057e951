package layers

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"slices"
	"strings"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
	"golang.org/x/sys/unix"
)

// This file finds twins: different inodes of one tree that report the same number. What this version stores has none,
// but earlier ones kept the numbers of images of other homes.

// Numbers yields the inode number of every inode of a layer but its root's. Of an image it reads one column, a
// directory it walks. Of what changes meanwhile it may miss some. Nothing follows an error.
func (l *Lower) Numbers(ctx context.Context) iter.Seq2[uint64, error] {
	if l.image == nil {
		return l.walkNumbers(ctx)
	}
	return func(yield func(uint64, error) bool) {
		for ino, err := range l.image.im.Numbers(ctx) {
			if (ino != rootIno || err != nil) && !yield(ino, err) {
				return
			}
		}
	}
}

// walkNumbers is Numbers for a directory.
func (l *Lower) walkNumbers(ctx context.Context) iter.Seq2[uint64, error] {
	return func(yield func(uint64, error) bool) {
		hosts := roaring64.New() // seen: a file may have several names
		top := &layer{lower: l}
		defer descriptors.purge(func(k fdKey) bool { return k.o.layer == top })
		for dirs := []*part{rootPart(top)}; len(dirs) > 0; {
			dir := dirs[len(dirs)-1]
			dirs = dirs[:len(dirs)-1]
			err := dir.backend().list(dir, func(e rawEntry) error {
				if e.whiteout || !hosts.CheckedAdd(e.id) {
					return nil
				}
				if e.typ == unix.S_IFDIR {
					dirs = append(dirs, &part{layer: top, parent: dir, name: e.name, ino: e.ino})
				}
				if !yield(e.ino, nil) {
					return errStop
				}
				return nil
			})
			descriptors.drop(dir)
			switch {
			case errors.Is(err, errStop):
				return
			case err != nil && !vanished(err):
				yield(0, err)
				return
			case ctx.Err() != nil:
				yield(0, ctx.Err())
				return
			}
		}
	}
}

// vanished reports whether an error says that what was read has just been removed.
func vanished(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESTALE) || errors.Is(err, unix.ENOTDIR)
}

// Unexplained gives those numbers of a set that the topmost layer of a stack has for something of which it cannot be
// told from its place that it is the copy of what has the number further down. Most that were given other names are
// among them. It takes time in proportion to the topmost layer.
func Unexplained(ctx context.Context, stack []*Lower, of *roaring64.Bitmap) (*roaring64.Bitmap, error) {
	v, err := openView(stack)
	if err != nil {
		return nil, err
	}
	defer func() { _ = v.Close() }() // it cannot fail
	o := v.o
	open := roaring64.New()
	for dirs := []*treeEntry{{parts: o.root.parts()}}; len(dirs) > 0; {
		dir := dirs[len(dirs)-1]
		dirs = dirs[:len(dirs)-1]
		top := dir.parts[0]
		err := top.backend().list(top, func(e rawEntry) error {
			if e.whiteout || e.typ != unix.S_IFDIR && !of.Contains(e.ino) {
				return nil
			}
			at, err := o.treeEntry(dir, strings.Clone(e.name))
			if err != nil || at == nil || at.parts[0].layer != top.layer {
				return err
			}
			if of.Contains(at.attr.Ino) && !open.Contains(at.attr.Ino) {
				known, err := o.explained(dir, at)
				if err != nil {
					return err
				}
				if !known {
					open.Add(at.attr.Ino)
				}
			}
			if isDir(at.attr.Mode) {
				dirs = append(dirs, at)
			}
			return nil
		})
		if err != nil && !vanished(err) {
			return nil, err
		}
		descriptors.drop(top)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	return open, nil
}

// explained reports whether what the topmost layer has in a directory is a copy of what has its number below: a part of
// it, or the only name of what it hides.
func (o *Overlay) explained(dir, at *treeEntry) (bool, error) {
	if len(at.parts) > 1 {
		return slices.ContainsFunc(at.parts[1:], func(p *part) bool { return p.ino == at.attr.Ino }), nil
	}
	h, err := o.search(&node{top: dir.parts[0], below: dir.parts[1:]}, 1, at.name)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, errNoData) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return h.attr.Ino == at.attr.Ino && h.attr.Mode&unix.S_IFMT == at.attr.Mode&unix.S_IFMT && (isDir(h.attr.Mode) || h.attr.Nlink < 2), nil
}

// Twins are different inodes that report one number.
type Twins struct {
	Ino   uint64
	Paths []string // of all of them, hard links included, relative, raw bytes, in order
}

// TwinNumbers gives those numbers of a set that different inodes report in the tree that a stack shows.
func TwinNumbers(ctx context.Context, stack []*Lower, of *roaring64.Bitmap) (*roaring64.Bitmap, error) {
	v, err := openView(stack)
	if err != nil {
		return nil, err
	}
	defer func() { _ = v.Close() }() // it cannot fail
	return v.o.doubles(ctx, of)
}

// doubles gives the numbers of a set that more than one inode has.
func (o *Overlay) doubles(ctx context.Context, of *roaring64.Bitmap) (*roaring64.Bitmap, error) {
	first := map[uint64]layerInode{}
	double := roaring64.New()
	err := o.eachOf(ctx, of, func(at *treeEntry) {
		ino, id := at.attr.Ino, at.inode()
		if was, ok := first[ino]; !ok {
			first[ino] = id
		} else if was != id {
			double.Add(ino)
		}
	})
	return double, err
}

// FindTwins walks the tree that a stack shows and gives the twins among what has the numbers of a set: those of the
// least numbers, as long as they have no more than most paths, but one number with two at least; and how many numbers
// have any. The layers may be written to meanwhile.
func FindTwins(ctx context.Context, stack []*Lower, of *roaring64.Bitmap, most int) (found []Twins, all int, err error) {
	v, err := openView(stack)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = v.Close() }() // it cannot fail
	double, err := v.o.doubles(ctx, of)
	if err != nil || double.IsEmpty() {
		return nil, 0, err
	}
	all = int(double.GetCardinality())
	wanted := roaring64.New()
	for it := double.Iterator(); it.HasNext() && wanted.GetCardinality() < uint64(max(most, 1)); {
		wanted.Add(it.Next())
	}
	groups := map[uint64][]*treeEntry{}
	ids := map[uint64]map[layerInode]bool{}
	if err := v.o.eachOf(ctx, wanted, func(at *treeEntry) {
		ino, id := at.attr.Ino, at.inode()
		if ids[ino] == nil {
			ids[ino] = map[layerInode]bool{}
		}
		if len(groups[ino]) < most || !ids[ino][id] && len(ids[ino]) < 2 {
			ids[ino][id] = true
			groups[ino] = append(groups[ino], at)
		}
	}); err != nil {
		return nil, 0, err
	}
	names := 0
	for it := wanted.Iterator(); it.HasNext(); {
		ino := it.Next()
		paths, err := v.o.stillTwins(groups[ino])
		if err != nil {
			return nil, 0, err
		}
		if paths == nil {
			all--
			continue
		}
		if names += len(paths); names <= most || len(found) == 0 {
			found = append(found, Twins{ino, paths})
		}
	}
	return found, all, nil
}

// stillTwins gives the paths of entries of one number if they are more than one inode yet: a copy-up on the way makes
// one look like two.
func (o *Overlay) stillTwins(seen []*treeEntry) ([]string, error) {
	ids := map[layerInode]bool{}
	var paths []string
	for _, at := range seen {
		now, err := o.treeEntry(at.up, at.name)
		if err != nil && !vanished(err) {
			return nil, err
		}
		if err != nil || now == nil || now.attr.Ino != at.attr.Ino {
			continue
		}
		ids[now.inode()] = true
		for now.size > MaxPath {
			now = now.up // the directory above it, which can be told
		}
		paths = append(paths, now.path())
	}
	if len(ids) < 2 {
		return nil, nil
	}
	slices.Sort(paths)
	return paths, nil
}

// inode is what an entry is in its layer.
func (t *treeEntry) inode() layerInode { return layerInode{t.parts[0].layer, t.parts[0].id()} }

// eachOf calls fn for everything in a tree that has a number of a set. Directories are looked at in no order, one at a
// time.
func (o *Overlay) eachOf(ctx context.Context, of *roaring64.Bitmap, fn func(*treeEntry)) error {
	for dirs := []*treeEntry{{parts: o.root.parts()}}; len(dirs) > 0; {
		dir := dirs[len(dirs)-1]
		dirs = dirs[:len(dirs)-1]
		items, err := o.merge(dir.parts)
		if err != nil && !vanished(err) {
			return err
		}
		for _, it := range items {
			if it.typ != unix.S_IFDIR && !of.Contains(it.ino) {
				continue
			}
			at, err := o.treeEntry(dir, it.name)
			if err != nil && !vanished(err) {
				return err
			}
			if at == nil || err != nil {
				continue
			}
			if of.Contains(at.attr.Ino) {
				fn(at)
			}
			if isDir(at.attr.Mode) {
				dirs = append(dirs, at)
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}
