package sandbox

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"snapfs/internal/gitpatch"
	"snapfs/internal/treefilter"
	"snapfs/layers"
)

// fileDiff turns the changes of a comparison, in which a renamed directory is one line, into changes of files as git
// tells them, and compares what is in the files.
//
// A rename is reported as one only where nothing was at the new path and nothing is at the old one any more, as git
// does: an order in which renames that cross can be repeated need not exist. All else is reported path by path.
type fileDiff struct {
	ctx context.Context
	cmp *layers.Comparison
	req DiffRequest

	filter  *treefilter.Filter     // nil: everything counts
	wanted  *treefilter.Lookup     // of filter
	given   map[string]layers.Kind // what the comparison says of new paths
	touched map[string]bool        // paths of files that may differ
	moved   map[string]string      // old paths of files, by the new ones
	left    map[string]bool        // old paths in moved
	out     []fileChange
	long    int // files whose paths are too long to be told
}

// fileChange is a change of a file, or of anything else, and what is to be compared.
type fileChange struct {
	Change
	old, now *layers.TreeFile // nil: there is none, or it is no file
	same     bool             // they hold the same
	hidden   bool             // it is left out of the patch
	binary   bool             // it has been read, and is binary
}

// oldPath is where it was.
func (c fileChange) oldPath() string {
	if c.OldPath != "" {
		return c.OldPath
	}
	return c.Path
}

func newFileDiff(ctx context.Context, c *layers.Comparison, r DiffRequest) (*fileDiff, error) {
	d := &fileDiff{
		ctx: ctx, cmp: c, req: r,
		given: map[string]layers.Kind{}, touched: map[string]bool{},
		moved: map[string]string{}, left: map[string]bool{},
	}
	return d, d.openFilter()
}

// run calls fn for the changes of directories, as they are, and for those of files, in the order in which a patch must
// have them.
func (d *fileDiff) run(changes []layers.Change, fn func(Change) error) error {
	isDir := func(mode uint32) bool { return mode&unix.S_IFMT == unix.S_IFDIR }
	for _, c := range changes {
		if old, met := d.given[c.Path]; c.Kind != layers.Deleted && (!met || old != layers.Renamed) {
			d.given[c.Path] = c.Kind
		}
	}
	for _, c := range changes {
		var err error
		if isDir(c.Mode) {
			err = d.dir(changeOf(c))
		}
		switch {
		case err != nil:
		case c.Kind == layers.Renamed && isDir(c.Mode):
			err = d.expand(c.OldPath, c.Path)
		case c.Kind == layers.Renamed, c.Kind == layers.Modified && c.OldPath != "" && !isDir(c.Mode):
			err = d.move(c.OldPath, c.Path)
		case c.Kind == layers.Retyped, !isDir(c.Mode):
			d.touch(c.Path, c.OldPath)
		}
		if err != nil {
			return err
		}
	}
	if err := d.files(); err != nil {
		return err
	}
	d.sort()
	return d.tell(fn)
}

// touch notes paths that may differ; "" is none.
func (d *fileDiff) touch(paths ...string) {
	for _, p := range paths {
		if p != "" {
			d.touched[p] = true
		}
	}
}

// move notes that a file has moved, if a patch can say so.
func (d *fileDiff) move(from, to string) error {
	d.touch(from, to)
	if d.req.Contents != nil {
		return nil
	}
	if _, met := d.moved[to]; met || d.left[from] || d.hides(from) != d.hides(to) {
		return nil
	}
	for _, path := range []string{from, to} {
		if wanted, err := d.wants(path, false); err != nil || !wanted {
			return err
		}
	}
	var side [4]gitpatch.File
	for i, at := range []struct {
		tree *layers.Tree
		path string
	}{{d.cmp.Old(), from}, {d.cmp.New(), to}, {d.cmp.Old(), to}, {d.cmp.New(), from}} {
		f, err := at.tree.Lstat(at.path)
		if err != nil {
			return err
		}
		side[i].Mode = gitMode(f)
	}
	was, is := side[0].Mode, side[1].Mode
	if was != 0 && is != 0 && side[2].Mode == 0 && side[3].Mode == 0 &&
		(was == gitpatch.Link) == (is == gitpatch.Link) {
		d.moved[to] = from
		d.left[from] = true
	}
	return nil
}

