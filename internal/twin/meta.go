package twin

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// What reads and changes attributes.

// old is the end of the times that utimes sets.
const old = 1_200_000_000

func stat(t *tree, o Op) (string, error) {
	var st unix.Stat_t
	flags := unix.AT_SYMLINK_NOFOLLOW
	if o.N%3 == 0 {
		flags = 0
	}
	err := unix.Fstatat(t.root, o.A, &st, flags)
	return line(&st), err
}

func fstat(t *tree, o Op) (string, error) {
	return onSlot(t, o, func(fd int) (string, error) {
		st, err := t.stat(fd)
		return line(&st), err
	})
}

// stat is that of an open file. The kernel's overlayfs gives one link to a merged directory, whether it is still there or
// not, and may do so to a file that a rename has replaced, if it is open as a path only.
func (t *tree) stat(fd int) (st unix.Stat_t, err error) {
	if err = unix.Fstat(fd, &st); err != nil {
		return st, err
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	isDir := st.Mode&unix.S_IFMT == unix.S_IFDIR
	if (t.reference && isDir || flags&unix.O_PATH != 0 && !isDir) && removed(fd) {
		st.Nlink = 0
	}
	return st, err
}

// removed reports whether the kernel knows that the name by which a file was opened is gone.
func removed(fd int) bool {
	name, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	return err == nil && strings.HasSuffix(name, " (deleted)")
}

// line is what of a stat is the same everywhere. Sizes of directories have no meaning, and of their link counts only
// whether they were removed.
func line(st *unix.Stat_t) string {
	nlink, size, mtime := st.Nlink, st.Size, time.Unix(st.Mtim.Unix()).UTC().String()
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		nlink, size = min(nlink, 1), 0
	}
	if st.Rdev != 0 {
		nlink = 0 // an open device that was unlinked keeps its link in the kernel's overlayfs; names are compared by Compare
	}
	if st.Mtim.Sec > old {
		mtime = "now"
	}
	return fmt.Sprintf("%o %d:%d links %d size %d dev %x %s", st.Mode, st.Uid, st.Gid, nlink, size, st.Rdev, mtime)
}

func chmod(t *tree, o Op) (string, error) {
	return "", unix.Fchmodat(t.root, o.A, uint32(o.N&0o7777), 0)
}

func fchmod(t *tree, o Op) (string, error) {
	return onSlot(t, o, func(fd int) (string, error) { return "", unix.Fchmod(fd, uint32(o.N&0o7777)) })
}

// owners are users and groups to give a file to; -1 leaves it.
var owners = []int{0, 1001, 1002, -1, 70000}

func chown(t *tree, o Op) (string, error) {
	uid, gid := owners[o.N%int64(len(owners))], owners[o.M%int64(len(owners))]
	if uid == -1 && gid == -1 && o.UID != 0 {
		gid = o.UID // FUSE does not refuse a change of nothing to those who may not clear setuid, it only does nothing
	}
	return "", unix.Fchownat(t.root, o.A, uid, gid, []int{0, unix.AT_SYMLINK_NOFOLLOW}[o.N/8%2])
}

func fchown(t *tree, o Op) (string, error) {
	return onSlot(t, o, func(fd int) (string, error) {
		if st, err := t.stat(fd); err != nil || st.Nlink == 0 || st.Rdev != 0 { // see line
			return "no name", err // what has none keeps setuid on snapfs, so that overlayfs over it can copy up
		}
		return "", unix.Fchown(fd, owners[o.N%int64(len(owners)-2)], owners[o.M%int64(len(owners))])
	})
}

// times are old ones, now, and unchanged ones.
func times(o Op) []unix.Timespec {
	one := func(n int64) unix.Timespec {
		switch n % 8 {
		case 0:
			return unix.Timespec{Nsec: unix.UTIME_NOW}
		case 1:
			return unix.Timespec{Nsec: unix.UTIME_OMIT}
		}
		return unix.Timespec{Sec: 1_000_000_000 + n, Nsec: n * 900}
	}
	return []unix.Timespec{one(o.M), one(o.N)}
}

