package extract

import (
	"container/list"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"snapfs/internal/lockorder"
	"snapfs/squashfs"
)

// dir is a directory in the target. It may be opened again as long as something refers to it.
type dir struct {
	parent *dir // nil: the root
	name   string
	entry  *squashfs.Entry // its attributes; nil once it has them
	dev    uint64
	ino    uint64
	was    bool // it was there before: it may have entries

	// pending counts what is under way in it: the walk, jobs, and directories in it.
	pending atomic.Int64

	// Guarded by dirs.mu.
	fd    int // -1: closed
	users int
	idle  *list.Element // in dirs.idle; nil while it is used or closed
}

// dirs keeps directories open. The root always is.
type dirs struct {
	room room // immutable

	mu   lockorder.Mutex[lockorder.ExtractDirs]
	most int       // that may be idle; guarded by mu
	idle list.List // of *dir, the longest idle first; guarded by mu
}

const openDir = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC

// path is a path relative to the target, for messages.
func (d *dir) path(name string) string {
	var parts []string
	if name != "" {
		parts = append(parts, name)
	}
	for x := d; x.parent != nil; x = x.parent {
		parts = append(parts, x.name)
	}
	if len(parts) == 0 {
		return "."
	}
	slices.Reverse(parts)
	return strings.Join(parts, "/")
}

// acquire gives d's descriptor, which stays open until release.
func (c *dirs) acquire(d *dir) (int, error) {
	for {
		c.mu.Lock()
		if d.fd >= 0 {
			c.useLocked(d)
			c.mu.Unlock()
			return d.fd, nil
		}
		below := d
		for below.parent.fd < 0 {
			below = below.parent
		}
		up := below.parent
		c.useLocked(up)
		c.mu.Unlock()
		fd, err := reopen(up.fd, below)
		if err == nil {
			c.put(below, fd)
		}
		c.release(up)
		if err != nil {
			return -1, err
		}
	}
}

// reopen opens a directory that was made before.
func reopen(parent int, d *dir) (int, error) {
	fd, err := retry(func() (int, error) { return unix.Openat(parent, d.name, openDir, 0) })
	if err != nil {
		return -1, failed(d, "", err)
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil && (st.Dev != d.dev || st.Ino != d.ino) {
		err = errors.New("the directory has been replaced by another one meanwhile")
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, failed(d, "", err)
	}
	return fd, nil
}

// useLocked adds a user of an open directory.
func (c *dirs) useLocked(d *dir) {
	d.users++
	if d.idle != nil {
		c.idle.Remove(d.idle)
		d.idle = nil
	}
}

// put keeps a descriptor for later, unless another goroutine came first.
func (c *dirs) put(d *dir, fd int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d.fd >= 0 {
		_ = unix.Close(fd)
		return
	}
	d.fd = fd
	c.rest(d)
}

// release gives back what acquire has given.
func (c *dirs) release(d *dir) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d.users--; d.users == 0 && d.parent != nil {
		c.rest(d)
	}
}

// rest makes d the newest of those that nobody uses, and closes what is too much. mu is held.
func (c *dirs) rest(d *dir) {
	d.idle = c.idle.PushBack(d)
	for c.idle.Len() > c.most {
		if c.room.dirs.Try(1) {
			c.most++
		} else {
			c.closeLocked(c.idle.Front().Value.(*dir))
		}
	}
}

func (c *dirs) closeLocked(d *dir) {
	c.idle.Remove(d.idle)
	d.idle = nil
	_ = unix.Close(d.fd)
	d.fd = -1
}

// drop closes a directory that is complete.
func (c *dirs) drop(d *dir) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d.idle != nil {
		c.closeLocked(d)
	}
}

// closeAll closes everything but the root, which is not its own.
func (c *dirs) closeAll(root *dir) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.idle.Len() > 0 {
		c.closeLocked(c.idle.Front().Value.(*dir))
	}
	if root.users != 0 {
		return fmt.Errorf("%d users of the target are left", root.users)
	}
	return nil
}

