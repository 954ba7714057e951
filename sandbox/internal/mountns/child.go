package mountns

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"

	"snapfs/sandbox/internal/guard"
)

// Main is the child: it reads one order, carries it out and prints the answer.
func Main(in io.Reader, out io.Writer) error {
	runtime.LockOSThread() // its mount namespace and root change
	var (
		o order
		a answer
	)
	err := json.NewDecoder(in).Decode(&o)
	if err == nil {
		a.Place, err = o.run()
	}
	if err != nil {
		a.Error = err.Error()
		var errno unix.Errno
		if errors.As(err, &errno) {
			a.Errno = int(errno)
		}
	}
	return json.NewEncoder(out).Encode(a)
}

// child is an order being carried out.
type child struct {
	order
	fdDir int // /proc/self/fd, as it was at the start
	place Place
}

func (o order) run() (Place, error) {
	c := &child{order: o, place: Place{Path: o.Path}}
	var err error
	if c.fdDir, err = unix.Open("/proc/self/fd", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return c.place, fmt.Errorf("/proc: %w", err)
	}
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return c.place, fmt.Errorf("unshare: %w", err)
	}
	switch o.Do {
	case Copy:
		c.FDs.Mount, err = c.copy()
	case Overlay:
		err = c.merge()
	}
	if err != nil {
		return c.place, err
	}
	if err := enter(o.FDs.Namespace); err != nil {
		return c.place, err
	}
	switch o.Do {
	case Look:
		_, err = c.find()
	case Attach, Copy, Overlay:
		err = c.attach()
	case Users:
		c.users()
	case InUse:
		err = c.inUse()
	case Detach:
		err = c.detach()
	case Change:
		err = c.change()
	case Vacate:
		err = c.vacate()
	case Sync:
		err = c.sync()
	default:
		err = fmt.Errorf("%s: %w", o.Do, unix.EINVAL)
	}
	return c.place, err
}

// enter takes this thread into a mount namespace, if one is given.
func enter(namespace int) error {
	if namespace == 0 {
		return nil
	}
	if err := unix.Setns(namespace, unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("entering the mount namespace: %w", err)
	}
	return nil
}

// copy makes a copy of a mount in the namespace that has it, which is in no tree yet.
func (c *child) copy() (int, error) {
	if err := enter(c.FDs.Source); err != nil {
		return -1, err
	}
	fd, err := unix.Open(c.From, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("%s: %w", c.From, err)
	}
	if err := c.is(fd, c.From); err != nil {
		return -1, err
	}
	mount, err := unix.OpenTree(fd, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if err != nil {
		return -1, fmt.Errorf("copying the mount at %s: %w", c.From, err)
	}
	attr := unix.MountAttr{Attr_set: c.Set, Attr_clr: c.Clear}
	if err := unix.MountSetattr(mount, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		return -1, fmt.Errorf("options of a copy of the mount at %s: %w", c.From, err)
	}
	return mount, nil
}

// is checks that a descriptor is of the root of a mount of the file system that is meant.
func (c *child) is(fd int, path string) error {
	dev, root, err := identify(fd)
	if err == nil && (!root || dev != c.Device) {
		err = unix.EINVAL
	}
	if err != nil {
		return fmt.Errorf("%s is not the mount that is meant: %w", path, err)
	}
	return nil
}

// identify tells the device number of what a descriptor leads to, and whether that is the root of a mount.
func identify(fd int) (dev uint64, root bool, err error) {
	var st unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, 0, &st); err != nil {
		return 0, false, err
	}
	return unix.Mkdev(st.Dev_major, st.Dev_minor), st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, nil
}

// open opens a path below the root that was given.
func (c *child) open(path string, flags uint64) (int, error) {
	root := unix.AT_FDCWD
	how := unix.OpenHow{Flags: flags | unix.O_PATH | unix.O_CLOEXEC}
	if c.FDs.Root != 0 {
		root, how.Resolve = c.FDs.Root, unix.RESOLVE_IN_ROOT
	}
	fd, err := unix.Openat2(root, path, &how)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return fd, nil
}

