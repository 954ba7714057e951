// Package testsource presents directories of the host as sources of squashfs images, for tests and benchmarks of what
// takes one.
package testsource

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"snapfs/squashfs"
)

// Directory is a directory of the host as a squashfs.Source, everything below it included, mounts too. It must not
// change meanwhile. Inode numbers are the host's; below mounts the index of the device among those met is in their
// upper 16 bits, so that files of two devices are never one. Trees may be deeper than a path can be long, and take
// three descriptors. For one writer at a time.
type Directory struct {
	root    string
	devices []uint64 // met so far, the root's first

	at  *hostNode // the directory used last
	dir *os.File  // the same
}

// Dir makes the source of a directory. Close gives back the descriptor that the last walk has left.
func Dir(root string) *Directory { return &Directory{root: root} }

// Close ends a walk.
func (s *Directory) Close() error {
	if s.dir != nil {
		_ = s.dir.Close() // nothing was written
	}
	s.at, s.dir, s.devices = nil, nil, nil
	return nil
}

// errForeign is for entries that come from another Source.
var errForeign = errors.New("an entry of another source")

// hostNode is the Handle of a Directory's entries.
type hostNode struct {
	parent *hostNode // nil: the root
	name   string
}

// deviceShift is where an inode number says which device it is of.
const deviceShift = 48

// number gives the inode number that entries have.
func (s *Directory) number(dev, ino uint64) uint64 {
	i := slices.Index(s.devices, dev)
	if i < 0 {
		i = len(s.devices)
		s.devices = append(s.devices, dev)
	}
	return ino ^ uint64(i)<<deviceShift
}

// Root begins a walk.
func (s *Directory) Root(context.Context) (*squashfs.Entry, error) {
	_ = s.Close() // it cannot fail
	return s.entry(&hostNode{}, "", s.root)
}

// open makes a directory the one used last. Most are beside or above that; from elsewhere the way leads through the
// root.
func (s *Directory) open(n *hostNode) (*os.File, error) {
	if s.at == n {
		return s.dir, nil
	}
	var way []*hostNode
	base, from := unix.AT_FDCWD, s.root
	for x := n; ; x = x.parent {
		if s.at != nil && x == s.at {
			base = int(s.dir.Fd())
			break
		}
		way = append(way, x)
		if x.parent == nil {
			break
		}
		if s.at != nil && s.at.parent == x {
			base, from = int(s.dir.Fd()), ".."
			break
		}
	}
	for i := len(way) - 1; i >= 0; i-- {
		name := way[i].name
		if i == len(way)-1 && (way[i].parent == nil || s.at != nil && s.at.parent == way[i]) {
			name = from
		}
		fd, err := unix.Openat(base, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, &os.PathError{Op: "open", Path: name, Err: err}
		}
		if s.dir != nil {
			_ = s.dir.Close() // nothing was written
		}
		s.at, s.dir = way[i], os.NewFile(uintptr(fd), name)
		base = fd
	}
	return s.dir, nil
}

// Names lists a directory.
func (s *Directory) Names(_ context.Context, dir *squashfs.Entry) ([]string, error) {
	n, ok := dir.Handle.(*hostNode)
	if !ok {
		return nil, errForeign
	}
	d, err := s.open(n)
	if err != nil {
		return nil, err
	}
	if _, err := d.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	return d.Readdirnames(-1)
}

// Entry looks a name up.
func (s *Directory) Entry(_ context.Context, dir *squashfs.Entry, name string) (*squashfs.Entry, error) {
	n, ok := dir.Handle.(*hostNode)
	if !ok {
		return nil, errForeign
	}
	d, err := s.open(n)
	if err != nil {
		return nil, err
	}
	return s.entry(&hostNode{n, name}, name, below(d, name))
}

// below is a path of a name in an open directory.
func below(dir *os.File, name string) string {
	return "/proc/self/fd/" + strconv.Itoa(int(dir.Fd())) + "/" + name
}

// Open opens a regular file.
func (s *Directory) Open(_ context.Context, file *squashfs.Entry) (squashfs.File, error) {
	n, ok := file.Handle.(*hostNode)
	if !ok || n.parent == nil {
		return nil, errForeign
	}
	d, err := s.open(n.parent)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(below(d, n.name), os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	return hostFile{f}, nil
}

func (s *Directory) entry(n *hostNode, name, path string) (*squashfs.Entry, error) {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BASIC_STATS|unix.STATX_BTIME, &st)
	if err != nil {
		return nil, &os.PathError{Op: "statx", Path: path, Err: err}
	}
	dev := unix.Mkdev(st.Dev_major, st.Dev_minor)
	e := &squashfs.Entry{Name: name, Handle: n, Inode: squashfs.InodeID{Layer: dev, Inode: st.Ino}, Attr: squashfs.Attr{
		Ino: s.number(dev, st.Ino), Mode: uint32(st.Mode), UID: st.Uid, GID: st.Gid, Nlink: st.Nlink,
		Rdev: unix.Mkdev(st.Rdev_major, st.Rdev_minor), Size: int64(st.Size),
		Mtime: hostTime(st.Mtime), Ctime: hostTime(st.Ctime),
	}}
	if st.Mask&unix.STATX_BTIME != 0 {
		e.Attr.Btime = hostTime(st.Btime)
	}
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		if e.Target, err = os.Readlink(path); err != nil {
			return nil, err
		}
	}
	if e.Xattrs, err = hostXattrs(path); err != nil {
		return nil, fmt.Errorf("attributes of %s: %w", path, err)
	}
	return e, nil
}

func hostTime(t unix.StatxTimestamp) squashfs.Time { return squashfs.Time{Sec: t.Sec, Nsec: t.Nsec} }

// hostXattrs reads all extended attributes of path itself.
func hostXattrs(path string) ([]squashfs.Xattr, error) {
	size, err := unix.Llistxattr(path, nil)
	if errors.Is(err, unix.ENOTSUP) || err == nil && size == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	list := make([]byte, size)
	if size, err = unix.Llistxattr(path, list); err != nil {
		return nil, err
	}
	var out []squashfs.Xattr
	for _, name := range bytes.Split(bytes.TrimSuffix(list[:size], []byte{0}), []byte{0}) {
		n, err := unix.Lgetxattr(path, string(name), nil)
		if err != nil {
			return nil, err
		}
		value := make([]byte, n)
		if n > 0 {
			if n, err = unix.Lgetxattr(path, string(name), value); err != nil {
				return nil, err
			}
		}
		out = append(out, squashfs.Xattr{Name: string(name), Value: value[:n]})
	}
	return out, nil
}

// hostFile is a squashfs.File of the host.
type hostFile struct{ *os.File }

func (f hostFile) Extents() ([]squashfs.Extent, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, fmt.Errorf("stat %s: %w", f.Name(), err)
	}
	if st.Blocks*512 >= st.Size {
		return []squashfs.Extent{{Len: st.Size}}, nil // nothing can be missing, so no need to seek
	}
	var out []squashfs.Extent
	for at := int64(0); at < st.Size; {
		from, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("find data of %s: %w", f.Name(), err)
		}
		to, err := unix.Seek(int(f.Fd()), from, unix.SEEK_HOLE)
		if err != nil {
			return nil, fmt.Errorf("find a hole of %s: %w", f.Name(), err)
		}
		out = append(out, squashfs.Extent{Off: from, Len: to - from})
		at = to
	}
	return out, nil
}
