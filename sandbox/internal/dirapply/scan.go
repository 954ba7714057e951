package dirapply

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/layers"
	"snapfs/sandbox/internal/threeway"
)

// stageStart begins the names of stages.
const stageStart = ".snapfs-apply-"

// ErrInterrupted says that an apply to the directory was interrupted, and is to be brought to an end first.
var ErrInterrupted = errors.New("something that was applied here is not complete")

// StageName is the name that the stage of a run has in its root.
func StageName(run string) string { return stageStart + run }

// Scan finds what leads from a tree to what the root has. What has the size, the times of modification and of change,
// and the other properties that the tree says is the same; of everything else contents are compared. What has moved is
// deleted and added. What is mounted in the root counts as unchanged.
func (r *Root) Scan(ctx context.Context, base threeway.Tree) ([]layers.Change, error) {
	if r.scanned.IsZero() {
		r.scanned = time.Now()
	}
	s := scan{ctx: ctx, r: r, base: base}
	return s.out, errors.Join(s.run(), ctx.Err())
}

type scan struct {
	ctx  context.Context
	r    *Root
	base threeway.Tree
	out  []layers.Change
}

func (s *scan) run() error {
	root, err := s.base.Lstat("")
	if err != nil {
		return err
	}
	st, err := s.r.lstat("")
	if err != nil {
		return err
	}
	if err := s.both("", root, st); err != nil {
		return err
	}
	for todo := []string{""}; len(todo) > 0; {
		dir := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		more, err := s.dir(dir)
		if err != nil {
			return err
		}
		todo = append(todo, more...)
	}
	slices.SortFunc(s.out, func(a, b layers.Change) int { return threeway.ComparePaths(a.Path, b.Path) })
	return nil
}

// dir compares what is in a directory, and gives those in it that are to be compared, too.
func (s *scan) dir(dir string) (more []string, err error) {
	if err := s.ctx.Err(); err != nil {
		return nil, err
	}
	there, err := s.r.list(dir)
	if err != nil {
		return nil, described(dir, err)
	}
	old, err := s.base.List(dir)
	if err != nil {
		return nil, err
	}
	for _, name := range old {
		path := threeway.Join(dir, name)
		was, err := s.base.Lstat(path)
		if err != nil {
			return nil, err
		}
		st := there[name]
		delete(there, name)
		switch {
		case was == nil:
			if st != nil {
				there[name] = st
			}
		case st == nil:
			err = s.gone(path, was)
		case st.mount != s.r.mount:
		case kind(st.Mode) != kind(was.Stat().Mode):
			s.add(layers.Retyped, path)
			if err = s.below(path, was); err == nil && isDir(st.Mode) {
				more = append(more, path)
			}
		default:
			if err = s.both(path, was, st); err == nil && isDir(st.Mode) {
				more = append(more, path)
			}
		}
		if err != nil {
			return nil, err
		}
	}
	for name, st := range there {
		path := threeway.Join(dir, name)
		if dir == "" && len(name) > len(stageStart) && name[:len(stageStart)] == stageStart {
			return nil, fmt.Errorf("%w: %s belongs to the apply %s, which was interrupted, and may hold files and directories "+
				"of yours: apply anything here with the home that it was made with, which completes it first; if that cannot "+
				"be, or it was dropped, move what is in it back to its place, and remove it only when it is empty",
				ErrInterrupted, name, name[len(stageStart):])
		}
		s.add(layers.Added, path)
		if isDir(st.Mode) && st.mount == s.r.mount {
			more = append(more, path)
		}
	}
	return more, nil
}

func (s *scan) add(kind layers.Kind, path string) {
	s.out = append(s.out, layers.Change{Kind: kind, Path: path})
}

// gone notes what is no more, with all that was in it.
func (s *scan) gone(path string, was threeway.File) error {
	s.add(layers.Deleted, path)
	return s.below(path, was)
}

// below notes that nothing in a directory is any more.
func (s *scan) below(path string, was threeway.File) error {
	if !isDir(was.Stat().Mode) {
		return nil
	}
	names, err := s.base.List(path)
	for _, name := range names {
		if err != nil {
			return err
		}
		var f threeway.File
		if f, err = s.base.Lstat(threeway.Join(path, name)); err == nil && f != nil {
			err = s.gone(threeway.Join(path, name), f)
		}
	}
	return err
}

// both compares two things of one type.
func (s *scan) both(path string, was threeway.File, st *stat) error {
	a := was.Stat()
	if a.Ctime == st.Ctime && a.Mtime == st.Mtime && (isDir(a.Mode) || a.Size == st.Size) && a.Mode == st.Mode &&
		a.UID == st.UID && a.GID == st.GID {
		return nil
	}
	same, err := alike(s.ctx, was, file{s.r, path, st}, true)
	if err == nil && !same {
		s.add(layers.Modified, path)
	}
	return err
}

// sameTime reports whether a file of the host has a time of a tree, as far as its file system can keep that: some have
// times of 100 ns, 1 µs, 10 ms, 1 s or 2 s.
func sameTime(want, has layers.Time) bool {
	if want == has {
		return true
	}
	for _, unit := range []uint32{1e2, 1e3, 1e7, 1e9} {
		if want.Sec == has.Sec && want.Nsec/unit*unit == has.Nsec {
			return true
		}
	}
	return want.Sec&^1 == has.Sec && has.Nsec == 0
}

// alike compares a thing of a tree with one of the host that has the same type, but for what is in directories and for
// their times; whole also compares owners, permissions and attributes.
func alike(ctx context.Context, x, y threeway.File, whole bool) (bool, error) {
	a, b := x.Stat(), y.Stat()
	if kind(a.Mode) != kind(b.Mode) || whole && (a.UID != b.UID || a.GID != b.GID) {
		return false, nil
	}
	if whole && kind(a.Mode) != unix.S_IFLNK && a.Mode != b.Mode || !isDir(a.Mode) && !sameTime(a.Mtime, b.Mtime) {
		return false, nil
	}
	if whole {
		xs, err := x.Xattrs()
		if err != nil {
			return false, err
		}
		ys, err := y.Xattrs()
		if err != nil || !maps.Equal(xs, ys) {
			return false, err
		}
	}
	same, err := threeway.Same(ctx, x, y)
	if errors.Is(err, ErrChanged) {
		return false, nil
	}
	return same, err
}

// SameContents reports whether two files are the same, but for owners, permissions and attributes; nil is none.
func SameContents(ctx context.Context, x, y threeway.File) (bool, error) {
	if x == nil || y == nil {
		return false, nil
	}
	return alike(ctx, x, y, false)
}
