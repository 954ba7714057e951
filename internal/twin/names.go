package twin

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// What changes names, and what reads them.

func mkdir(t *tree, o Op) (string, error) { return "", unix.Mkdirat(t.root, o.A, uint32(o.N&0o7777)) }

func rmdir(t *tree, o Op) (string, error)  { return "", unix.Unlinkat(t.root, o.A, unix.AT_REMOVEDIR) }
func unlink(t *tree, o Op) (string, error) { return "", unix.Unlinkat(t.root, o.A, 0) }

// rename puts the time of a directory back that the kernel's overlayfs may change in a rename that fails.
func rename(flags uint) func(t *tree, o Op) (string, error) {
	return func(t *tree, o Op) (string, error) {
		from := path.Dir(o.A)
		var before, after unix.Stat_t
		known := t.reference && unix.Fstatat(t.root, from, &before, 0) == nil
		err := unix.Renameat2(t.root, o.A, t.root, o.B, flags)
		if !known || !errors.Is(err, unix.ENOTEMPTY) || unix.Fstatat(t.root, from, &after, 0) != nil || after.Mtim == before.Mtim {
			return "", err
		}
		e := become(0)
		if e == nil {
			e = unix.UtimesNanoAt(t.root, from, []unix.Timespec{{Nsec: unix.UTIME_OMIT}, before.Mtim}, 0)
		}
		if e = errors.Join(e, become(o.UID)); e != nil {
			return "", fmt.Errorf("times of %s: %w", from, e)
		}
		return "", err
	}
}

// link looks at the file before. Where hard links are protected (fs.protected_hardlinks), the kernel refuses to link a file
// that is setuid and belongs to somebody else, and goes by the mode that it has cached. Over FUSE that is the one before a
// write has taken setuid away, until somebody asks for the attributes.
func link(t *tree, o Op) (string, error) {
	var st unix.Stat_t
	_ = unix.Fstatat(t.root, o.A, &st, unix.AT_SYMLINK_NOFOLLOW) // link(2) tells what is wrong
	return "", unix.Linkat(t.root, o.A, t.root, o.B, 0)
}

// linkFollow is link for what a symlink leads to.
func linkFollow(t *tree, o Op) (string, error) {
	var st unix.Stat_t
	_ = unix.Fstatat(t.root, o.A, &st, 0) // as above
	return "", unix.Linkat(t.root, o.A, t.root, o.B, unix.AT_SYMLINK_FOLLOW)
}

// linkOpen gives an open file another name: back in the tree, if it had none left.
func linkOpen(t *tree, o Op) (string, error) {
	if t.open[o.Slot] < 0 {
		return "empty", nil
	}
	var st unix.Stat_t
	_ = unix.Fstat(t.open[o.Slot], &st) // as in link
	open := "/proc/self/fd/" + strconv.Itoa(t.open[o.Slot])
	return "", unix.Linkat(unix.AT_FDCWD, open, t.root, o.A, unix.AT_SYMLINK_FOLLOW)
}

// symlink makes a link that stays in the tree, a dangling one, or one of the greatest length.
func symlink(t *tree, o Op) (string, error) {
	target := strings.TrimRight(o.B, "./")
	switch o.N % 20 {
	case 0:
		target = strings.Repeat("x", 4095)
	case 1:
		target = ""
	case 2:
		target = strings.Repeat("x/", 1500)
	}
	return "", unix.Symlinkat(target, t.root, o.A)
}

// mknod makes a node of every type. Device 0/0 is not among them: as a character device it is a whiteout.
func mknod(t *tree, o Op) (string, error) {
	types := []uint32{unix.S_IFREG, unix.S_IFIFO, unix.S_IFSOCK, unix.S_IFCHR, unix.S_IFBLK, 0}
	dev := 0
	kind := types[o.M%int64(len(types))]
	switch kind {
	case unix.S_IFCHR:
		dev = int(unix.Mkdev(1, uint32(3+4*(o.N%2)))) // null or full
	case unix.S_IFBLK:
		dev = int(unix.Mkdev(250, uint32(o.N%1000)))
	}
	return "", unix.Mknodat(t.root, o.A, kind|uint32(o.N&0o7777), dev)
}

func readlink(t *tree, o Op) (string, error) {
	buf := make([]byte, 5000)
	n, err := unix.Readlinkat(t.root, o.A, buf)
	return string(buf[:max(n, 0)]), err
}

// list reads a directory; the order is the file system's.
func list(t *tree, o Op) (string, error) {
	all, err := entries(t, o.A)
	slices.Sort(all)
	return strings.Join(all, " "), err
}

// entries are the names in a directory with their types, as getdents gives them.
func entries(t *tree, p string) ([]string, error) {
	fd, err := unix.Openat(t.root, p, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	var all []string
	buf := make([]byte, 4096)
	for {
		n, err := unix.Getdents(fd, buf)
		if n <= 0 {
			return all, err
		}
		// struct linux_dirent64: ino, off, reclen at 16, type at 18, name from 19.
		for b := buf[:n]; len(b) > 0; b = b[int(b[16])|int(b[17])<<8:] {
			name := b[19 : int(b[16])|int(b[17])<<8]
			all = append(all, string(name[:bytes.IndexByte(name, 0)])+":"+strconv.Itoa(int(b[18])))
		}
	}
}

// rmtree removes a tree, so that what the operations made does not grow without end.
func rmtree(t *tree, o Op) (string, error) {
	if strings.HasSuffix(o.A, "..") {
		return "above", nil
	}
	err := unix.Unlinkat(t.root, o.A, 0)
	if !errors.Is(err, unix.EISDIR) {
		return "", err
	}
	all, err := entries(t, o.A)
	if err != nil {
		return "", err
	}
	slices.Sort(all)
	for _, e := range all {
		if name := e[:strings.LastIndexByte(e, ':')]; name != "." && name != ".." {
			if _, err := rmtree(t, Op{A: o.A + "/" + name}); err != nil {
				return "", err
			}
		}
	}
	return "", unix.Unlinkat(t.root, o.A, unix.AT_REMOVEDIR)
}
