// Package hosttree removes and walks directory trees of the host of any depth: by a bounded number of descriptors,
// without a path that could be too long, and with memory for the names of the directories that are still to be visited
// only.
//
// On its way down a walk keeps the descriptors of the topmost directories. Below these it has one, and goes up by "..",
// which must be the directory that it came from: a tree that others move about meanwhile is left where it was moved.
package hosttree

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// keptLevels is how many directories stay open while what is below them is visited.
const keptLevels = 16

// SyncDir makes the entries of a directory durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// WriteFile replaces a file, of mode 600, durably: after a crash it is the former one or the new one, and path.tmp may be
// left. Callers must not write the same file at the same time.
func WriteFile(path string, data []byte) error {
	tmp := path + ".tmp"
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		_ = os.Remove(tmp) // the first error is the one to tell
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// Remove removes name below dirfd with everything in it; it is no error if there is nothing.
func Remove(dirfd int, name string) error {
	return remove(context.Background(), dirfd, name, func() {})
}

// RemovePath is Remove of a path.
func RemovePath(path string) error { return Remove(unix.AT_FDCWD, path) }

// RemovePathSlowly is RemovePath for background work. Before each name in a directory it calls giveWay, which may wait,
// and it ends early with the error of ctx.
func RemovePathSlowly(ctx context.Context, path string, giveWay func()) error {
	return remove(ctx, unix.AT_FDCWD, path, giveWay)
}

// RemoveMounted removes the directory name below dirfd with everything in it, on one mount: what is mounted in it is not
// entered, and its mountpoint stays with what is above (unix.EBUSY, unix.ENOTEMPTY). It ends early with the error of ctx.
func RemoveMounted(ctx context.Context, dirfd int, name string) error {
	v := emptier(ctx, func() {})
	v.apart = true
	if err := walk(ctx, dirfd, name, v); err != nil {
		return err
	}
	return removeDir(dirfd, name)
}

func remove(ctx context.Context, dirfd int, name string, giveWay func()) error {
	err := unix.Unlinkat(dirfd, name, 0)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	if !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EPERM) {
		return err
	}
	if err := empty(ctx, dirfd, name, giveWay); err != nil {
		return err
	}
	return removeDir(dirfd, name)
}

// Empty removes everything in the directory name below dirfd.
func Empty(dirfd int, name string) error {
	return empty(context.Background(), dirfd, name, func() {})
}

func empty(ctx context.Context, dirfd int, name string, giveWay func()) error {
	return walk(ctx, dirfd, name, emptier(ctx, giveWay))
}

// emptier removes what it visits.
func emptier(ctx context.Context, giveWay func()) visitor {
	return visitor{
		entry: func(fd int, name string, typ uint8) (bool, error) {
			if giveWay(); ctx.Err() != nil {
				return false, ctx.Err()
			}
			if typ == unix.DT_DIR {
				return true, nil
			}
			err := unix.Unlinkat(fd, name, 0)
			if errors.Is(err, unix.EISDIR) {
				return true, nil // the host does not tell types
			}
			return false, gone(err)
		},
		after: removeDir,
	}
}

func removeDir(dirfd int, name string) error {
	return gone(unix.Unlinkat(dirfd, name, unix.AT_REMOVEDIR))
}

func gone(err error) error {
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// Walk calls visit for everything below the directory path, that itself included, in no order. What is gone meanwhile
// is passed over, and what is moved meanwhile may be, or be visited twice. Symbolic links are not followed.
func Walk(ctx context.Context, path string, visit func(st *unix.Stat_t) error) error {
	return WalkAt(ctx, path, func(_ int, _ string, st *unix.Stat_t) error { return visit(st) })
}

// WalkAt is Walk, and also gives a descriptor of the directory that something lies in, and its name there.
func WalkAt(ctx context.Context, path string, visit func(dirfd int, name string, st *unix.Stat_t) error) error {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return gone(err)
	}
	if err := visit(unix.AT_FDCWD, path, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return err
	}
	return walk(ctx, unix.AT_FDCWD, path, visitor{
		lenient: true,
		entry: func(fd int, name string, _ uint8) (bool, error) {
			var st unix.Stat_t
			if err := unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
				return false, gone(err)
			}
			return st.Mode&unix.S_IFMT == unix.S_IFDIR, visit(fd, name, &st)
		},
	})
}

// WalkMount is WalkAt on one mount: what is mounted in the directory is passed over without asking it, for its server may
// not answer.
func WalkMount(ctx context.Context, path string, visit func(dirfd int, name string, st *unix.Statx_t) error) error {
	const (
		how  = unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT | unix.AT_STATX_DONT_SYNC
		mask = unix.STATX_BASIC_STATS | unix.STATX_MNT_ID
	)
	var root unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, how, mask, &root); err != nil {
		return gone(err)
	}
	if err := visit(unix.AT_FDCWD, path, &root); err != nil || root.Mode&unix.S_IFMT != unix.S_IFDIR {
		return err
	}
	return walk(ctx, unix.AT_FDCWD, path, visitor{
		lenient: true, apart: true,
		entry: func(fd int, name string, _ uint8) (bool, error) {
			var st unix.Statx_t
			if unix.Statx(fd, name, how, 0, &st) == nil && st.Mnt_id != root.Mnt_id {
				return false, nil
			}
			if err := unix.Statx(fd, name, how, mask, &st); err != nil {
				return false, gone(err)
			}
			return st.Mode&unix.S_IFMT == unix.S_IFDIR, visit(fd, name, &st)
		},
	})
}

