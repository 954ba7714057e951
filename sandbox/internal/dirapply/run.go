package dirapply

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"snapfs/internal/failpoint"
	"snapfs/layers"
	"snapfs/sandbox/internal/threeway"
)

// Run carries out steps in a root.
type Run struct {
	Steps    []Step
	Old, New threeway.Tree // that the steps lead from and to
	Back     bool          // from New to Old
	// Resume says that another run may have done a part.
	Resume bool
	// Lenient leaves what is not as the steps say, in place of ending with ErrChanged.
	Lenient bool
	Name    string // of the stage; each set of steps has its own
	Stage   Stage  // as another run has told it to Made
	// Made is told of a stage that was made, before anything is in it. It may be nil.
	Made   func(Stage) error
	Points failpoint.Func
}

// Skip is something that a run has left out.
type Skip struct {
	Path, What string
	Err        error
}

// Result is what a run did.
type Result struct {
	Skips []Skip
	// Left are paths of what was not as the steps say.
	Left []string
}

// runner is one run.
type runner struct {
	Run
	moves
	ctx   context.Context
	r     *Root
	from  threeway.Tree
	goal  threeway.Tree
	stage int // descriptor
	unsynced
	made   map[int]bool
	links  []move // further names of what is there already
	dirs   map[string]bool
	wide   map[string]bool // directories that were given more permissions, by path
	result Result
}

// Run carries out steps. After an error, or when ctx ends, some of them are done: another run resumes or goes back.
func (r *Root) Run(ctx context.Context, o Run) (Result, error) {
	x := &runner{
		Run: o, ctx: ctx, r: r, from: o.Old, goal: o.New, stage: -1, moves: direct(o.Steps, o.Back),
		made: map[int]bool{}, dirs: map[string]bool{}, wide: map[string]bool{},
	}
	if o.Back {
		x.from, x.goal = o.New, o.Old
	}
	x.all = !r.ordered()
	err := x.run()
	if waited := x.unsynced.wait(); err == nil {
		err = waited
	}
	if x.stage >= 0 {
		_ = unix.Close(x.stage) // nothing is written
	}
	return x.result, err
}

func (x *runner) run() error {
	for _, phase := range []func() error{
		x.openStage, x.sweep, x.make, x.take, x.put, x.exchange, x.link, x.directories, x.leave,
	} {
		if err := errors.Join(phase(), x.ctx.Err()); err != nil {
			return err
		}
	}
	return nil
}

// left deals with something that is not as the steps say.
func (x *runner) left(path, why string) error {
	if !x.Lenient {
		return fmt.Errorf("%w: %q %s", ErrChanged, path, why)
	}
	x.result.Left = append(x.result.Left, path)
	return nil
}

func (x *runner) skip(path, what string, err error) {
	x.result.Skips = append(x.result.Skips, Skip{path, what, err})
}

// isSource reports whether what is at a path is still what the step starts with.
func (x *runner) isSource(m move, at string, st *stat) (bool, error) {
	if !x.Back && m.was.is(st, !x.Resume && m.kind != layers.Renamed && x.moved(m.src) == m.src) {
		return true, nil
	}
	if m.kind == layers.Renamed && (!x.Back || m.was.Ino == st.Ino) {
		return m.was.Ino == st.Ino && (x.Back || isDir(st.Mode)), nil // going back, it may have been exchanged
	}
	if m.kind == layers.Renamed && isDir(st.Mode) && x.r.numbered() {
		return false, nil
	}
	if other, ok := x.moves.from[m.src]; ok && m.kind == layers.Deleted && x.Back == (other.Ino == st.Ino) {
		return false, nil // it is what the step leads to
	}
	return x.like(x.from, m.src, at, st, !x.Resume && !x.Back)
}

// isGoal reports whether what is at the path to which a step leads is what it leads to.
func (x *runner) isGoal(m move, st *stat) (bool, error) {
	if other, ok := x.moves.from[m.dst]; ok && m.kind == layers.Added && x.Back != (other.Ino == st.Ino) {
		if !x.Back {
			return false, nil // it is what was there before
		}
		if was, err := x.like(x.from, m.dst, m.dst, st, false); was || err != nil {
			return false, err
		}
	}
	if m.kind == layers.Renamed && m.was.Ino == st.Ino || m.kind == layers.Modified && x.Back && m.was.is(st, true) {
		return true, nil
	}
	if m.kind == layers.Renamed && isDir(st.Mode) && x.r.numbered() {
		return false, nil // any directory is like another
	}
	ok, err := x.like(x.goal, m.dst, m.dst, st, m.kind == layers.Modified)
	if !ok && err == nil && m.kind == layers.Renamed && x.Back { // it is still to be exchanged
		ok, err = x.like(x.from, m.src, m.dst, st, false)
	}
	return ok, err
}

