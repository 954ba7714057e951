package hosttree

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Open opens what an absolute path without symbolic links names. A symbolic link anywhere in the path, which includes
// the links of /proc, was put there after the path was found, and is not followed: ELOOP, or ENOTDIR if a directory is
// asked for. O_PATH needs O_DIRECTORY.
func Open(path string, flags int) (*os.File, error) {
	fd, err := OpenFD(path, flags)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

// OpenFD is Open that gives a bare descriptor.
func OpenFD(path string, flags int) (int, error) {
	flags |= unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := again(func() (int, error) {
		return unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{
			Flags: uint64(flags), Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
		})
	})
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) { // as containers say of calls that they do not know
		return openSteps(path, flags)
	}
	return fd, err
}

// openSteps is Open with older system calls: one element after the other.
func openSteps(path string, flags int) (int, error) {
	dir, name := filepath.Split(filepath.Clean(path))
	if name == "" {
		name = "."
	}
	fd, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	for step := range strings.SplitSeq(dir, "/") {
		if step == "" || err != nil {
			continue
		}
		var next int
		next, err = unix.Openat(fd, step, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		_ = unix.Close(fd) // O_PATH
		fd = next
	}
	if err != nil {
		return -1, err
	}
	defer unix.Close(fd) //nolint:errcheck // O_PATH
	return again(func() (int, error) { return unix.Openat(fd, name, flags, 0) })
}

// SyncAt makes the entries of a directory durable that Open has opened.
func SyncAt(dir *os.File) error {
	fd, err := open(int(dir.Fd()), ".")
	if err != nil {
		return err
	}
	return errors.Join(unix.Fsync(fd), unix.Close(fd))
}

// Mkdir makes a directory at a path as Open takes it.
func Mkdir(path string, mode uint32) error {
	return in(path, func(dir int, name string) error { return unix.Mkdirat(dir, name, mode) })
}

// Rmdir removes an empty directory at a path as Open takes it.
func Rmdir(path string) error {
	return in(path, func(dir int, name string) error { return unix.Unlinkat(dir, name, unix.AT_REMOVEDIR) })
}

// in calls fn with the directory in which a path ends.
func in(path string, fn func(dir int, name string) error) error {
	dir, err := Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	return errors.Join(fn(int(dir.Fd()), filepath.Base(path)), dir.Close())
}

// again repeats a system call that a signal interrupted.
func again(fn func() (int, error)) (int, error) {
	for {
		n, err := fn()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
