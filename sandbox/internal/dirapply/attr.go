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
// may take away from the next, and the times in the end.
func (x *runner) attributes(dir int, name, path string, f threeway.File, times bool) error {
	a := f.Stat()
	xattrs, err := f.Xattrs()
	if err != nil {
		return err
	}
	return x.r.do(func() error {
		var st unix.Stat_t
		if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return err
		}
		mode := a.Mode & 0o7777
		if st.Uid != a.UID || st.Gid != a.GID {
			err := unix.Fchownat(dir, name, int(a.UID), int(a.GID), unix.AT_SYMLINK_NOFOLLOW)
			if err != nil {
				if !denied(err) {
					return fmt.Errorf("%q: owner: %w", path, err)
				}
				x.skip(path, "owner", err)
				mode &^= unix.S_ISUID | unix.S_ISGID // they would be somebody else's
			}
		}
		if err := x.setXattrs(dir, name, path, xattrs); err != nil {
			return err
		}
		if kind(a.Mode) != unix.S_IFLNK {
			if err := unix.Fchmodat(dir, name, mode, 0); err != nil {
				if !denied(err) {
					return fmt.Errorf("%q: permissions: %w", path, err)
				}
				x.skip(path, "mode", err)
			}
		}
		x.Points.At("attributes set")
		if !times {
			return nil
		}
		return x.setTimes(dir, name, path, f)
	})
}

// setXattrs gives something these attributes, and takes others from it.
func (x *runner) setXattrs(dir int, name, path string, wanted map[string]string) error {
	has, err := xattrsAt(dir, name)
	if err != nil {
		return fmt.Errorf("%q: %w", path, err)
	}
	at := procPath(dir, name)
	for xattr := range has {
		if _, ok := wanted[xattr]; ok {
			continue
		}
		if err := unix.Lremovexattr(at, xattr); err != nil && !errors.Is(err, unix.ENODATA) {
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
		err := unix.Lsetxattr(at, xattr, []byte(value), 0)
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
func (x *runner) setTimes(dir int, name, path string, f threeway.File) error {
	m := f.Stat().Mtime
	t := unix.Timespec{Sec: m.Sec, Nsec: int64(m.Nsec)}
	err := unix.UtimesNanoAt(dir, name, []unix.Timespec{t, t}, unix.AT_SYMLINK_NOFOLLOW)
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
	slices.SortFunc(paths, func(a, b string) int { return comparePaths(b, a) })
	for _, path := range paths {
		if path == "" {
			continue
		}
		if err := x.directory(path, full[path], true); err != nil {
			return err
		}
	}
	return nil
}

// directory gives one directory its times, and its attributes if they are to change.
func (x *runner) directory(path string, full, times bool) error {
	f, err := x.goal.Lstat(path)
	if err != nil {
		return err
	}
	if f == nil || !isDir(f.Stat().Mode) {
		return nil
	}
	at := path
	if path == "" {
		at = "."
	}
	err = x.r.in(at, func(dir int, name string) error {
		var st unix.Stat_t
		if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return err
		}
		if !isDir(st.Mode) {
			return unix.ENOTDIR
		}
		return nil
	})
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		if x.Lenient {
			return nil
		}
		return x.left(path, "is no directory any more")
	}
	if err != nil {
		return described(path, err)
	}
	dir, name := split(path)
	fd := -1
	err = x.r.do(func() (err error) {
		fd, err = x.r.openDir(dir, unix.O_PATH)
		return err
	})
	if err != nil {
		return described(path, err)
	}
	defer unix.Close(fd) //nolint:errcheck // O_PATH
	if path == "" {
		name = "."
	}
	if full {
		return x.attributes(fd, name, path, f, times)
	}
	return x.r.do(func() error {
		if x.wide[path] || x.Resume || x.Back {
			if err := unix.Fchmodat(fd, name, f.Stat().Mode&0o7777, 0); err != nil && !denied(err) {
				return described(path, err)
			}
		}
		return x.setTimes(fd, name, path, f)
	})
}

// leave removes the stage, gives the root its times and writes everything to the disk.
func (x *runner) leave() error {
	name := stageStart + x.Name
	err := x.r.do(func() error {
		return unix.Unlinkat(int(x.r.dir.Fd()), name, unix.AT_REMOVEDIR)
	})
	x.Points.At("stage removed")
	if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) {
		err = x.left(name, "has something for which there is no place")
	}
	if err != nil {
		return err
	}
	full := slices.ContainsFunc(x.sets, func(m move) bool { return m.dst == "" })
	if err := x.directory("", full, true); err != nil {
		return err
	}
	err = x.sync(int(x.r.dir.Fd()))
	x.Points.At("directory synced")
	return err
}