// like compares what is at a path of the root with a path of a tree.
func (x *runner) like(t threeway.Tree, path, at string, st *stat, whole bool) (bool, error) {
	f, err := t.Lstat(path)
	if f == nil || err != nil || kind(f.Stat().Mode) != kind(st.Mode) {
		return false, err
	}
	same, err := alike(x.ctx, f, file{x.r, at, st}, whole)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EACCES) {
		return false, nil
	}
	return same, err
}

// isPut reports whether what is at a path is what another step has put there.
func (x *runner) isPut(path string, st *stat) (bool, error) {
	if m, ok := x.putAt[path]; ok {
		return x.isGoal(m, st)
	}
	return false, nil
}

// take takes what is deleted or renamed.
func (x *runner) take() error {
	for _, m := range x.takes {
		if err := x.ctx.Err(); err != nil {
			return err
		}
		x.touches(m.src, false)
		st, err := x.r.lstat(m.src)
		if err != nil {
			return described(m.src, err)
		}
		if st == nil {
			if !x.Resume && !x.Back {
				err = x.left(m.src, "is gone")
			}
			if err != nil {
				return err
			}
			continue
		}
		ok, err := x.isSource(m, m.src, st)
		if err != nil {
			return err
		}
		if !ok {
			if x.Resume || x.Back {
				if ok, err = x.isPut(m.src, st); err != nil || ok {
					if err != nil {
						return err
					}
					continue
				}
			}
			if err := x.left(m.src, "has changed"); err != nil {
				return err
			}
			continue
		}
		if err := x.takeOne(m, st); err != nil {
			return err
		}
	}
	return nil
}

// takeOne takes one thing, which is at its place.
func (x *runner) takeOne(m move, st *stat) error {
	slot := slotOf('x', m.n)
	if m.kind == layers.Renamed {
		slot = slotOf('m', m.n)
	}
	if m.kind == layers.Deleted && isDir(st.Mode) {
		err := x.at(m.src, func(dir int, name string) error { return unix.Unlinkat(dir, name, unix.AT_REMOVEDIR) })
		x.Points.At("directory removed")
		if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) {
			return x.left(m.src, "has something new in it")
		}
		return described(m.src, err)
	}
	err := x.at(m.src, func(dir int, name string) error { return rename(dir, name, x.stage, slot) })
	if errors.Is(err, unix.EEXIST) || missing(err) { // it is in the stage already, or has just gone
		return x.left(m.src, "has changed")
	}
	if err != nil {
		return described(m.src, err)
	}
	x.Points.At("taken from its place")
	now, err := x.staged(slot)
	if err != nil {
		return err
	}
	if now == nil || !identityOf(st).is(now, false) {
		err := x.at(m.src, func(dir int, name string) error { return rename(x.stage, slot, dir, name) })
		if err != nil && now != nil {
			err = x.aside(slot, m.src)
		}
		return errors.Join(err, x.left(m.src, "has just changed"))
	}
	if m.kind == layers.Deleted {
		return x.unstage(slot)
	}
	return nil
}

// put puts what is new or renamed to its place.
func (x *runner) put() error {
	for _, m := range x.puts {
		if err := x.ctx.Err(); err != nil {
			return err
		}
		x.touches(m.dst, true)
		slot := slotOf('n', m.n)
		if m.kind == layers.Renamed {
			slot = slotOf('m', m.n)
		} else if !x.made[m.n] {
			continue
		}
		if err := x.putOne(m, slot); err != nil {
			return err
		}
	}
	return nil
}