// openRoot makes the target the root of the tree: nobody else may enter it for now, and nothing in it inherits an ACL.
func (x *extraction) openRoot(e *squashfs.Entry) (*dir, error) {
	d := &dir{entry: e, fd: x.root, was: x.resume}
	var st unix.Stat_t
	if err := unix.Fstat(x.root, &st); err != nil {
		return nil, err
	}
	d.dev, d.ino = st.Dev, st.Ino
	if err := private(x.root); err != nil && !denied(err) { // where there are no modes, nobody is kept out
		return nil, fmt.Errorf("closing the target to others: %w", err)
	}
	d.pending.Store(2) // the walk, and finishing the root itself
	x.directories.Add(1)
	return d, nil
}

// private keeps others out of a directory that was there, and has what is made in it inherit nothing.
func private(fd int) error {
	for _, name := range []string{xattrAccessACL, xattrDefaultACL} {
		err := unix.Fremovexattr(fd, name)
		if err != nil && !errors.Is(err, unix.ENODATA) && !errors.Is(err, unix.EOPNOTSUPP) {
			return err
		}
	}
	return unix.Fchmod(fd, 0o700)
}

// makeDir makes a directory in d for the walk, which holds it then. It returns nil if the host refuses its name.
func (x *extraction) makeDir(d *dir, e *squashfs.Entry) (*dir, error) {
	at, err := x.dirs.acquire(d)
	if err != nil {
		return nil, err
	}
	defer x.dirs.release(d)
	n := &dir{parent: d, name: e.Name, entry: e, fd: -1}
	err = unix.Mkdirat(at, e.Name, 0o700)
	if errors.Is(err, unix.EEXIST) && x.mayExist(d, e.Name) {
		if n.was, err = x.takeDir(at, e.Name); err == nil && !n.was {
			err = unix.Mkdirat(at, e.Name, 0o700)
		}
	}
	if refusedName(err) {
		x.skip(d, e.Name, "name", err)
		return nil, nil
	}
	if err != nil {
		return nil, failed(d, e.Name, err)
	}
	fd, err := retry(func() (int, error) { return unix.Openat(at, e.Name, openDir, 0) })
	if err != nil {
		return nil, failed(d, e.Name, err)
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil && n.was {
		err = private(fd)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, failed(d, e.Name, err)
	}
	n.dev, n.ino = st.Dev, st.Ino
	x.dirs.put(n, fd)
	n.pending.Store(1)
	d.pending.Add(1)
	x.directories.Add(1)
	return n, nil
}

// mayExist reports whether a name may be in the target already: it may be resumed, and a fresh file system has
// lost+found.
func (x *extraction) mayExist(d *dir, name string) bool {
	return d.was || d.parent == nil && name == lostFound
}

// takeDir makes a directory that is there accessible to this process. Anything else that has the name is removed, and
// was is false then.
func (x *extraction) takeDir(at int, name string) (was bool, err error) {
	fd, err := unix.Openat(at, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return false, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return false, unix.Unlinkat(at, name, 0)
	}
	if st.Mode&0o700 == 0o700 {
		return true, nil
	}
	return true, unix.Chmod(procPath(fd, ""), 0o700)
}

// hold keeps d under way until leave.
func (d *dir) hold() { d.pending.Add(1) }

// leave ends something that was under way in d. The last one gives d its attributes, which may end what was under way
// in its parent.
func (x *extraction) leave(d *dir) error {
	for d.pending.Add(-1) == 0 {
		if err := x.finishDir(d); err != nil {
			return err
		}
		x.dirs.drop(d)
		d = d.parent
	}
	return nil
}

// finishDir gives a directory its attributes.
func (x *extraction) finishDir(d *dir) error {
	fd, err := x.dirs.acquire(d)
	if err != nil {
		return err
	}
	defer x.dirs.release(d)
	e := d.entry
	d.entry = nil
	return failed(d, "", x.attributes(fd, d, "", e))
}