// find looks the directory up and says what is there; -1 if it is missing and its parent exists.
func (c *child) find() (int, error) {
	fd, err := c.open(c.Path, 0)
	if errors.Is(err, unix.ENOENT) {
		parent, parentErr := c.open(filepath.Dir(c.Path), unix.O_DIRECTORY)
		if parentErr != nil {
			return -1, parentErr
		}
		path, pathErr := c.path(parent)
		if pathErr != nil {
			return -1, pathErr
		}
		c.place.Path, c.place.Missing = filepath.Join(path, filepath.Base(c.Path)), true
		return -1, unix.Close(parent)
	}
	if err != nil {
		return -1, err
	}
	if c.place.Path, err = c.path(fd); err != nil {
		return -1, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return -1, &os.PathError{Op: "stat", Path: c.Path, Err: err}
	}
	c.place.Dir = st.Mode&unix.S_IFMT == unix.S_IFDIR
	_, c.place.Mounted, err = identify(fd)
	return fd, err
}

// path is where a descriptor leads, from the root of the namespace.
func (c *child) path(fd int) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(c.fdDir, fmt.Sprint(fd), buf)
	if err != nil {
		return "", fmt.Errorf("/proc/self/fd: %w", err)
	}
	return string(buf[:n]), nil
}

// attach attaches a mount to the directory.
func (c *child) attach() (err error) {
	fd, err := c.find()
	if err != nil {
		return err
	}
	if fd < 0 {
		if !c.Make {
			return &os.PathError{Op: "open", Path: c.Path, Err: unix.ENOENT}
		}
		if fd, err = c.mkdir(); err != nil {
			return err
		}
	}
	defer func() {
		if err != nil && c.place.Made {
			_ = unix.Rmdir(c.place.Path) // the error is the one to tell
		}
	}()
	if c.place.Mounted {
		return &os.PathError{Op: "mount", Path: c.Path, Err: unix.EBUSY}
	}
	if c.Guard {
		s, lookErr := guard.LookAt(fd)
		if lookErr == nil && (!s.Guarded || s.Inode == c.Guarded) && guard.SetAt(fd) == nil {
			c.place.Guarded = s.Inode
		}
	}
	err = unix.MoveMount(c.FDs.Mount, "", fd, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
	if err != nil {
		if c.place.Guarded != c.Guarded {
			_ = guard.Clear(c.place.Path, c.place.Guarded) // as above
		}
		return &os.PathError{Op: "mount", Path: c.Path, Err: err}
	}
	return nil
}

// mkdir makes the directory.
func (c *child) mkdir() (int, error) {
	parent, err := c.open(filepath.Dir(c.Path), unix.O_DIRECTORY)
	if err != nil {
		return -1, err
	}
	unix.Umask(0o022)
	if err := unix.Mkdirat(parent, filepath.Base(c.Path), 0o755); err != nil {
		return -1, &os.PathError{Op: "mkdir", Path: c.Path, Err: err}
	}
	c.place.Missing, c.place.Made, c.place.Dir = false, true, true
	return c.open(c.Path, unix.O_DIRECTORY)
}

// detach takes a mount away, if it is the one that is meant. If it is not there any more, nothing is done.
func (c *child) detach() error {
	fd, err := unix.Open(c.Path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err == nil {
		err = c.is(fd, c.Path)
		_ = unix.Close(fd) // or it would be busy
		if err != nil {
			return nil //nolint:nilerr // it was unmounted by other means
		}
	}
	flags := unix.UMOUNT_NOFOLLOW
	if c.Lazy {
		flags |= unix.MNT_DETACH
	}
	if err := unix.Unmount(c.Path, flags); err != nil {
		return &os.PathError{Op: "unmount", Path: c.Path, Err: err}
	}
	return nil
}

// vacate gives the directory back. If it was guarded, and another one is in its place, that is left alone.
func (c *child) vacate() error {
	if c.Guarded != 0 {
		s, err := guard.Look(c.Path)
		if err == nil && s.Inode != c.Guarded || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
			return nil
		}
		if err != nil {
			return err // nothing is removed of which it is not known what it is
		}
	}
	err := guard.Clear(c.Path, c.Guarded)
	if c.Make {
		_ = unix.Rmdir(c.Path) // what has something in it, or is gone, stays
	}
	return err
}

// change changes the attributes of a mount.
func (c *child) change() error {
	fd, err := unix.Open(c.Path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: c.Path, Err: err}
	}
	if err := c.is(fd, c.Path); err != nil {
		return err
	}
	attr := unix.MountAttr{Attr_set: c.Set, Attr_clr: c.Clear}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		return &os.PathError{Op: "remount", Path: c.Path, Err: err}
	}
	return nil
}

// sync writes back what the kernel holds of the file system.
func (c *child) sync() error {
	fd, err := unix.Open(c.Path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: c.Path, Err: err}
	}
	if err := c.is(fd, c.Path); err != nil {
		return err
	}
	return unix.Syncfs(fd)
}