func (x *runner) putOne(m move, slot string) error {
	waiting, err := x.staged(slot)
	if err != nil {
		return err
	}
	st, err := x.r.lstat(m.dst)
	if err != nil {
		return described(m.dst, err)
	}
	switch {
	case st != nil:
		ok, err := x.isGoal(m, st)
		if err != nil {
			return err
		}
		if ok && waiting != nil && m.kind == layers.Added && linked(waiting) {
			err := x.at(m.dst, func(dir int, name string) error { return unix.Renameat(x.stage, slot, dir, name) })
			return described(m.dst, err) // the same, and one file with its other names
		}
		if waiting != nil && (m.kind == layers.Added || ok && !isDir(st.Mode) && waiting.Ino == st.Ino) {
			err, waiting = x.unstage(slot), nil
		}
		if err != nil || ok && waiting == nil {
			return err
		}
		return x.inTheWay(m, slot, waiting != nil)
	case waiting == nil:
		if m.kind == layers.Added {
			return nil // it was skipped
		}
		return x.left(m.dst, "is gone")
	}
	err = x.at(m.dst, func(dir int, name string) error { return rename(x.stage, slot, dir, name) })
	x.Points.At("put to its place")
	if errors.Is(err, unix.EEXIST) || missing(err) {
		return x.inTheWay(m, slot, true)
	}
	return described(m.dst, err)
}

// exchange replaces modified files.
func (x *runner) exchange() error {
	for _, m := range x.sets {
		if err := x.ctx.Err(); err != nil {
			return err
		}
		x.touches(m.dst, true)
		if !x.made[m.n] {
			continue
		}
		if err := x.exchangeOne(m, slotOf('n', m.n)); err != nil {
			return err
		}
	}
	return nil
}

func (x *runner) exchangeOne(m move, slot string) error {
	st, err := x.r.lstat(m.dst)
	if err != nil {
		return described(m.dst, err)
	}
	ok := false
	if st != nil && (x.Resume || x.Back) { // what was moved may never have been exchanged
		if ok, err = x.isGoal(m, st); ok && !x.several(m) || err != nil {
			return errors.Join(err, x.unstage(slot))
		}
	}
	if st != nil && !ok {
		if ok, err = x.isSource(m, m.dst, st); err != nil {
			return err
		}
	}
	if !ok {
		return errors.Join(x.unstage(slot), x.left(m.dst, "has changed"))
	}
	swap := func(dir int, name string) error {
		err := unix.Renameat2(x.stage, slot, dir, name, unix.RENAME_EXCHANGE)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) { // the file system cannot
			err = unix.Renameat(x.stage, slot, dir, name)
		}
		return moveError(err)
	}
	if err := x.at(m.dst, swap); missing(err) {
		return errors.Join(x.unstage(slot), x.left(m.dst, "has just changed"))
	} else if err != nil {
		return described(m.dst, err)
	}
	x.Points.At("exchanged")
	was, err := x.staged(slot)
	if was == nil || err != nil {
		return err
	}
	if !identityOf(st).is(was, false) {
		if x.at(m.dst, swap) == nil {
			err = x.unstage(slot)
		} else {
			err = x.aside(slot, m.dst)
		}
		return errors.Join(err, x.left(m.dst, "has just changed"))
	}
	return x.unstage(slot)
}

// touches notes a directory whose times change because of what is done at a path, which is one of the goal or not.
func (x *runner) touches(path string, goal bool) {
	dir, _ := threeway.Split(path)
	if !goal {
		dir = x.moved(dir)
	}
	x.dirs[dir] = true
}

// at calls fn with the directory in which a path ends. If its permissions are in the way, the owner gets more, until the
// directories get what they are to have.
func (x *runner) at(path string, fn func(dir int, name string) error) error {
	err := x.r.in(path, fn)
	if !errors.Is(err, unix.EACCES) {
		return err
	}
	dir, _ := threeway.Split(path)
	widen := x.r.do(func() error {
		fd, err := x.r.openDir(dir, unix.O_PATH)
		if err != nil {
			return err
		}
		defer unix.Close(fd) //nolint:errcheck // O_PATH
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return err
		}
		return unix.Chmod(fdPath(fd), st.Mode&0o7777|0o700)
	})
	if widen != nil {
		return err
	}
	x.wide[dir] = true
	return x.r.in(path, fn)
}

// linked reports whether something is a file with several names.
func linked(st *stat) bool { return st.Nlink > 1 && !isDir(st.Mode) }

// several reports whether a step leads to a file with several names.
func (x *runner) several(m move) bool {
	f, err := x.goal.Lstat(m.dst)
	return err == nil && f != nil && f.Stat().Nlink > 1 && !isDir(f.Stat().Mode)
}

// rename moves something to where nothing is.
func rename(fromDir int, from string, toDir int, to string) error {
	err := unix.Renameat2(fromDir, from, toDir, to, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) { // the file system cannot
		var st unix.Stat_t
		if unix.Fstatat(toDir, to, &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
			return unix.EEXIST
		}
		err = unix.Renameat(fromDir, from, toDir, to)
	}
	return moveError(err)
}
