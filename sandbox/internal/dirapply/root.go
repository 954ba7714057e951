package dirapply

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/internal/hosttree"
	"snapfs/layers"
	"snapfs/sandbox/internal/threeway"
)

// Errors beside those of the host.
var (
	// ErrChanged says that something is not as it was when the steps were made.
	ErrChanged = errors.New("changed meanwhile")
	// ErrBusy says that another process works in the directory.
	ErrBusy = errors.New("another apply works there")
)

// Root is a directory of the host. For one goroutine.
type Root struct {
	dir   *os.File
	mount uint64
	fs    int64 // type of the file system
	// scanned is when the first scan began: what was changed since may differ from what that saw.
	scanned time.Time
	held    *[2]uint64 // in locked, or nil
	do      func(fn func() error) error
}

// Open opens a directory and locks it against other processes that apply something to it. The path is absolute, and no
// element is a symbolic link. do runs what touches the directory, with the rights that it needs; nil is as it is.
func Open(path string, do func(fn func() error) error) (*Root, error) {
	if do == nil {
		do = func(fn func() error) error { return fn() }
	}
	r := &Root{do: do}
	err := do(func() (err error) {
		if r.dir, err = hosttree.Open(path, unix.O_RDONLY|unix.O_DIRECTORY); err != nil {
			return err
		}
		if err := r.lock(unix.Flock(int(r.dir.Fd()), unix.LOCK_EX|unix.LOCK_NB)); err != nil {
			return err
		}
		sx, err := r.statx(".")
		r.mount = mountOf(&sx)
		var fs unix.Statfs_t
		if err == nil && unix.Fstatfs(int(r.dir.Fd()), &fs) == nil {
			r.fs = int64(fs.Type) //nolint:unconvert // it is an int32 elsewhere
		}
		return err
	})
	if err != nil {
		if r.dir != nil {
			err = errors.Join(err, r.Close())
		}
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// recent reports whether something may have changed since the root was scanned. The clocks of file systems are coarse.
func (r *Root) recent(st *stat) bool {
	const coarse = 2 * time.Second
	return !r.scanned.IsZero() && !time.Unix(st.Ctime.Sec, int64(st.Ctime.Nsec)).Before(r.scanned.Add(-coarse))
}

// Close gives the directory back.
func (r *Root) Close() error {
	if r.held != nil {
		locked.Delete(*r.held)
	}
	return r.dir.Close()
}

// locked are roots that are in use and that the file system cannot lock, by device and inode.
var locked sync.Map

// lock deals with what flock(2) says of the root. NFS and CIFS lock only what is open for writing, which no directory can
// be, and others lock nothing: there the root is locked against this process, which has the home.
func (r *Root) lock(flocked error) error {
	switch {
	case flocked == nil:
		return nil
	case errors.Is(flocked, unix.EWOULDBLOCK):
		return ErrBusy
	case !errors.Is(flocked, unix.EBADF) && !errors.Is(flocked, unix.ENOLCK) && !denied(flocked):
		return flocked
	}
	dev, ino, err := r.ID()
	if err != nil {
		return err
	}
	id := [2]uint64{dev, ino}
	if _, held := locked.LoadOrStore(id, true); held {
		return ErrBusy
	}
	r.held = &id
	return nil
}

// ID tells the directory from others of the machine.
func (r *Root) ID() (dev, ino uint64, err error) {
	var st unix.Stat_t
	err = unix.Fstat(int(r.dir.Fd()), &st)
	return st.Dev, st.Ino, err
}

// Empty reports whether nothing is in the directory.
func (r *Root) Empty() (bool, error) {
	names, err := r.list("")
	return len(names) == 0, err
}

func mountOf(sx *unix.Statx_t) uint64 {
	if sx.Mask&unix.STATX_MNT_ID == 0 {
		return unix.Mkdev(sx.Dev_major, sx.Dev_minor)
	}
	return sx.Mnt_id
}

// openDir opens the directory at a path.
func (r *Root) openDir(path string, flags int) (int, error) {
	if path == "" {
		path = "."
	}
	flags |= unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat2(int(r.dir.Fd()), path, &unix.OpenHow{
		Flags:   uint64(flags),
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_MAGICLINKS,
	})
	// Containers say EPERM of calls that they do not know. A path may be longer than a system call takes.
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENAMETOOLONG) {
		return r.openSteps(path, flags)
	}
	return fd, err
}

// openSteps is openDir with older system calls: one element after the other.
func (r *Root) openSteps(path string, flags int) (int, error) {
	fd, err := unix.Openat(int(r.dir.Fd()), ".", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	names := strings.Split(path, "/")
	for i, name := range names {
		if err != nil {
			return -1, err
		}
		how := unix.O_PATH | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
		if i == len(names)-1 {
			how = flags
		}
		var next int
		next, err = unix.Openat(fd, name, how, 0)
		_ = unix.Close(fd) // O_PATH
		fd = next
		if err != nil {
			return -1, err
		}
		var sx unix.Statx_t
		if err = unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &sx); err == nil && mountOf(&sx) != r.mount {
			err = unix.EXDEV
		}
		if err != nil {
			_ = unix.Close(fd) // nothing is written
		}
	}
	return fd, err
}

// in calls fn with the directory in which a path ends. It runs with the rights of the root.
func (r *Root) in(path string, fn func(dir int, name string) error) error {
	dir, name := threeway.Split(path)
	return r.do(func() error {
		fd, err := r.openDir(dir, unix.O_PATH)
		if err != nil {
			return err
		}
		defer unix.Close(fd) //nolint:errcheck // O_PATH
		return fn(fd, name)
	})
}

// stat is what is at a path.
type stat struct {
	layers.Attr
	mount uint64
	fixed bool // nobody can change it: it is immutable, or may only grow
}

// statx looks at a name in the root.
func (r *Root) statx(name string) (unix.Statx_t, error) { return statxAt(int(r.dir.Fd()), name) }

func statxAt(dir int, name string) (sx unix.Statx_t, err error) {
	err = unix.Statx(dir, name, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT,
		unix.STATX_BASIC_STATS|unix.STATX_BTIME|unix.STATX_MNT_ID, &sx)
	return sx, err
}

func statOf(sx *unix.Statx_t) *stat {
	at := func(t unix.StatxTimestamp) layers.Time { return layers.Time{Sec: t.Sec, Nsec: t.Nsec} }
	return &stat{
		Attr: layers.Attr{
			Ino: sx.Ino, Size: sx.Size, Blocks: sx.Blocks, Mode: uint32(sx.Mode), Nlink: sx.Nlink, UID: sx.Uid, GID: sx.Gid,
			Rdev: unix.Mkdev(sx.Rdev_major, sx.Rdev_minor), Blksize: sx.Blksize,
			Atime: at(sx.Atime), Mtime: at(sx.Mtime), Ctime: at(sx.Ctime), Btime: at(sx.Btime),
		},
		mount: mountOf(sx),
		fixed: sx.Attributes&(unix.STATX_ATTR_IMMUTABLE|unix.STATX_ATTR_APPEND) != 0,
	}
}

// lstat looks at a path; nil if nothing is there.
func (r *Root) lstat(path string) (st *stat, err error) {
	if path == "" {
		path = "."
	}
	err = r.in(path, func(dir int, name string) error {
		sx, err := statxAt(dir, name)
		if err == nil {
			st = statOf(&sx)
		}
		return err
	})
	if missing(err) {
		return nil, nil
	}
	return st, err
}

// list names what is in a directory, with what it is.
func (r *Root) list(path string) (all map[string]*stat, err error) {
	err = r.do(func() error {
		fd, err := r.openDir(path, unix.O_RDONLY)
		if err != nil {
			return err
		}
		f := os.NewFile(uintptr(fd), path)
		defer f.Close() //nolint:errcheck // nothing is written
		names, err := f.Readdirnames(-1)
		if err != nil {
			return err
		}
		all = make(map[string]*stat, len(names))
		for _, name := range names {
			sx, err := statxAt(fd, name)
			if errors.Is(err, unix.ENOENT) {
				continue // removed meanwhile
			}
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			all[name] = statOf(&sx)
		}
		return nil
	})
	return all, err
}

func kind(mode uint32) uint32 { return mode & unix.S_IFMT }

func isDir(mode uint32) bool { return kind(mode) == unix.S_IFDIR }

func isReg(mode uint32) bool { return kind(mode) == unix.S_IFREG }
