package dirapply

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"snapfs/sandbox/internal/threeway"
)

// attributes gives something what its file in a tree has: owner, attributes and permissions, in this order, because each
// may take away from the next, and the times in the end. fd is of the thing itself, opened through no link and not for
// reading: no path that somebody may exchange is followed.
func (x *runner) attributes(fd int, path string, f threeway.File) error {
	a := f.Stat()
	xattrs, err := f.Xattrs()
	if err != nil {
		return err
	}
	return x.r.do(func() error {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return err
		}
		if kind(st.Mode) != kind(a.Mode) {
			return fmt.Errorf("%w: %q is something else", ErrChanged, path)
		}
		mode := a.Mode & 0o7777
		if st.Uid != a.UID || st.Gid != a.GID {
			err := unix.Fchownat(fd, "", int(a.UID), int(a.GID), unix.AT_EMPTY_PATH)
			if err != nil {
				if !denied(err) {
					return fmt.Errorf("%q: owner: %w", path, err)
				}
				x.skip(path, "owner", err)
				mode &^= unix.S_ISUID | unix.S_ISGID // they would be somebody else's
			}
		}
		if err := x.setXattrs(fd, path, xattrs); err != nil {
			return err
		}
		if kind(a.Mode) != unix.S_IFLNK {
			if err := unix.Chmod(fdPath(fd), mode); err != nil {
				if !denied(err) {
					return fmt.Errorf("%q: permissions: %w", path, err)
				}
				x.skip(path, "mode", err)
			}
		}
		x.Points.At("attributes set")
		return x.setTimes(fd, path, f)
	})
}

// setXattrs gives something these attributes, and takes others from it.
func (x *runner) setXattrs(fd int, path string, wanted map[string]string) error {
	has, err := xattrsOf(fd)
	if err != nil {
		return fmt.Errorf("%q: %w", path, err)
	}
	at := fdPath(fd)
	for xattr := range has {
		if _, ok := wanted[xattr]; ok {
			continue
		}
		if err := unix.Removexattr(at, xattr); err != nil && !errors.Is(err, unix.ENODATA) {
			if strings.HasPrefix(xattr, "security.") && denied(err) {
				continue // the host gives files such
			}
			x.skip(path, "xattr "+xattr, err)
		}
	}
	for xattr, value := range wanted {
		if now, ok := has[xattr]; ok && now == value {
			continue
		}
		err := unix.Setxattr(at, xattr, []byte(value), 0)
		switch {
		case err == nil:
		case denied(err), errors.Is(err, unix.ERANGE), errors.Is(err, unix.E2BIG):
			x.skip(path, "xattr "+xattr, err)
		default:
			return fmt.Errorf("%q: attribute %s: %w", path, xattr, err)
		}
	}
	return nil
}

// setTimes sets the times: that of access as that of modification, as in a mount.
func (x *runner) setTimes(fd int, path string, f threeway.File) error {
	m := f.Stat().Mtime
	t := unix.Timespec{Sec: m.Sec, Nsec: int64(m.Nsec)}
	err := unix.UtimesNanoAt(unix.AT_FDCWD, fdPath(fd), []unix.Timespec{t, t}, 0)
	if denied(err) {
		x.skip(path, "times", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("%q: times: %w", path, err)
	}
	return nil
}

// directories gives those in which something has changed their attributes and times, innermost first. The root itself
// gets its times when the stage is gone.
func (x *runner) directories() error {
	full := map[string]bool{}
	for _, m := range slices.Concat(x.puts, x.sets) {
		full[m.dst] = true
	}
	paths := make([]string, 0, len(x.dirs))
	for path := range x.dirs {
		paths = append(paths, path)
	}
	slices.SortFunc(paths, func(a, b string) int { return threeway.ComparePaths(b, a) })
	for _, path := range paths {
		if path == "" {
			continue
		}
		if err := x.directory(path, full[path]); err != nil {
			return err
		}
	}
	return nil
}

// directory gives one directory its times, and its attributes if they are to change.
func (x *runner) directory(path string, full bool) error {
	f, err := x.goal.Lstat(path)
	if err != nil {
		return err
	}
	if f == nil || !isDir(f.Stat().Mode) || slices.Contains(x.result.Left, path) {
		return nil
	}
	fd := -1
	err = x.r.do(func() (err error) {
		fd, err = x.r.openDir(path, unix.O_PATH)
		return err
	})
	if missing(err) {
		if x.Lenient {
			return nil
		}
		return x.left(path, "is no directory any more")
	}
	if err != nil {
		return described(path, err)
	}
	defer unix.Close(fd) //nolint:errcheck // O_PATH
	if full {
		return x.attributes(fd, path, f)
	}
	return x.r.do(func() error {
		if x.wide[path] || x.Resume || x.Back {
			if err := unix.Chmod(fdPath(fd), f.Stat().Mode&0o7777); err != nil && !denied(err) {
				return described(path, err)
			}
		}
		return x.setTimes(fd, path, f)
	})
}
