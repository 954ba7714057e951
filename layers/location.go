package layers

import (
	"bytes"
	"errors"
	"strconv"

	"golang.org/x/sys/unix"

	"snapfs/squashfs"
)

// location names an inode of the host for system calls: a name in a directory, or a descriptor of an inode that has
// lost its name. The caller keeps dirfd open.
type location struct {
	dirfd int
	name  string // "" : dirfd itself
	// foreign is set for what no overlay has made: its attributes are the host's own, see override.go.
	foreign bool
}

// nameIn names something in an open directory of an overlay.
func nameIn(dirfd int, name string) location { return location{dirfd: dirfd, name: name} }

// proc is a path for system calls that take no descriptor. With a name, calls must not follow links; without one they
// must follow exactly the link of /proc, which leads to the inode itself, even if that is a symlink.
func (p location) proc() string {
	s := "/proc/self/fd/" + strconv.Itoa(p.dirfd)
	if p.name != "" {
		s += "/" + p.name
	}
	return s
}

// stat is what callers see, but for what the overlay's attributes say.
func (p location) stat() (Attr, error) {
	a, err := p.hostStat()
	if err != nil || !p.translates() {
		return a, err
	}
	r, ok, err := p.readOverride(&a)
	if ok {
		r.apply(&a)
	}
	return a, err
}

// hostStat is what the host has.
func (p location) hostStat() (Attr, error) {
	var sx unix.Statx_t
	flags := unix.AT_SYMLINK_NOFOLLOW
	if p.name == "" {
		flags |= unix.AT_EMPTY_PATH
	}
	if err := statx(p.dirfd, p.name, flags, unix.STATX_BASIC_STATS|unix.STATX_BTIME, &sx); err != nil {
		return Attr{}, err
	}
	return hostAttr(&sx), nil
}

// hostAttr is the host's stat; Ino is the host's.
func hostAttr(sx *unix.Statx_t) Attr {
	a := Attr{
		Ino: sx.Ino, Size: sx.Size, Blocks: sx.Blocks, Mode: uint32(sx.Mode), Nlink: sx.Nlink, UID: sx.Uid, GID: sx.Gid,
		Rdev: unix.Mkdev(sx.Rdev_major, sx.Rdev_minor), Blksize: sx.Blksize,
		Atime: hostTime(sx.Atime), Mtime: hostTime(sx.Mtime), Ctime: hostTime(sx.Ctime),
	}
	if sx.Mask&unix.STATX_BTIME != 0 {
		a.Btime = hostTime(sx.Btime)
	}
	return a
}

// blocks is how many blocks of 512 bytes the host has allocated.
func (p location) blocks() (int64, error) {
	var sx unix.Statx_t
	flags := unix.AT_SYMLINK_NOFOLLOW
	if p.name == "" {
		flags |= unix.AT_EMPTY_PATH
	}
	err := statx(p.dirfd, p.name, flags, unix.STATX_BLOCKS, &sx)
	return int64(sx.Blocks), err
}

func hostTime(t unix.StatxTimestamp) squashfs.Time { return squashfs.Time{Sec: t.Sec, Nsec: t.Nsec} }

func (p location) chmod(mode uint32) error {
	if p.translates() {
		return p.chmodShown(mode)
	}
	defer steps.At("mode set")
	return p.hostChmod(mode)
}

func (p location) hostChmod(mode uint32) error {
	if p.name == "" {
		return unix.Fchmodat(unix.AT_FDCWD, p.proc(), mode&0o7777, 0)
	}
	return unix.Fchmodat(p.dirfd, p.name, mode&0o7777, 0)
}

func (p location) chown(uid, gid int) error {
	defer steps.At("owner set")
	if p.translates() {
		return p.chownShown(uid, gid)
	}
	flags := unix.AT_SYMLINK_NOFOLLOW
	if p.name == "" {
		flags |= unix.AT_EMPTY_PATH
	}
	return unix.Fchownat(p.dirfd, p.name, uid, gid, flags)
}

func (p location) utimes(atime, mtime unix.Timespec) error {
	ts := []unix.Timespec{atime, mtime}
	if p.name == "" {
		return unix.UtimesNanoAt(unix.AT_FDCWD, p.proc(), ts, 0)
	}
	return unix.UtimesNanoAt(p.dirfd, p.name, ts, unix.AT_SYMLINK_NOFOLLOW)
}

func (p location) readlink() (string, error) {
	buf := make([]byte, 256)
	for {
		n, err := unix.Readlinkat(p.dirfd, p.name, buf)
		if (errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT)) && p.translates() {
			return p.readTarget()
		}
		if err != nil {
			return "", err
		}
		if n < len(buf) {
			return string(buf[:n]), nil
		}
		buf = make([]byte, 2*len(buf))
	}
}

// listxattr lists raw names.
func (p location) listxattr() ([]string, error) {
	var small [512]byte
	buf := small[:]
	for {
		n, err := p.llistxattr(buf)
		switch {
		case errors.Is(err, unix.ERANGE):
			buf = make([]byte, 1<<16)
			continue
		case errors.Is(err, unix.ENOTSUP):
			return nil, nil
		case err != nil:
			return nil, err
		case n == 0:
			return nil, nil
		}
		var names []string
		for rest := buf[:n]; len(rest) > 0; { // each with its terminator; an iterator would have the buffer allocated
			end := bytes.IndexByte(rest, 0)
			if end < 0 {
				end = len(rest) - 1
			}
			if name, ok := p.shownXattr(string(rest[:end])); ok {
				names = append(names, name)
			}
			rest = rest[end+1:]
		}
		return names, nil
	}
}

// getxattr reads one raw attribute.
func (p location) getxattr(name string) ([]byte, error) {
	var small [256]byte
	buf := small[:]
	for {
		n, err := p.lgetxattr(name, buf)
		if errors.Is(err, unix.ERANGE) && len(buf) < 1<<16 {
			buf = make([]byte, 1<<16)
			continue
		}
		if err != nil {
			return nil, err
		}
		value := append([]byte{}, buf[:n]...)
		if name == aclAccess && p.translates() {
			return p.shownACL(value)
		}
		return value, nil
	}
}

func (p location) xattrs() ([]squashfs.Xattr, error) {
	names, err := p.listxattr()
	if err != nil {
		return nil, err
	}
	var out []squashfs.Xattr
	for _, name := range names {
		value, err := p.getxattr(name)
		if errors.Is(err, unix.ENODATA) {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		out = append(out, squashfs.Xattr{Name: name, Value: value})
	}
	return out, nil
}

func timespec(t squashfs.Time) unix.Timespec {
	return unix.Timespec{Sec: t.Sec, Nsec: int64(t.Nsec)}
}
