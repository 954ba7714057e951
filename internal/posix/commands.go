package posix

import (
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// commands are what a script may say; missing arguments are empty.
var commands = map[string]func(m *machine, a []string) error{
	"make":    makeNode,
	"mkdir":   func(_ *machine, a []string) error { return unix.Mkdir(a[0], mode(a[1], 0o755)) },
	"rmdir":   func(_ *machine, a []string) error { return unix.Rmdir(a[0]) },
	"unlink":  func(_ *machine, a []string) error { return unix.Unlink(a[0]) },
	"rename":  func(_ *machine, a []string) error { return unix.Rename(a[0], a[1]) },
	"link":    func(_ *machine, a []string) error { return unix.Link(a[0], a[1]) },
	"linkat":  func(_ *machine, a []string) error { return unix.Linkat(-100, a[0], -100, a[1], unix.AT_SYMLINK_FOLLOW) },
	"symlink": func(_ *machine, a []string) error { return unix.Symlink(a[0], a[1]) },
	"mkfifo":  func(_ *machine, a []string) error { return unix.Mkfifo(a[0], mode(a[1], 0o644)) },
	"renamex": func(_ *machine, a []string) error {
		flags := map[string]uint{"noreplace": unix.RENAME_NOREPLACE, "exchange": unix.RENAME_EXCHANGE, "both": 3}
		return unix.Renameat2(-100, a[0], -100, a[1], flags[a[2]])
	},
	"linkfd": func(m *machine, a []string) error {
		return unix.Linkat(-100, fmt.Sprintf("/proc/self/fd/%d", m.file(a[0])), -100, a[1], unix.AT_SYMLINK_FOLLOW)
	},
	"mknod": func(_ *machine, a []string) error {
		kind := map[string]uint32{
			"b": unix.S_IFBLK, "c": unix.S_IFCHR, "p": unix.S_IFIFO, "s": unix.S_IFSOCK, "f": unix.S_IFREG, "d": unix.S_IFDIR,
		}[a[1]]
		dev := 0
		if a[3] != "" {
			dev = int(unix.Mkdev(uint32(num(a[3])), uint32(num(a[4]))))
		}
		return unix.Mknod(a[0], kind|mode(a[2], 0o644), dev)
	},
	"umask": func(_ *machine, a []string) error { unix.Umask(num(a[0])); return nil },

	"open": func(_ *machine, a []string) error {
		fd, err := openWords(a)
		unix.Close(fd)
		return err
	},
	"hold": func(m *machine, a []string) error { // hold ID NAME FLAGS MODE
		fd, err := openWords(a[1:])
		if err == nil {
			m.files[a[0]] = fd
		}
		return err
	},
	"close":     func(m *machine, a []string) error { return unix.Close(m.file(a[0])) },
	"fwrite":    func(m *machine, a []string) error { _, err := unix.Write(m.file(a[0]), []byte(a[1])); return err },
	"ftruncate": func(m *machine, a []string) error { return unix.Ftruncate(m.file(a[0]), int64(num(a[1]))) },
	"fchmod":    func(m *machine, a []string) error { return unix.Fchmod(m.file(a[0]), mode(a[1], 0)) },
	"fchown":    func(m *machine, a []string) error { return unix.Fchown(m.file(a[0]), num(a[1]), num(a[2])) },
	"fsync":     func(m *machine, a []string) error { return unix.Fsync(m.file(a[0])) },
	"fallocate": func(m *machine, a []string) error {
		kind := map[string]uint32{
			"": 0, "keep": unix.FALLOC_FL_KEEP_SIZE, "zero": unix.FALLOC_FL_ZERO_RANGE,
			"punch": unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE,
		}[a[3]]
		return unix.Fallocate(m.file(a[0]), kind, int64(num(a[1])), int64(num(a[2])))
	},
	"fread": func(m *machine, a []string) error {
		buf := make([]byte, 100)
		n, err := unix.Pread(m.file(a[0]), buf, int64(num(a[1])))
		if err != nil {
			return err
		}
		return m.say("%q", buf[:n])
	},
	"fstat": func(m *machine, a []string) error {
		var st unix.Stat_t
		if err := unix.Fstat(m.file(a[0]), &st); err != nil {
			return err
		}
		return m.fields(&st, a[1])
	},
	"stat": func(m *machine, a []string) error {
		var st unix.Stat_t
		if err := unix.Stat(a[0], &st); err != nil {
			return err
		}
		return m.fields(&st, a[1])
	},
	"lstat": func(m *machine, a []string) error {
		var st unix.Stat_t
		if err := unix.Lstat(a[0], &st); err != nil {
			return err
		}
		return m.fields(&st, a[1])
	},
	"same": func(m *machine, a []string) error {
		var one, two unix.Stat_t
		if err := unix.Lstat(a[0], &one); err != nil {
			return err
		}
		if err := unix.Lstat(a[1], &two); err != nil {
			return err
		}
		return m.say("%t", one.Ino == two.Ino && one.Dev == two.Dev)
	},
	"mark":  func(m *machine, a []string) error { return m.mark(a) },
	"moved": func(m *machine, a []string) error { return m.moved(a[0]) },

	"chmod":    func(_ *machine, a []string) error { return unix.Chmod(a[0], mode(a[1], 0)) },
	"chown":    func(_ *machine, a []string) error { return unix.Chown(a[0], num(a[1]), num(a[2])) },
	"lchown":   func(_ *machine, a []string) error { return unix.Lchown(a[0], num(a[1]), num(a[2])) },
	"truncate": func(_ *machine, a []string) error { return unix.Truncate(a[0], int64(num(a[1]))) },
	"access": func(_ *machine, a []string) error {
		return unix.Faccessat2(-100, a[0], mode(a[1], 0), unix.AT_EACCESS)
	},
	"utimens": func(_ *machine, a []string) error { // utimens NAME ATIME MTIME [nofollow]
		how := 0
		if a[3] == "nofollow" {
			how = unix.AT_SYMLINK_NOFOLLOW
		}
		return unix.UtimesNanoAt(-100, a[0], []unix.Timespec{timespec(a[1]), timespec(a[2])}, how)
	},
	"utimesnull": func(_ *machine, a []string) error { return unix.UtimesNanoAt(-100, a[0], nil, 0) },
	"write": func(_ *machine, a []string) error {
		fd, err := unix.Open(a[0], unix.O_WRONLY|unix.O_APPEND|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		_, err = unix.Write(fd, []byte(a[1]))
		return err
	},
	"read": func(m *machine, a []string) error {
		b, err := os.ReadFile(a[0])
		if err != nil {
			return err
		}
		return m.say("%q", b)
	},
	"readlink": func(m *machine, a []string) error {
		buf := make([]byte, 5000)
		n, err := unix.Readlink(a[0], buf)
		if err != nil {
			return err
		}
		return m.say("%s", buf[:n])
	},
	"list": func(m *machine, a []string) error {
		d, err := os.Open(a[0])
		if err != nil {
			return err
		}
		defer d.Close() //nolint:errcheck // only read
		names, err := d.Readdirnames(-1)
		slices.Sort(names)
		if err != nil {
			return err
		}
		return m.say("[%s]", strings.Join(names, ","))
	},

	"setxattr": func(_ *machine, a []string) error {
		flags := map[string]int{"create": unix.XATTR_CREATE, "replace": unix.XATTR_REPLACE}
		return unix.Lsetxattr(a[0], a[1], []byte(a[2]), flags[a[3]])
	},
	"getxattr": func(m *machine, a []string) error {
		buf := make([]byte, 1000)
		n, err := unix.Lgetxattr(a[0], a[1], buf)
		if err != nil {
			return err
		}
		return m.say("%q", buf[:n])
	},
	"removexattr": func(_ *machine, a []string) error { return unix.Lremovexattr(a[0], a[1]) },
	"listxattr": func(m *machine, a []string) error {
		buf := make([]byte, 5000)
		n, err := unix.Llistxattr(a[0], buf)
		if err != nil {
			return err
		}
		names := strings.Split(strings.TrimSuffix(string(buf[:n]), "\x00"), "\x00")
		slices.Sort(names)
		return m.say("[%s]", strings.Join(names, ","))
	},
	"setacl": func(_ *machine, a []string) error { return unix.Setxattr(a[0], "system.posix_acl_"+a[1], acl(a[2]), 0) },
	"rmacl":  func(_ *machine, a []string) error { return unix.Removexattr(a[0], "system.posix_acl_"+a[1]) },
	"setcap": func(_ *machine, a []string) error {
		v := make([]byte, 20)
		v[3], v[4] = 2, 1 // VFS_CAP_REVISION_2, CAP_CHOWN permitted
		return unix.Setxattr(a[0], "security.capability", v, 0)
	},
	"statfs": func(m *machine, a []string) error {
		var st unix.Statfs_t
		if err := unix.Statfs(a[0], &st); err != nil {
			return err
		}
		return m.say("%d,%t", st.Namelen, st.Blocks > 0)
	},
}

// makeNode makes an object of a type: make TYPE NAME [MODE].
func makeNode(_ *machine, a []string) error {
	switch a[0] {
	case "regular":
		fd, err := unix.Open(a[1], unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, mode(a[2], 0o644))
		unix.Close(fd)
		return err
	case "dir":
		return unix.Mkdir(a[1], mode(a[2], 0o755))
	case "symlink":
		return unix.Symlink("target", a[1])
	}
	kind := map[string]uint32{
		"fifo": unix.S_IFIFO, "block": unix.S_IFBLK, "char": unix.S_IFCHR, "socket": unix.S_IFSOCK,
	}[a[0]]
	return unix.Mknod(a[1], kind|mode(a[2], 0o644), int(unix.Mkdev(1, 2)))
}

// openWords opens: NAME FLAGS [MODE].
func openWords(a []string) (int, error) {
	f, err := flags(a[1])
	if err != nil {
		return -1, err
	}
	return unix.Open(a[0], f, mode(a[2], 0o644))
}

// timespec is now, omit, or seconds and nanoseconds.
func timespec(s string) unix.Timespec {
	switch s {
	case "now":
		return unix.Timespec{Nsec: unix.UTIME_NOW}
	case "omit":
		return unix.Timespec{Nsec: unix.UTIME_OMIT}
	}
	sec, nsec, _ := strings.Cut(s, ".")
	t := unix.Timespec{Sec: int64(num(sec))}
	if nsec != "" {
		t.Nsec = int64(num(nsec))
	}
	return t
}

// acl is an ACL in the kernel's form from USER:NAMEDUSER:GROUP:MASK:OTHER, each one digit, the named user being 65534.
func acl(s string) []byte {
	b := binary.LittleEndian.AppendUint32(nil, 2)
	for i, tag := range []uint16{1, 2, 4, 0x10, 0x20} {
		id := uint32(0xffffffff)
		if tag == 2 {
			id = 65534
		}
		b = binary.LittleEndian.AppendUint16(b, tag)
		b = binary.LittleEndian.AppendUint16(b, uint16(s[2*i]-'0'))
		b = binary.LittleEndian.AppendUint32(b, id)
	}
	return b
}
