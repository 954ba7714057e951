package layers

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"snapfs/squashfs"
)

// sideSuffix is appended to the path of an upper for that of the directory with its side files. That is made when it is
// needed, and belongs to the layer: who moves or removes the one does so with the other.
const sideSuffix = ".blocks"

// dirStore is a layer in a host directory: the upper, or a sealed one.
type dirStore struct {
	root    int // O_PATH
	inoBase uint64
	wideIno func(base, high uint64) (uint64, error) // Options.WideIno; may be nil
	sealed  bool                                    // reads leave no access times
	apart   bool                                    // what lies on another mount than root is not opened
	// Directory of block maps and redirects that outgrew their attributes
	side string
	// orphans says that it is the orphan directory of Options.Live: such redirects are in root.
	orphans bool
}

func openDirStore(dir string, inoBase uint64, wide ...func(base, high uint64) (uint64, error)) (*dirStore, error) {
	fd, err := openat(unix.AT_FDCWD, dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, fmt.Errorf("open layer %s: %w", dir, err)
	}
	s := &dirStore{root: fd, inoBase: inoBase, side: filepath.Clean(dir) + sideSuffix}
	if len(wide) > 0 {
		s.wideIno = wide[0]
	}
	return s, nil
}

// number is the inode number of what was created in the layer as the host's inode.
func (s *dirStore) number(host uint64) (uint64, error) {
	if host>>narrow == 0 || s.wideIno == nil {
		return s.inoBase | host, nil
	}
	base, err := s.wideIno(s.inoBase, host>>narrow)
	return base | host&(1<<narrow-1), err
}

// narrow is how many bits of the host's inode numbers come without Options.WideIno. Tests have fewer.
var narrow = 32

// numbered asks for the number of a new inode. To look it up then does not wait for WideIno, which may have to tell the
// disk: look-ups hold Overlay.tree. They meet its errors, too.
func (s *dirStore) numbered(p location) {
	if s.wideIno == nil {
		return
	}
	if a, err := p.stat(); err == nil {
		_, _ = s.number(a.Ino)
	}
}

func (s *dirStore) close() error { return unix.Close(s.root) }

// hold is a descriptor kept open for the length of a call.
type hold struct {
	fd int
	d  *descriptor // nil: owned by someone who outlives the call
}

func (h hold) release() {
	if h.d != nil {
		h.d.release()
	}
}

// dir gives a directory's O_PATH descriptor, opening whatever of its parents is not cached. Who walks a tree that is
// deeper than the cache is large comes back to directories far above: these are opened from below.
func (s *dirStore) dir(o *part) (hold, error) {
	var chain []*part
	base := hold{fd: s.root}
	var low *part
	if s.sealed { // in an upper directories move
		low = o.layer.opened.Load()
	}
	at, hops := low, 0
	for x := o; x.parent != nil; x = x.parent {
		if d := descriptors.get(fdKey{x, fdDir}); d != nil {
			base = hold{d.fd, d}
			break
		}
		if at == o {
			if d := o.openAbove(s, low, hops); d != nil {
				return hold{d.fd, d}, nil
			}
			at = nil
		} else if at != nil {
			at, hops = at.parent, hops+1
		}
		chain = append(chain, x)
	}
	for i := len(chain) - 1; i >= 0; i-- {
		fd, err := s.openat(base.fd, chain[i].name, unix.O_PATH|unix.O_DIRECTORY)
		base.release()
		if err != nil {
			return hold{}, err
		}
		d := descriptors.put(fdKey{chain[i], fdDir}, fd)
		base = hold{d.fd, d}
	}
	if s.sealed && len(chain) > 0 {
		o.layer.opened.Store(o)
	}
	return base, nil
}

// maxHops is how many directories one path leads upwards: it is shorter than PATH_MAX.
const maxHops = 1024

