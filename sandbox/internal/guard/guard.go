// Package guard keeps a mountpoint on which nothing is mounted, although something should be, from taking writes: its
// directory has the inode flag "immutable" (chattr +i), which holds for root, in every mount namespace and through
// bind mounts, and survives a crash and a reboot. What can be mounted on an immutable directory is as on any other.
//
// File systems without inode flags, and processes without CAP_LINUX_IMMUTABLE, have no guard.
package guard

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ErrUnsupported says that a directory cannot be guarded.
var ErrUnsupported = errors.New("the directory cannot be made immutable")

// immutable is FS_IMMUTABLE_FL of linux/fs.h.
const immutable = 0x10

// State is what is known of a directory.
type State struct {
	Inode   uint64 // tells the directory from another one that has taken its place
	Guarded bool   // it is immutable, by whomever
}

// errMounted says that something is mounted on a directory.
var errMounted = errors.New("something is mounted there")

// Look tells the state of a directory on which nothing is mounted.
func Look(dir string) (s State, err error) {
	err = at(dir, func(fd int) error {
		s, err = LookAt(fd)
		return err
	})
	return s, err
}

// LookAt is Look for a directory that is open, also with O_PATH.
func LookAt(dir int) (s State, err error) {
	err = with(dir, func(fd int) error {
		s, err = look(fd)
		return err
	})
	return s, err
}

// Set guards a directory if it is the one with this inode number. ErrUnsupported where that is impossible.
func Set(dir string, inode uint64) error {
	return at(dir, func(dir int) error {
		return with(dir, func(fd int) error {
			s, err := look(fd)
			if err != nil {
				return err
			}
			if s.Inode != inode {
				return fmt.Errorf("%w: another directory is there now", ErrUnsupported)
			}
			return change(fd, true)
		})
	})
}

// SetAt guards a directory that is open, also with O_PATH.
func SetAt(dir int) error {
	return with(dir, func(fd int) error { return change(fd, true) })
}

// Clear takes the guard of a directory away if it is still the one with this inode number, also if something is mounted
// on it. Nothing is changed, without an error, if it is not, or is gone.
func Clear(dir string, inode uint64) error {
	if inode == 0 {
		return nil
	}
	take := func(dir int) error {
		return with(dir, func(fd int) error {
			s, err := look(fd)
			if s.Inode != inode || err == nil && !s.Guarded {
				return nil
			}
			if err != nil {
				return err
			}
			return change(fd, false)
		})
	}
	err := at(dir, take)
	if errors.Is(err, errMounted) {
		err = under(dir, take)
	}
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	return err
}

// under is at for a directory that something is mounted on: in a copy of the mount that its parent is in, nothing is.
func under(dir string, fn func(fd int) error) error {
	tree, err := unix.OpenTree(unix.AT_FDCWD, filepath.Dir(dir), unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return fmt.Errorf("%w: %w", errMounted, err)
	}
	defer func() { _ = unix.Close(tree) }() // nothing is written to it
	fd, err := unix.Openat(tree, filepath.Base(dir), unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: dir, Err: err}
	}
	defer func() { _ = unix.Close(fd) }() // nothing is written to it
	return fn(fd)
}

// at opens a directory without asking its file system anything.
func at(dir string, fn func(fd int) error) error {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: dir, Err: err}
	}
	defer func() { _ = unix.Close(fd) }() // nothing is written to it
	return fn(fd)
}

// with opens a directory for its flags. A file system that is mounted on it is asked nothing: this process may be its
// server.
func with(dir int, fn func(fd int) error) error {
	var st unix.Statx_t
	if err := unix.Statx(dir, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, 0, &st); err != nil {
		return fmt.Errorf("statx: %w", err)
	}
	if st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0 {
		return errMounted
	}
	fd, err := unix.Openat(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	return errors.Join(fn(fd), unix.Close(fd))
}

func look(fd int) (State, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return State{}, fmt.Errorf("stat: %w", err)
	}
	flags, err := flagsOf(fd)
	return State{Inode: st.Ino, Guarded: flags&immutable != 0}, err
}

func flagsOf(fd int) (uint32, error) {
	flags, err := unix.IoctlGetUint32(fd, unix.FS_IOC_GETFLAGS)
	return flags, unsupported(err)
}

func change(fd int, on bool) error {
	flags, err := flagsOf(fd)
	if err != nil {
		return err
	}
	next := flags &^ immutable
	if on {
		next |= immutable
	}
	if next == flags {
		return nil
	}
	return unsupported(unix.IoctlSetPointerInt(fd, unix.FS_IOC_SETFLAGS, int(next)))
}

// unsupported gives the errors of a file system or a process that cannot do this their class.
func unsupported(err error) error {
	for _, e := range []error{unix.ENOTTY, unix.EOPNOTSUPP, unix.ENOSYS, unix.EINVAL, unix.EPERM, unix.EACCES, unix.EROFS} {
		if errors.Is(err, e) {
			return fmt.Errorf("%w: %w", ErrUnsupported, err)
		}
	}
	return err
}
