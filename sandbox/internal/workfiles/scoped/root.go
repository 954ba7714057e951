package scoped

import (
	"errors"
	"fmt"
	"os"
	"path"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/sandbox/api"
)

// within is how each path is looked up.
const within = unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV

// Root is a directory below which calls are made. Close it.
type Root struct {
	fd int
	// Plain gives no file that is written the bits setuid and setgid.
	Plain bool
	// Closed, if it is not nil, is called by Close.
	Closed func()
}

// Open opens a directory of the host as a root.
func Open(dir string) (*Root, error) {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	return &Root{fd: fd}, err
}

// OpenMount opens the root of a mount of a file system, by its device number. The path is without symbolic links, from
// the directory above. ErrConflict if no such mount is there.
func OpenMount(above int, mountpoint string, device uint64) (*Root, error) {
	how := unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	}
	fd, err := again(func() (int, error) { return unix.Openat2(above, mountpoint, &how) })
	if err != nil {
		return nil, fmt.Errorf("%w: the workspace is not mounted at %s any more: %w",
			api.ErrConflict, api.Quoted(mountpoint), err)
	}
	r := &Root{fd: fd}
	var st unix.Statx_t
	err = unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE, &st)
	if err == nil && (unix.Mkdev(st.Dev_major, st.Dev_minor) != device || st.Attributes&unix.STATX_ATTR_MOUNT_ROOT == 0) {
		err = unix.ENOTCONN
	}
	if err != nil {
		r.Close()
		return nil, Fault(mountpoint, err)
	}
	return r, nil
}

// Close gives the descriptor up.
func (r *Root) Close() {
	_ = unix.Close(r.fd) // nothing is written through it
	if r.Closed != nil {
		r.Closed()
	}
}

// open looks a path up, without the rest of its name in the kernel's errors.
func (r *Root) open(path string, flags uint64, more uint64) (int, error) {
	return openIn(r.fd, path, flags, within|more)
}

// openIn opens a path below a directory.
func openIn(dir int, path string, flags, resolve uint64) (int, error) {
	switch {
	case len(path) > maxPath:
		return -1, unix.ENAMETOOLONG
	case path == "":
		path = "."
	}
	how := unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: resolve}
	return again(func() (int, error) { return unix.Openat2(dir, path, &how) })
}

// again repeats a look-up during which something was renamed or mounted: openat2(2) cannot tell then whether ".." stays
// in the root.
func again(look func() (int, error)) (fd int, err error) {
	for i := range maxAgain {
		fd, err = look()
		switch {
		case errors.Is(err, unix.EINTR):
		case !errors.Is(err, unix.EAGAIN):
			return fd, err
		case i < maxAgain/10:
			runtime.Gosched()
		default:
			time.Sleep(100 * time.Microsecond)
		}
	}
	return -1, err
}

// closing closes a descriptor through which nothing was written.
func closing(fd int) { _ = unix.Close(fd) }

// valid refuses a path that is none.
func valid(path string) error {
	if strings.IndexByte(path, 0) >= 0 {
		return fmt.Errorf("%w: path %s has a byte 0", api.ErrInvalid, api.Quoted(path))
	}
	return nil
}

// shown is how a path is told: from the root, without what changes nothing.
func shown(p string) string { return path.Clean("/" + p) }

// split divides a path into that of its directory and its last name, which may be "." or "..". A slash at the end does
// not count.
func split(p string) (dir, name string) {
	p = strings.TrimRight(p, "/")
	i := strings.LastIndexByte(p, '/')
	return p[:i+1], p[i+1:]
}

// parent opens the directory of a path for a call on the last name in it. ErrInvalid for the root, "." and "..".
func (r *Root) parent(p string) (fd int, name string, err error) {
	if err := valid(p); err != nil {
		return -1, "", err
	}
	dir, name := split(p)
	if name == "" || name == "." || name == ".." {
		return -1, "", fmt.Errorf("%w: %s ends in no name", api.ErrInvalid, api.Quoted(p))
	}
	fd, err = r.open(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	return fd, name, Fault(p, err)
}

// procFD is a path of the very file that a descriptor is of.
func procFD(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// reopen opens what a descriptor is of.
func reopen(fd, flags int) (*os.File, error) {
	for {
		got, err := unix.Open(procFD(fd), flags|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return os.NewFile(uintptr(got), "file"), nil
	}
}

// regular opens a regular file for reading. ErrInvalid for anything else.
func regular(fd int, path string) (*os.File, *unix.Stat_t, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, nil, Fault(path, err)
	}
	if err := isRegular(&st, path); err != nil {
		return nil, nil, err
	}
	f, err := reopen(fd, unix.O_RDONLY)
	return f, &st, Fault(path, err)
}

// isRegular refuses what is no regular file.
func isRegular(st *unix.Stat_t, path string) error {
	is := "is no regular file"
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return nil
	case unix.S_IFDIR:
		is = "is a directory, no regular file"
	}
	return fmt.Errorf("%w: %s %s", api.ErrInvalid, api.Quoted(path), is)
}