// expand notes the files of a directory that was renamed; what the comparison tells of by itself is left to that.
func (d *fileDiff) expand(from, to string) error {
	if err := d.ctx.Err(); err != nil {
		return err
	}
	names, err := d.cmp.New().List(to)
	if err != nil {
		return err
	}
	for _, name := range names {
		was, is := from+"/"+name, to+"/"+name
		if len(was) > layers.MaxPath || len(is) > layers.MaxPath {
			d.long++ // no program can name it
			continue
		}
		f, err := d.cmp.New().Lstat(is)
		if err != nil {
			return err
		}
		kind := d.given[is]
		switch {
		case f == nil: // just removed
		case kind == layers.Added, kind == layers.Renamed, kind == layers.Retyped:
			d.touch(was)
		case f.Mode&unix.S_IFMT == unix.S_IFDIR:
			err = d.expand(was, is)
		default:
			err = d.move(was, is)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// files compares every file that was noted.
func (d *fileDiff) files() error {
	for _, path := range slices.Sorted(maps.Keys(d.touched)) {
		if err := d.ctx.Err(); err != nil {
			return err
		}
		from, isMove := d.moved[path]
		if !isMove {
			from = path
		}
		var old, now *layers.TreeFile
		wanted, err := d.wants(path, false)
		if err != nil {
			return err
		}
		if wanted && (isMove || !d.left[path]) {
			if old, err = d.cmp.Old().Lstat(from); err != nil {
				return err
			}
			if now, err = d.cmp.New().Lstat(path); err != nil {
				return err
			}
		}
		if err := d.file(from, path, notDir(old), notDir(now)); err != nil {
			return err
		}
	}
	return nil
}

// notDir is the file, or nil if it is none or a directory.
func notDir(f *layers.TreeFile) *layers.TreeFile {
	if f != nil && f.Mode&unix.S_IFMT == unix.S_IFDIR {
		return nil
	}
	return f
}

// file tells what became of one file.
func (d *fileDiff) file(from, to string, old, now *layers.TreeFile) error {
	c := Change{Path: to}
	if from != to {
		c.OldPath = from
	}
	if old != nil {
		c.Mode, c.OldMode, c.OldSize = old.Mode, old.Mode, int64(old.Size)
	}
	if now != nil {
		c.Mode, c.Size = now.Mode, int64(now.Size)
	}
	kind := layers.Modified
	switch {
	case old == nil && now == nil:
		return nil
	case old == nil:
		kind = layers.Added
	case now == nil:
		kind = layers.Deleted
	case from != to:
		kind = layers.Renamed
	case old.Mode&unix.S_IFMT != now.Mode&unix.S_IFMT:
		kind = layers.Retyped
	}
	c.Kind = string(rune(kind))
	same := false
	if old != nil && now != nil {
		var err error
		if same, err = d.cmp.SameContents(d.ctx, old, now); err != nil {
			return err
		}
	}
	d.out = append(d.out, fileChange{Change: c, old: old, now: now, same: same})
	return nil
}

// sort puts the changes in the order of paths, but what a new file stands in the place of goes before it.
func (d *fileDiff) sort() {
	replaced := map[string]bool{} // new files that may stand where a directory was
	for _, c := range d.out {
		switch c.Kind {
		case string(rune(layers.Retyped)), string(rune(layers.Added)), string(rune(layers.Renamed)):
			replaced[c.Path] = true
		}
	}
	place := func(c Change) (at string, rank int) {
		if c.Kind == string(rune(layers.Deleted)) {
			for i := range c.Path {
				if c.Path[i] == '/' && replaced[c.Path[:i]] {
					return c.Path[:i], 0
				}
			}
		}
		return c.Path, 1
	}
	slices.SortStableFunc(d.out, func(a, b fileChange) int {
		x, i := place(a.Change)
		y, j := place(b.Change)
		return cmp.Or(strings.Compare(x, y), cmp.Compare(i, j), strings.Compare(a.Path, b.Path))
	})
}
