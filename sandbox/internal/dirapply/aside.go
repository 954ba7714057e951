package dirapply

import (
	"errors"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"snapfs/sandbox/internal/threeway"
)

// asideEnd ends the names of what could not be put to its place.
const asideEnd = ".snapfs-moved"

// nameMax is the most that file systems take as a name, in bytes.
const nameMax = 255

// ErrMove says that the file system does not let something be moved.
var ErrMove = errors.New("the file system cannot move it: overlayfs, as in containers, cannot move directories of a lower " +
	"layer, and nothing can be moved between subvolumes or project quotas: apply to a copy of the directory that is on one " +
	"plain file system")

// moveError says of the error of a move what it is.
func moveError(err error) error {
	if errors.Is(err, unix.EXDEV) {
		return ErrMove
	}
	return err
}

// inTheWay deals with what cannot be put to its place because something else is there. It is put beside that if it was
// moved; what was made can be made again.
func (x *runner) inTheWay(m move, slot string, waiting bool) error {
	if err := x.left(m.dst, "is in the way"); err != nil || !waiting {
		return err
	}
	if slot == slotOf('n', m.n) {
		return x.unstage(slot)
	}
	return x.aside(slot, m.dst)
}

// aside puts what is in a slot near a path that is taken, in the innermost of its directories that can have it. What was
// not there before the run never stays in the stage, where nobody looks for it.
func (x *runner) aside(slot, path string) error {
	dir, name := threeway.Split(path)
	for {
		to, err := x.asideIn(dir, name, func(in int, as string) error { return rename(x.stage, slot, in, as) })
		if err == nil {
			x.dirs[dir] = true
			x.result.Left = append(x.result.Left, to)
			x.Points.At("put aside")
			return nil
		}
		if dir == "" {
			return described(path, err)
		}
		dir, _ = threeway.Split(dir)
	}
}

// asideIn calls fn with names beside another one in a directory until one is free.
func (x *runner) asideIn(dir, name string, fn func(in int, as string) error) (to string, err error) {
	const most = 1000
	name = name[:min(len(name), nameMax-len(asideEnd)-5)] + asideEnd
	for n := range most {
		to = threeway.Join(dir, name)
		if n > 0 {
			to += "-" + strconv.Itoa(n+1)
		}
		if err = x.at(to, fn); !errors.Is(err, unix.EEXIST) {
			break
		}
	}
	return to, err
}

// empty puts everything that is in the stage to where it is seen.
func (x *runner) empty() error {
	all, err := x.r.list(stageStart + x.Name)
	for slot := range all {
		if err != nil {
			break
		}
		err = x.aside(slot, x.placeOf(slot))
	}
	return err
}

// placeOf is the path to which a step brings what is in a slot; the slot's own name if there is none.
func (x *runner) placeOf(slot string) string {
	for _, m := range x.puts {
		if slot == slotOf('m', m.n) {
			return m.dst
		}
	}
	return slot
}

// leave removes the stage, gives the root its times and writes everything to the disk.
func (x *runner) leave() error {
	name := stageStart + x.Name
	remove := func() error {
		return x.r.do(func() error { return unix.Unlinkat(int(x.r.dir.Fd()), name, unix.AT_REMOVEDIR) })
	}
	err := remove()
	x.Points.At("stage removed")
	if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) {
		if err = x.left(name, "has something for which there is no place"); err == nil {
			err = errors.Join(x.empty(), remove())
		}
	} else if missing(err) {
		err = x.left(name, "was moved away")
	}
	if err != nil {
		return err
	}
	full := slices.ContainsFunc(x.sets, func(m move) bool { return m.dst == "" })
	if err := x.directory("", full); err != nil {
		return err
	}
	err = x.sync(int(x.r.dir.Fd()))
	x.Points.At("directory synced")
	return err
}
