package extract

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"snapfs/internal/lockorder"
	"snapfs/squashfs"
)

// linked is an inode with several names. The first name that the walk meets makes the inode, the others are linked to
// it. Until the walk has met them all, the first one's dir stays under way: later it may not be accessible.
type linked struct {
	first *dir   // immutable
	left  uint32 // names that the walk has not met; the walk's

	mu      lockorder.Mutex[lockorder.ExtractLink]
	made    bool // guarded by mu: the inode is at d and name
	skipped bool // guarded by mu: the inode could not be made
	d       *dir
	name    string
	waiting []job // guarded by mu: names that came before the inode
}

// linkOf notes a name of an inode that has several.
func (x *extraction) linkOf(d *dir, e *squashfs.Entry) *linked {
	id := e.Inode
	if id == (squashfs.InodeID{}) {
		id.Inode = e.Attr.Ino
	}
	l := x.links[id]
	if l == nil {
		l = &linked{first: d, left: e.Attr.Nlink - 1, d: d, name: e.Name}
		d.hold()
		x.links[id] = l
		return l
	}
	l.left--
	l.first.hold() // as long as this name is under way
	if l.left == 0 {
		delete(x.links, id)
		l.first.pending.Add(-1) // not the last: the name holds it
	}
	return l
}

// isFirst reports whether j is the job that makes the inode.
func (l *linked) isFirst(j *job) bool { return l.first == j.d && l.d == j.d && l.name == j.e.Name }

// doLinked makes the inode of several names, or one more name of it.
func (x *extraction) doLinked(ctx context.Context, j *job, make func() (bool, error)) error {
	l := j.l
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.made && !l.skipped {
		if !l.isFirst(j) {
			l.waiting = append(l.waiting, *j)
			return nil
		}
		done, err := make()
		if err != nil {
			return err
		}
		l.made, l.skipped = done, !done
		waiting := l.waiting
		l.waiting = nil
		for i := range waiting {
			if err := x.addName(ctx, &waiting[i]); err != nil {
				return err
			}
		}
		return x.leave(j.d)
	}
	return x.addName(ctx, j)
}

// addName makes a further name. The lock of the inode is held.
func (x *extraction) addName(ctx context.Context, j *job) error {
	l := j.l
	if l.skipped {
		x.skip(j.d, j.e.Name, "link", fmt.Errorf("its first name %s was skipped", l.d.path(l.name)))
		return x.leaveLink(j)
	}
	from, err := x.dirs.acquire(l.d)
	if err != nil {
		return err
	}
	defer x.dirs.release(l.d)
	at, err := x.dirs.acquire(j.d)
	if err != nil {
		return err
	}
	defer x.dirs.release(j.d)
	link := func() error { return unix.Linkat(from, l.name, at, j.e.Name, 0) }
	err = link()
	if errors.Is(err, unix.EEXIST) && x.mayExist(j.d, j.e.Name) {
		if err = unix.Unlinkat(at, j.e.Name, 0); err == nil {
			err = link()
		}
	}
	switch {
	case err == nil:
		x.linkCount.Add(1)
	case errors.Is(err, unix.EMLINK):
		// Further names are those of a copy.
		x.skip(j.d, j.e.Name, "link", err)
		if _, err := x.make(ctx, at, j); err != nil {
			return failed(j.d, j.e.Name, err)
		}
		l.d, l.name = j.d, j.e.Name
	case denied(err), refusedName(err):
		x.skip(j.d, j.e.Name, "link", err)
	default:
		return failed(j.d, j.e.Name, err)
	}
	return x.leaveLink(j)
}

// leaveLink ends what a further name has kept under way.
func (x *extraction) leaveLink(j *job) error {
	return errors.Join(x.leave(j.d), x.leave(j.l.first))
}