// openAbove opens o, which is so many directories above one that was open lately; nil if that does not lead there.
func (o *part) openAbove(s *dirStore, low *part, hops int) *descriptor {
	from := descriptors.get(fdKey{low, fdDir})
	if from == nil || hops == 0 || o.host == 0 {
		if from != nil {
			from.release()
		}
		return nil
	}
	fd := -1
	for base := from.fd; hops > 0; base = fd {
		n := min(hops, maxHops)
		next, err := s.openat(base, strings.Repeat("../", n-1)+"..", unix.O_PATH|unix.O_DIRECTORY)
		if fd >= 0 {
			_ = unix.Close(fd) // O_PATH
		}
		if fd = next; err != nil {
			break
		}
		hops -= n
	}
	from.release()
	var st unix.Stat_t
	if fd < 0 {
		return nil
	}
	if err := unix.Fstat(fd, &st); err != nil || st.Ino != o.host {
		_ = unix.Close(fd) // somebody has moved what was open
		return nil
	}
	o.layer.opened.Store(o)
	return descriptors.put(fdKey{o, fdDir}, fd)
}

// at gives o's location; the hold keeps it valid.
func (s *dirStore) at(o *part) (location, hold, error) {
	if o.parent == nil {
		return nameIn(s.root, "."), hold{}, nil
	}
	h, err := s.dir(o.parent)
	return nameIn(h.fd, o.name), h, err
}

// file gives a cached descriptor of a regular file.
func (s *dirStore) file(o *part, kind fdKind) (*descriptor, error) {
	key := fdKey{o, kind}
	if d := descriptors.get(key); d != nil {
		return d, nil
	}
	p, h, err := s.at(o)
	if err != nil {
		return nil, err
	}
	defer h.release()
	flags := unix.O_RDONLY | unix.O_NONBLOCK
	if kind == fdWrite {
		flags = unix.O_RDWR | unix.O_NONBLOCK
	}
	var fd int
	if s.sealed {
		fd, err = s.openat(p.dirfd, p.name, flags|unix.O_NOATIME)
	}
	if !s.sealed || errors.Is(err, unix.EPERM) {
		fd, err = s.openat(p.dirfd, p.name, flags)
	}
	if err != nil {
		return nil, err
	}
	return descriptors.put(key, fd), nil
}

func (s *dirStore) find(dir *part, name string) (found, error) {
	h, err := s.dir(dir)
	if err != nil {
		return found{}, err
	}
	defer h.release()
	return s.examine(nameIn(h.fd, name))
}

// examine stats an inode and reads the overlay's attributes of it.
func (s *dirStore) examine(p location) (found, error) {
	var f found
	var err error
	if f.attr, err = p.stat(); err != nil {
		return found{}, err
	}
	f.host = f.attr.Ino
	if f.attr.Ino, err = s.number(f.host); err != nil {
		return found{}, err
	}
	if isWhiteoutDevice(f.attr.Mode, f.attr.Rdev) {
		f.whiteout = true
		return f, nil
	}
	names, err := p.listxattr()
	if err != nil {
		return found{}, err
	}
	f.bare = true
	for _, name := range names {
		if !ownXattr(name) {
			f.bare = false
			continue
		}
		value, err := p.getxattr(name)
		if errors.Is(err, unix.ENODATA) {
			continue // removed meanwhile
		}
		if err != nil {
			return found{}, err
		}
		if name == xattrFar {
			if f.redirect, err = s.readFar(value); err != nil {
				return found{}, err
			}
			continue
		}
		f.note(name, value)
	}
	if f.redirect != "" {
		return f, checkRedirect(f.redirect)
	}
	return f, nil
}

// note takes one of the overlay's own attributes into account.
func (f *found) note(name string, value []byte) {
	switch name {
	case xattrIno:
		if r, ok := decodeInodeInfo(value); ok {
			f.attr.Ino = r.ino
			r.apply(&f.attr)
			f.ref = r.notes(isDir(f.attr.Mode))
		}
	case xattrOpaque:
		f.opaque = string(value) == "y"
	case xattrRedirect:
		f.redirect = string(value)
	case xattrMetacopy:
		f.metacopy = isReg(f.attr.Mode)
	case xattrBlocks:
		f.partial = isReg(f.attr.Mode)
	case xattrWhiteout:
		f.whiteout = isReg(f.attr.Mode) && f.attr.Size == 0
	case xattrNode:
		f.attr.Mode = f.attr.Mode&^unix.S_IFMT | unix.S_IFCHR
		f.attr.Rdev = 0
	}
}

func isWhiteoutDevice(mode uint32, rdev uint64) bool {
	return mode&unix.S_IFMT == unix.S_IFCHR && rdev == 0
}

