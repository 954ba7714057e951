package dirapply

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"snapfs/internal/sparse"
	"snapfs/layers"
	"snapfs/sandbox/internal/threeway"
)

// slotOf names something in the stage: what is new ('n'), is being removed ('x') or moved ('m') by the step of a number.
func slotOf(what byte, n int) string { return string(what) + strconv.Itoa(n) }

// staged looks at something in the stage; nil if it is not there.
func (x *runner) staged(slot string) (st *stat, err error) {
	err = x.r.do(func() error {
		sx, err := statxAt(x.stage, slot)
		if err == nil {
			st = statOf(&sx)
		}
		return err
	})
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	return st, err
}

// unstage removes something from the stage.
func (x *runner) unstage(slot string) error {
	err := x.r.do(func() error {
		err := unix.Unlinkat(x.stage, slot, 0)
		if errors.Is(err, unix.EISDIR) {
			err = unix.Unlinkat(x.stage, slot, unix.AT_REMOVEDIR)
		}
		return err
	})
	x.Points.At("removed from the stage")
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// sweep clears the stage of what another run has left, but for what is being moved. What that had taken and not looked
// at yet goes back if it was not what the step said.
func (x *runner) sweep() error {
	if !x.Resume && !x.Back {
		return nil
	}
	for i, s := range x.Steps {
		if err := x.ctx.Err(); err != nil {
			return err
		}
		for _, what := range []byte{'x', 'n'} {
			slot := slotOf(what, i)
			st, err := x.staged(slot)
			if st == nil || err != nil {
				if err != nil {
					return err
				}
				continue
			}
			if err := x.sweepOne(s, what, slot, st); err != nil {
				return err
			}
		}
	}
	return nil
}

func (x *runner) sweepOne(s Step, what byte, slot string, st *stat) error {
	at := string(s.Old)
	known := s.Was.is(st, false)
	if !known && what == 'n' && s.Kind == layers.Modified {
		// Either it is new, perhaps in part, or what was exchanged with that.
		at = string(s.New)
		there, err := x.r.lstat(at)
		if err != nil {
			return described(at, err)
		}
		if there == nil {
			return x.unstage(slot)
		}
		known = s.Was.is(there, false) // what was there still is
	} else if what == 'n' {
		known = true
	}
	if known {
		return x.unstage(slot)
	}
	for _, side := range []struct {
		tree threeway.Tree
		path Path
	}{{x.Old, s.Old}, {x.New, s.New}} {
		if side.path == "" {
			continue
		}
		same, err := x.like(side.tree, string(side.path), threeway.Join(stageStart+x.Name, slot), st, false)
		if err != nil {
			return err
		}
		if same {
			return x.unstage(slot)
		}
	}
	if what == 'x' {
		if s.Kind == layers.Added {
			at = string(s.New)
		}
		err := x.at(at, func(dir int, name string) error { return rename(x.stage, slot, dir, name) })
		if !errors.Is(err, unix.EEXIST) && !missing(err) {
			return described(at, err)
		}
		return errors.Join(x.aside(slot, at), x.left(at, "has changed"))
	}
	return x.unstage(slot) // it was not complete
}

// make makes what is new in the stage, and writes it to the disk.
func (x *runner) make() error {
	first := map[uint64]string{} // slots of files with several names, by number in the goal
	var alone []move             // of these, the first ones
	for _, m := range slices.Concat(x.puts, x.sets) {
		if err := x.ctx.Err(); err != nil {
			return err
		}
		if m.kind == layers.Renamed {
			continue
		}
		f, err := x.goal.Lstat(m.dst)
		if err != nil {
			return err
		}
		if f == nil {
			return fmt.Errorf("%q: it is not in the tree", m.dst)
		}
		a := f.Stat()
		if m.kind == layers.Modified && isDir(a.Mode) || m.kind == layers.Added && isDir(a.Mode) {
			x.dirs[m.dst] = true
		}
		if m.kind == layers.Modified && isDir(a.Mode) {
			continue
		}
		if done, err := x.isDone(m); done || err != nil {
			if err != nil {
				return err
			}
			continue
		}
		slot := slotOf('n', m.n)
		if !isDir(a.Mode) && a.Nlink > 1 {
			if other, ok := first[a.Ino]; ok {
				if x.r.do(func() error { return unix.Linkat(x.stage, other, x.stage, slot, 0) }) == nil {
					x.made[m.n] = true
					x.Points.At("linked in the stage")
					continue
				}
			}
			first[a.Ino] = slot
			if m.kind == layers.Added {
				alone = append(alone, m)
			}
		}
		if err := x.makeOne(m.dst, slot, f); err != nil {
			return err
		}
		x.made[m.n] = true
	}
	if err := x.further(alone); err != nil {
		return err
	}
	if len(x.made) == 0 {
		return nil
	}
	if err := x.unsynced.wait(); err != nil {
		return err
	}
	err := unix.Fchmod(x.stage, stageMode) // the last change of metadata
	if err == nil {
		err = x.sync(x.stage)
	}
	x.Points.At("stage synced")
	return err
}

// isDone reports whether another run has done something.
func (x *runner) isDone(m move) (bool, error) {
	if !x.Resume && !x.Back {
		return false, nil
	}
	st, err := x.r.lstat(m.dst)
	if st == nil || err != nil {
		return false, described(m.dst, err)
	}
	if f, err := x.goal.Lstat(m.dst); err != nil || f != nil && !isDir(st.Mode) && f.Stat().Nlink != st.Nlink {
		return false, err // a name is missing, or it is a file apart
	}
	return x.isGoal(m, st)
}

// makeOne makes one thing in the stage.
func (x *runner) makeOne(path, slot string, f threeway.File) error {
	a := f.Stat()
	target := ""
	if kind(a.Mode) == unix.S_IFLNK {
		var err error
		if target, err = f.Target(); err != nil {
			return err
		}
	}
	var fd int
	err := x.r.do(func() (err error) {
		switch kind(a.Mode) {
		case unix.S_IFDIR:
			return unix.Mkdirat(x.stage, slot, 0o700)
		case unix.S_IFLNK:
			return unix.Symlinkat(target, x.stage, slot)
		case unix.S_IFREG:
			fd, err = unix.Openat(x.stage, slot, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
			return err
		}
		return unix.Mknodat(x.stage, slot, kind(a.Mode)|0o600, int(a.Rdev))
	})
	x.Points.At("made in the stage")
	if denied(err) && !isReg(a.Mode) && !isDir(a.Mode) {
		x.skip(path, "device", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("%q: %w", path, err)
	}
	if isReg(a.Mode) {
		h := os.NewFile(uintptr(fd), slot)
		err := f.CopyTo(x.ctx, sparse.NewWriter(h))
		if err == nil {
			err = h.Truncate(int64(a.Size))
		}
		if err != nil {
			return fmt.Errorf("%q: %w", path, errors.Join(err, h.Close()))
		}
		if err := x.unsynced.add(h); err != nil {
			return fmt.Errorf("%q: %w", path, err)
		}
		x.Points.At("written in the stage")
	}
	if isDir(a.Mode) {
		return nil // it gets its attributes in the end
	}
	at := -1
	err = x.r.do(func() (err error) {
		at, err = unix.Openat(x.stage, slot, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return fmt.Errorf("%q: %w", path, err)
	}
	defer unix.Close(at) //nolint:errcheck // O_PATH
	return x.attributes(at, path, f)
}

// further finds, for new names of files, other names of these that stay where they are, and defers to link them.
func (x *runner) further(alone []move) error {
	if len(alone) == 0 {
		return nil
	}
	wanted := map[uint64]move{}
	for _, m := range alone {
		f, err := x.goal.Lstat(m.dst)
		if err != nil {
			return err
		}
		wanted[f.Stat().Ino] = m
	}
	fresh := map[string]bool{}
	for _, m := range slices.Concat(x.puts, x.sets) {
		fresh[m.dst] = fresh[m.dst] || x.made[m.n]
	}
	for todo := []string{""}; len(todo) > 0; {
		dir := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if err := x.ctx.Err(); err != nil {
			return err
		}
		names, err := x.goal.List(dir)
		if err != nil {
			return err
		}
		for _, name := range names {
			path := threeway.Join(dir, name)
			f, err := x.goal.Lstat(path)
			if err != nil {
				return err
			}
			switch {
			case f == nil:
			case isDir(f.Stat().Mode):
				todo = append(todo, path)
			case f.Stat().Nlink > 1 && !fresh[path]:
				if m, ok := wanted[f.Stat().Ino]; ok {
					delete(wanted, f.Stat().Ino)
					m.src = path
					x.links = append(x.links, m)
				}
			}
		}
	}
	return nil
}

// link replaces what was made of files of which another name is there: they are further names of that. All that is in
// the stage by the same number follows.
func (x *runner) link() error {
	if len(x.links) == 0 {
		return nil
	}
	names := map[uint64][]move{} // what was made of files with several names, by number in the goal
	for _, m := range x.puts {
		if m.kind != layers.Added || !x.made[m.n] {
			continue
		}
		f, err := x.goal.Lstat(m.dst)
		if err != nil {
			return err
		}
		if f != nil && !isDir(f.Stat().Mode) {
			names[f.Stat().Ino] = append(names[f.Stat().Ino], m)
		}
	}
	for _, m := range x.links {
		if err := x.linkOne(m, names); err != nil {
			return err
		}
	}
	return nil
}

func (x *runner) linkOne(m move, names map[uint64][]move) error {
	st, err := x.r.lstat(m.src)
	if err != nil {
		return described(m.src, err)
	}
	if st == nil {
		return nil
	}
	same, err := x.like(x.goal, m.src, m.src, st, false)
	if err != nil || !same {
		return err
	}
	mine, err := x.goal.Lstat(m.dst)
	if err != nil {
		return err
	}
	for _, other := range names[mine.Stat().Ino] {
		slot := slotOf('n', other.n)
		err = x.at(m.src, func(dir int, name string) error { return unix.Linkat(dir, name, x.stage, slot, 0) })
		x.Points.At("linked in the stage")
		if err == nil {
			err = x.at(other.dst, func(dir int, name string) error { return unix.Renameat(x.stage, slot, dir, name) })
			x.Points.At("link put to its place")
		}
		if err != nil {
			x.skip(other.dst, "link", err)
			if err := x.unstage(slot); err != nil {
				return err
			}
		}
	}
	return nil
}
