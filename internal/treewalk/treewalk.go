package treewalk

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Time is a timespec.
type Time struct{ Sec, Nsec int64 }

// Extent is a range of a file that holds data.
type Extent struct{ Off, Len int64 }

// Node is one path of a tree.
type Node struct {
	Path                       string // relative to the root, which is "."; raw bytes
	Mode                       uint32 // st_mode
	UID, GID                   uint32
	Nlink, Ino, Rdev           uint64
	Size                       int64 // of a directory always 0
	Atime, Mtime, Ctime, Btime Time
	Hash                       string // SHA-256 of a regular file's contents, in hex
	Target                     string // of a symlink
	Group                      string // first path of the hard-link group, "" if the file has one name in the tree
	Xattrs                     map[string]string
	Extents                    []Extent
}

// Walk lists everything below root, the root included, in byte order of paths. It stays on root's file system: a
// mount point inside is listed, not entered. Paths may be of any length.
func Walk(root string) ([]Node, error) {
	fd, err := unix.Open(root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: root, Err: err}
	}
	defer unix.Close(fd)
	w := walker{}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, &os.PathError{Op: "stat", Path: root, Err: err}
	}
	w.dev = st.Dev
	if err := w.add(fd, ".", "."); err != nil {
		return nil, err
	}
	if err := w.dir(fd, ""); err != nil {
		return nil, err
	}
	slices.SortFunc(w.nodes, func(a, b Node) int { return cmp.Compare(a.Path, b.Path) })
	group(w.nodes)
	return w.nodes, nil
}

// group names the hard-link groups.
func group(nodes []Node) {
	first := map[uint64]int{}
	for i := range nodes {
		n := &nodes[i]
		if n.Mode&unix.S_IFMT == unix.S_IFDIR || n.Nlink < 2 {
			continue
		}
		f, ok := first[n.Ino]
		if !ok {
			first[n.Ino] = i
			continue
		}
		nodes[f].Group = nodes[f].Path
		n.Group = nodes[f].Path
	}
}

type walker struct {
	dev   uint64
	nodes []Node
}

// refused reports that a user may not look at something, which is then left out.
func refused(err error) bool { return errors.Is(err, unix.EACCES) && os.Geteuid() != 0 }

// dir lists one directory; rel is "" for the root.
func (w *walker) dir(fd int, rel string) error {
	names, err := readNames(fd)
	if refused(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read directory %q: %w", rel, err)
	}
	for _, name := range names {
		p := path.Join(rel, name)
		if err := w.add(fd, name, p); refused(err) {
			continue
		} else if err != nil {
			return err
		}
		n := w.nodes[len(w.nodes)-1]
		if n.Mode&unix.S_IFMT != unix.S_IFDIR {
			continue
		}
		sub, err := unix.Openat(fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if refused(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("open directory %q: %w", p, err)
		}
		var st unix.Stat_t
		err = unix.Fstat(sub, &st)
		if err == nil && st.Dev == w.dev {
			err = w.dir(sub, p)
		}
		_ = unix.Close(sub)
		if err != nil {
			return err
		}
	}
	return nil
}

func readNames(fd int) ([]string, error) {
	own, err := unix.Openat(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	d := os.NewFile(uintptr(own), "")
	defer d.Close()
	return d.Readdirnames(-1)
}

// add appends the node called name in the directory dirfd.
func (w *walker) add(dirfd int, name, rel string) error {
	var sx unix.Statx_t
	if err := unix.Statx(dirfd, name, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BASIC_STATS|unix.STATX_BTIME, &sx); err != nil {
		return fmt.Errorf("stat %q: %w", rel, err)
	}
	n := Node{
		Path: rel, Mode: uint32(sx.Mode), UID: sx.Uid, GID: sx.Gid, Nlink: uint64(sx.Nlink), Ino: sx.Ino,
		Rdev: unix.Mkdev(sx.Rdev_major, sx.Rdev_minor), Size: int64(sx.Size),
		Atime: stamp(sx.Atime), Mtime: stamp(sx.Mtime), Ctime: stamp(sx.Ctime),
	}
	if sx.Mask&unix.STATX_BTIME != 0 {
		n.Btime = stamp(sx.Btime)
	}
	var err error
	switch n.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		n.Size = 0
	case unix.S_IFLNK:
		n.Target, err = readlink(dirfd, name)
	case unix.S_IFREG:
		err = n.contents(dirfd, name)
	}
	if err != nil {
		return fmt.Errorf("read %q: %w", rel, err)
	}
	if n.Xattrs, err = xattrs("/proc/self/fd/" + strconv.Itoa(dirfd) + "/" + name); err != nil {
		return fmt.Errorf("xattrs of %q: %w", rel, err)
	}
	w.nodes = append(w.nodes, n)
	return nil
}

func stamp(t unix.StatxTimestamp) Time { return Time{t.Sec, int64(t.Nsec)} }

func readlink(dirfd int, name string) (string, error) {
	buf := make([]byte, 1<<16)
	k, err := unix.Readlinkat(dirfd, name, buf)
	if err != nil {
		return "", err
	}
	return string(buf[:k]), nil
}

// contents hashes the file and maps its extents.
func (n *Node) contents(dirfd int, name string) error {
	fd, err := unix.Openat(dirfd, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NOATIME, 0)
	if errors.Is(err, unix.EPERM) {
		fd, err = unix.Openat(dirfd, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	}
	if refused(err) {
		return nil
	}
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	for off := int64(0); off < n.Size; {
		data, err := unix.Seek(fd, off, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break
		}
		if err != nil {
			return err
		}
		hole, err := unix.Seek(fd, data, unix.SEEK_HOLE)
		if err != nil {
			return err
		}
		n.Extents = append(n.Extents, Extent{data, hole - data})
		off = hole
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	h := sha256.New()
	k, err := io.Copy(h, f)
	if err != nil {
		return err
	}
	if k != n.Size {
		return fmt.Errorf("%d bytes read of a file of %d", k, n.Size)
	}
	n.Hash = hex.EncodeToString(h.Sum(nil))
	return nil
}

func xattrs(p string) (map[string]string, error) {
	buf := make([]byte, 1<<16)
	k, err := unix.Llistxattr(p, buf)
	if errors.Is(err, unix.ENOTSUP) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var m map[string]string
	for name := range bytes.SplitSeq(buf[:k], []byte{0}) {
		if len(name) == 0 {
			continue
		}
		value := make([]byte, 1<<16)
		v, err := unix.Lgetxattr(p, string(name), value)
		if refused(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if m == nil {
			m = map[string]string{}
		}
		m[string(name)] = string(value[:v])
	}
	return m, nil
}

// String is the node on one line.
func (n Node) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%q %o %d:%d size %d mtime %d.%09d", n.Path, n.Mode, n.UID, n.GID, n.Size, n.Mtime.Sec, n.Mtime.Nsec)
	if n.Target != "" {
		fmt.Fprintf(&b, " -> %q", n.Target)
	}
	if n.Group != "" {
		fmt.Fprintf(&b, " group %q", n.Group)
	}
	if n.Hash != "" {
		fmt.Fprintf(&b, " %.12s", n.Hash)
	}
	return b.String()
}
