package extract

import (
	"errors"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"

	"snapfs/squashfs"
)

const (
	xattrAccessACL  = "system.posix_acl_access"
	xattrDefaultACL = "system.posix_acl_default"
)

// retry repeats a system call that a signal has interrupted.
func retry(fn func() (int, error)) (int, error) {
	for {
		n, err := fn()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// procPath names an open file, or a name in an open directory, where a system call takes only a path. What follows the
// number of the descriptor is one element, and is not followed by calls that do not follow links.
func procPath(fd int, name string) string {
	p := "/proc/self/fd/" + strconv.Itoa(fd)
	if name != "" {
		p += "/" + name
	}
	return p
}

// denied reports that the host, or the rights of this process, do not allow something.
func denied(err error) bool {
	for _, e := range []error{unix.EPERM, unix.EACCES, unix.EOPNOTSUPP, unix.EINVAL, unix.ENOSYS} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// refusedName reports that the host's file system does not take a name.
func refusedName(err error) bool {
	return errors.Is(err, unix.ENAMETOOLONG) || errors.Is(err, unix.EILSEQ) || errors.Is(err, unix.EINVAL)
}

// attributes gives an open file or directory all its attributes, the modification time last.
func (x *extraction) attributes(fd int, d *dir, name string, e *squashfs.Entry) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	mode := e.Attr.Mode & 0o7777
	if st.Uid != e.Attr.UID || st.Gid != e.Attr.GID {
		if err := unix.Fchown(fd, int(e.Attr.UID), int(e.Attr.GID)); err != nil {
			if !denied(err) {
				return err
			}
			x.skip(d, name, "owner", err)
			mode &^= unix.S_ISUID | unix.S_ISGID // they would be somebody else's
		}
	}
	acl, err := x.xattrs(d, name, e, func(xattr string, value []byte) error { return unix.Fsetxattr(fd, xattr, value, 0) })
	if err != nil {
		return err
	}
	if acl || st.Mode&0o7777 != mode {
		if err := unix.Fchmod(fd, mode); err != nil {
			if !denied(err) {
				return err
			}
			x.skip(d, name, "mode", err)
		}
	}
	if err := setTimes(fd, times(e)); err != nil {
		if !denied(err) {
			return err
		}
		x.skip(d, name, "times", err)
	}
	return nil
}

// setTimes sets the times of an open file.
func setTimes(fd int, ts [2]unix.Timespec) error {
	_, _, errno := unix.Syscall6(unix.SYS_UTIMENSAT, uintptr(fd), 0, uintptr(unsafe.Pointer(&ts)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// times are those for utimensat(2). Snapshots keep no access times: as in a mount, they are the modification times.
func times(e *squashfs.Entry) [2]unix.Timespec {
	t := unix.Timespec{Sec: e.Attr.Mtime.Sec, Nsec: int64(e.Attr.Mtime.Nsec)}
	return [2]unix.Timespec{t, t}
}

// xattrs sets extended attributes by set, after the owner and before the mode. acl reports whether one of them may have
// changed the mode.
func (x *extraction) xattrs(
	d *dir, name string, e *squashfs.Entry, set func(name string, value []byte) error,
) (acl bool, err error) {
	if e.Shared.ID == 0 && len(e.Xattrs) == 0 {
		return false, nil
	}
	list, err := e.Attributes()
	if err != nil {
		return false, err
	}
	for _, a := range list {
		err := set(a.Name, a.Value)
		switch {
		case err == nil:
			acl = acl || a.Name == xattrAccessACL
		case denied(err), errors.Is(err, unix.ERANGE), errors.Is(err, unix.E2BIG), x.tooLarge(err):
			x.skip(d, name, "xattr "+a.Name, err)
		default:
			return acl, err
		}
	}
	return acl, nil
}

// tooLarge tells an attribute for which an inode has no room, which some file systems call a full disk, from one.
func (x *extraction) tooLarge(err error) bool {
	var fs unix.Statfs_t
	return errors.Is(err, unix.ENOSPC) && unix.Fstatfs(x.root, &fs) == nil && int64(fs.Bavail)*fs.Bsize > 1<<20
}
