package extract

import (
	"errors"

	"golang.org/x/sys/unix"

	"snapfs/squashfs"
)

// makeOther makes a symbolic link, device, pipe or socket.
func (x *extraction) makeOther(at int, j *job) (done bool, err error) {
	e := j.e
	create := func() error {
		if e.Attr.Mode&unix.S_IFMT == unix.S_IFLNK {
			return unix.Symlinkat(e.Target, at, e.Name)
		}
		return unix.Mknodat(at, e.Name, e.Attr.Mode&(unix.S_IFMT|0o777), int(e.Attr.Rdev))
	}
	err = create()
	if errors.Is(err, unix.EEXIST) && x.mayExist(j.d, e.Name) {
		if err = unix.Unlinkat(at, e.Name, 0); err == nil {
			err = create()
		}
	}
	if denied(err) || refusedName(err) {
		x.skip(j.d, e.Name, kindOf(e), err)
		return false, nil
	}
	if err != nil {
		return false, err
	}
	x.others.Add(1)
	return true, x.otherAttributes(at, j.d, e)
}

// kindOf says what a skip has left out.
func kindOf(e *squashfs.Entry) string {
	switch e.Attr.Mode & unix.S_IFMT {
	case unix.S_IFCHR, unix.S_IFBLK:
		return "device"
	}
	return "name"
}

// otherAttributes gives what makeOther has made its attributes. It is opened as what it is, without what a device or
// a pipe does when it is opened.
func (x *extraction) otherAttributes(at int, d *dir, e *squashfs.Entry) error {
	fd, err := retry(func() (int, error) {
		return unix.Openat(at, e.Name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != e.Attr.Mode&unix.S_IFMT || st.Nlink != 1 {
		return errors.New("it has been replaced meanwhile")
	}
	link := st.Mode&unix.S_IFMT == unix.S_IFLNK
	mode := e.Attr.Mode & 0o7777
	if st.Uid != e.Attr.UID || st.Gid != e.Attr.GID {
		err := unix.Fchownat(fd, "", int(e.Attr.UID), int(e.Attr.GID), unix.AT_EMPTY_PATH)
		if err != nil {
			if !denied(err) {
				return err
			}
			x.skip(d, e.Name, "owner", err)
			mode &^= unix.S_ISUID | unix.S_ISGID
		}
	}
	acl, err := x.xattrs(d, e.Name, e, func(xattr string, value []byte) error {
		return unix.Lsetxattr(procPath(at, e.Name), xattr, value, 0)
	})
	if err != nil {
		return err
	}
	if !link && (acl || st.Mode&0o7777 != mode) {
		if err := unix.Chmod(procPath(fd, ""), mode); err != nil {
			if !denied(err) {
				return err
			}
			x.skip(d, e.Name, "mode", err)
		}
	}
	ts := times(e)
	if err := unix.UtimesNanoAt(at, e.Name, ts[:], unix.AT_SYMLINK_NOFOLLOW); err != nil {
		if !denied(err) {
			return err
		}
		x.skip(d, e.Name, "times", err)
	}
	return nil
}