func (s *dirStore) stat(o *part) (Attr, error) {
	p, h, err := s.at(o)
	if err != nil {
		return Attr{}, err
	}
	defer h.release()
	a, err := p.stat()
	if err == nil {
		err = o.look(p, &a)
	}
	return a, err
}

func (s *dirStore) readlink(o *part) (string, error) {
	p, h, err := s.at(o)
	if err != nil {
		return "", err
	}
	defer h.release()
	return p.readlink()
}

func (s *dirStore) xattrs(o *part) ([]squashfs.Xattr, error) {
	p, h, err := s.at(o)
	if err != nil {
		return nil, err
	}
	defer h.release()
	return p.xattrs()
}

func (s *dirStore) open(o *part) (content, error) {
	d, err := s.file(o, fdRead)
	if err != nil {
		return nil, err
	}
	return hostFile{d}, nil
}

// list reads one directory of the host without merging.
func (s *dirStore) list(o *part, fn func(rawEntry) error) error {
	h, err := s.dir(o)
	if err != nil {
		return err
	}
	defer h.release()
	self := nameIn(h.fd, ".")
	names, err := self.listxattr()
	if err != nil {
		return err
	}
	impure, attrWhiteouts := false, false
	for _, name := range names {
		switch name {
		case xattrImpure:
			impure = true
		case xattrOpaque:
			v, err := self.getxattr(name)
			attrWhiteouts = err == nil && string(v) == "x"
		}
	}
	return eachName(h.fd, func(name string, ino uint64, typ uint32) error {
		n, err := s.number(ino)
		if err != nil {
			return err
		}
		e := rawEntry{name: name, typ: typ, ino: n, id: ino}
		special := impure || attrWhiteouts && typ == unix.S_IFREG || typ == unix.S_IFCHR || typ == 0
		if special {
			f, err := s.examine(nameIn(h.fd, name))
			if errors.Is(err, unix.ENOENT) {
				return nil // removed meanwhile
			}
			if err != nil {
				return err
			}
			if f.whiteout {
				e.whiteout = true
			} else {
				e.typ, e.ino = f.attr.Mode&unix.S_IFMT, f.attr.Ino
			}
		}
		return fn(e)
	})
}

// listBufs are for getdents64(2).
var listBufs = sync.Pool{New: func() any { return new([64 << 10]byte) }}

// eachName reads a directory by getdents64(2), "." and ".." left out. typ is 0 where the host does not tell.
func eachName(dirfd int, fn func(name string, ino uint64, typ uint32) error) error {
	fd, err := openat(dirfd, ".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return eachNameOf(fd, fn)
}

// eachNameOf is eachName for a directory that is open for reading.
func eachNameOf(fd int, fn func(name string, ino uint64, typ uint32) error) error {
	room := listBufs.Get().(*[64 << 10]byte)
	defer listBufs.Put(room)
	buf := room[:]
	for {
		n, err := unix.Getdents(fd, buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		if n == 0 {
			return nil
		}
		// struct linux_dirent64: ino u64, off u64, reclen u16, type u8, name NUL-terminated
		for p := buf[:n]; len(p) > 0; {
			reclen := binary.NativeEndian.Uint16(p[16:])
			name := p[19:reclen]
			for i, c := range name {
				if c == 0 {
					name = name[:i]
					break
				}
			}
			ino, typ := binary.NativeEndian.Uint64(p), uint32(p[18])<<12
			p = p[reclen:]
			if s := string(name); s != "." && s != ".." {
				if err := fn(s, ino, typ); err != nil {
					return err
				}
			}
		}
	}
}

// hostFile is a regular file of a directory layer.
type hostFile struct{ d *descriptor }

func (f hostFile) Close() error { f.d.release(); return nil }

func (f hostFile) ReadAt(p []byte, off int64) (int, error) { return preadFull(f.d.fd, p, off) }

func (f hostFile) Extents() ([]squashfs.Extent, error) { return hostExtents(f.d.fd) }

// hostExtents maps the data of an open file.
func hostExtents(fd int) ([]squashfs.Extent, error) {
	var out []squashfs.Extent
	for off := int64(0); ; {
		data, err := unix.Seek(fd, off, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		hole, err := unix.Seek(fd, data, unix.SEEK_HOLE)
		if err != nil {
			return nil, err
		}
		out = append(out, squashfs.Extent{Off: data, Len: hole - data})
		off = hole
	}
}