// visitor is what a walk does.
type visitor struct {
	// entry is called for each name in a directory, and tells whether it is a directory to be entered.
	entry func(fd int, name string, typ uint8) (enter bool, err error)
	// after, if set, is called when everything in a directory has been visited.
	after   func(dirfd int, name string) error
	lenient bool // what was moved away meanwhile is passed over
	apart   bool // what is mounted in the tree is passed over
}

// level is a directory on the way to where a walk is.
type level struct {
	name     string
	dev, ino uint64
	fd       int      // -1: given up, to be reached from below by ".."
	todo     []string // directories in it that are still to be entered
}

// errMoved says that a directory lies elsewhere than when it was entered.
var errMoved = errors.New("the tree was moved meanwhile")

// walk visits what is in the directory name below dirfd.
func walk(ctx context.Context, dirfd int, name string, v visitor) (err error) {
	var stack []level
	defer func() {
		for _, l := range stack {
			if l.fd >= 0 {
				_ = unix.Close(l.fd) // read only
			}
		}
	}()
	push := func(at int, name string) error {
		l, err := enter(at, name, v)
		if (errors.Is(err, unix.ENOENT) || v.apart && errors.Is(err, unix.EXDEV)) && len(stack) > 0 {
			return nil
		}
		if err != nil {
			return err
		}
		if n := len(stack); n > keptLevels {
			_ = unix.Close(stack[n-1].fd) // read only
			stack[n-1].fd = -1
		}
		stack = append(stack, l)
		return nil
	}
	if err := push(dirfd, name); err != nil {
		return err
	}
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		top := &stack[len(stack)-1]
		if n := len(top.todo); n > 0 {
			next := top.todo[n-1]
			top.todo = top.todo[:n-1]
			if err := push(top.fd, next); err != nil {
				return fmt.Errorf("%s: %w", next, err)
			}
			continue
		}
		if len(stack) == 1 {
			return nil
		}
		done := *top
		up := &stack[len(stack)-2]
		if up.fd < 0 {
			if up.fd, err = parent(done.fd, up); err != nil {
				if !v.lenient || !errors.Is(err, errMoved) {
					return err
				}
				for last := len(stack) - 1; last >= keptLevels; last-- { // go on with what is still open
					if stack[last].fd >= 0 {
						_ = unix.Close(stack[last].fd) // read only
					}
					stack = stack[:last]
				}
				continue
			}
		}
		_ = unix.Close(done.fd) // read only
		stack = stack[:len(stack)-1]
		if v.after != nil {
			if err := v.after(up.fd, done.name); err != nil {
				return fmt.Errorf("%s: %w", done.name, err)
			}
		}
	}
}

// parent opens the directory that a walk came from.
func parent(fd int, want *level) (int, error) {
	up, err := open(fd, "..")
	if errors.Is(err, unix.ENOENT) {
		return -1, errMoved
	}
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	if err = unix.Fstat(up, &st); err == nil && (st.Dev != want.dev || st.Ino != want.ino) {
		err = errMoved
	}
	if err != nil {
		_ = unix.Close(up) // read only
		return -1, err
	}
	return up, nil
}

// enter opens a directory and visits the names in it.
func enter(dirfd int, name string, v visitor) (level, error) {
	open := open
	if v.apart && dirfd != unix.AT_FDCWD {
		open = openMount
	}
	fd, err := open(dirfd, name)
	if err != nil {
		return level{}, err
	}
	l := level{name: name, fd: fd}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil {
		l.dev, l.ino = st.Dev, st.Ino
		l.todo, err = visit(fd, v)
	}
	if err != nil {
		_ = unix.Close(fd) // read only
		return level{}, err
	}
	return l, nil
}

// visit visits the names in a directory and gives those to be entered. A directory is not changed while it is being
// read.
func visit(fd int, v visitor) ([]string, error) {
	var names []string
	var types []uint8
	err := list(fd, func(name string, typ uint8) {
		names, types = append(names, name), append(types, typ)
	})
	if err != nil {
		return nil, err
	}
	dirs := names[:0]
	for i, name := range names {
		enter, err := v.entry(fd, name, types[i])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if enter {
			dirs = append(dirs, name)
		}
	}
	return slices.Clone(dirs), nil
}

func open(dirfd int, name string) (int, error) {
	for {
		fd, err := unix.Openat(dirfd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

// openMount is open of what lies on the mount of dirfd; else unix.EXDEV.
func openMount(dirfd int, name string) (int, error) {
	fd, err := again(func() (int, error) {
		return unix.Openat2(dirfd, name, &unix.OpenHow{
			Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_XDEV,
		})
	})
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) { // as containers say of calls that they do not know
		return open(dirfd, name)
	}
	return fd, err
}

var buffers = sync.Pool{New: func() any { return new([64 << 10]byte) }}

// list reads a directory by getdents64(2).
func list(fd int, fn func(name string, typ uint8)) error {
	room := buffers.Get().(*[64 << 10]byte)
	defer buffers.Put(room)
	for {
		n, err := unix.Getdents(fd, room[:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n == 0 {
			return gone(err) // a directory that was removed has nothing in it
		}
		// struct linux_dirent64: ino u64, off u64, reclen u16, type u8, name NUL-terminated
		for p := room[:n]; len(p) > 0; {
			reclen := binary.NativeEndian.Uint16(p[16:])
			name, _, _ := strings.Cut(string(p[19:reclen]), "\x00")
			typ := p[18]
			p = p[reclen:]
			if name != "." && name != ".." {
				fn(name, typ)
			}
		}
	}
}