func utimes(t *tree, o Op) (string, error) {
	return "", unix.UtimesNanoAt(t.root, o.A, times(o), []int{0, unix.AT_SYMLINK_NOFOLLOW}[o.N/8%2])
}

func futimes(t *tree, o Op) (string, error) {
	return onSlot(t, o, func(fd int) (string, error) {
		return "", unix.UtimesNanoAt(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), times(o), 0)
	})
}

func access(t *tree, o Op) (string, error) {
	return "", unix.Faccessat2(t.root, o.A, uint32(o.N&7), unix.AT_EACCESS)
}

// umask is that of the process: both trees have the same.
func umask(_ *tree, o Op) (string, error) {
	unix.Umask([]int{0, 0o022, 0o077, 0o002}[o.N%4])
	return "", nil
}

// attribute is a name of every name space.
func attribute(o Op) string {
	spaces := []string{"user.", "user.", "trusted.", "security.", "unknown.", ""}
	name := spaces[o.M%int64(len(spaces))] + o.Data[:1]
	if o.M%97 == 0 {
		name += strings.Repeat("n", 250)
	}
	return name
}

// value is of any length up to 3,000 bytes, and rarely longer than any file system takes.
func value(o Op) []byte {
	n := o.N % 40
	switch o.N % 50 {
	case 0:
		n = o.N % 3000
	case 1:
		n = 65537
	}
	return bytes.Repeat([]byte{byte(o.M)}, int(n))
}

func setxattr(t *tree, o Op) (string, error) {
	set := unix.Lsetxattr
	if o.N%4 == 0 {
		set = unix.Setxattr
	}
	return "", set(t.path(o.A), attribute(o), value(o), int(o.N/8%4)) // none, create, replace, both
}

func fsetxattr(t *tree, o Op) (string, error) {
	return onSlot(t, o, func(fd int) (string, error) {
		return "", unix.Fsetxattr(fd, attribute(o), value(o), int(o.N/8%4))
	})
}

func removexattr(t *tree, o Op) (string, error) {
	return "", unix.Lremovexattr(t.path(o.A), attribute(o))
}

func getxattr(t *tree, o Op) (string, error) {
	buf := make([]byte, []int{0, 10, 70000}[o.N%3])
	n, err := unix.Lgetxattr(t.path(o.A), attribute(o), buf)
	return fmt.Sprintf("%d %.20q", n, buf[:max(0, min(n, len(buf)))]), err
}

func listxattr(t *tree, o Op) (string, error) {
	buf := make([]byte, 1<<16)
	n, err := unix.Llistxattr(t.path(o.A), buf)
	all := strings.Split(string(buf[:max(n, 0)]), "\x00")
	slices.Sort(all)
	return strings.Join(all, " "), err
}

// acl is an ACL in the kernel's form: version 2, then tag, permissions and id of each entry. Some are no valid ones.
func acl(o Op) []byte {
	b := binary.LittleEndian.AppendUint32(nil, 2)
	add := func(tag, perm uint16, id uint32) {
		b = binary.LittleEndian.AppendUint16(b, tag)
		b = binary.LittleEndian.AppendUint16(b, perm)
		b = binary.LittleEndian.AppendUint32(b, id)
	}
	const none = 0xffffffff
	add(1, uint16(o.N&7), none)
	if o.M%3 > 0 {
		add(2, uint16(o.N>>3&7), 1001)
	}
	add(4, uint16(o.N>>6&7), none)
	if o.M%3 > 0 && o.M%11 > 0 { // a mask is needed with a named user
		add(0x10, uint16(o.N>>9&7), none)
	}
	add(0x20, uint16(o.N>>12&7), none)
	return b
}

func aclName(o Op) string {
	return "system.posix_acl_" + []string{"access", "default"}[o.M/16%2]
}

func setacl(t *tree, o Op) (string, error) {
	return "", unix.Setxattr(t.path(o.A), aclName(o), acl(o), 0)
}

// removeacl removes an ACL. Where there is none the kernel's overlayfs says so of a lower's file, but not of an
// upper's.
func removeacl(t *tree, o Op) (string, error) {
	err := unix.Removexattr(t.path(o.A), aclName(o))
	if errors.Is(err, unix.ENODATA) {
		err = nil
	}
	return "", err
}
