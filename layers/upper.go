package layers

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"snapfs/internal/hosttree"
	"snapfs/internal/lockorder"
)

// upper is the writable layer of an overlay and its work directory.
type upper struct {
	layer *layer
	store *dirStore // of layer, until it is sealed and replaced
	work  int       // O_PATH
	path  string    // of work
	dir   string    // path of the layer
	host
	device   string // name in work of the whiteout that others are links of, or ""; guarded by deviceMu
	deviceMu lockorder.Mutex[lockorder.Device]
	serial   atomic.Uint64 // of names in work
	users    atomic.Int64  // the overlay and copy-ups under way, which outlast a seal; the last one closes work
}

// openUpper opens an upper and its work directory and finds out what the host can do.
func openUpper(dir, work string, opts Options, of *share) (*upper, error) {
	s, err := openDirStore(dir, opts.InoBase, opts.WideIno)
	if err != nil {
		return nil, err
	}
	u := &upper{layer: &layer{lower: newDirLower("", s), share: of}, store: s}
	u.users.Store(1)
	u.path, err = filepath.Abs(work)
	if err == nil {
		u.dir, err = filepath.Abs(dir)
	}
	if err != nil {
		_ = s.close() // the first error counts
		return nil, err
	}
	if u.work, err = openat(unix.AT_FDCWD, work, unix.O_PATH|unix.O_DIRECTORY, 0); err != nil {
		_ = s.close() // the first error counts
		return nil, fmt.Errorf("open work directory %s: %w", work, err)
	}
	if err := u.probe(opts.Whiteouts); err != nil {
		u.release()
		_ = s.close() // the first error counts
		return nil, fmt.Errorf("upper %s: %w", dir, err)
	}
	return u, nil
}

// use keeps the work directory open until release. Overlay.tree is held.
func (u *upper) use() *upper {
	u.users.Add(1)
	return u
}

func (u *upper) release() {
	if u.users.Add(-1) == 0 {
		_ = unix.Close(u.work) // O_PATH
	}
}

// temp is a fresh name in the work directory.
func (u *upper) temp() string { return "#" + strconv.FormatUint(u.serial.Add(1), 16) }

// host is what a host file system can do, as far as uppers are concerned.
type host struct {
	attrWhiteouts bool // it refuses device 0/0 or was told to do without
	byBlocks      bool // it tells holes from data reliably, so that files may be copied up by blocks
	labels        bool // it gives new files extended attributes, as SELinux does

	links uint32 // names that a file can have; 0: not known
}

// hostKey is which host was asked, and how whiteouts are made there. A device may hold another file system later on.
type hostKey struct {
	dev       uint64
	kind      int64
	id        unix.Fsid
	whiteouts string
}

// hosts remembers the answers of hosts, which a probe gets by making files and removing them again.
var hosts sync.Map // of host by hostKey

// maxLinks is how many names a file can have, where the host's limit is known: it does not tell.
var maxLinks = map[int64]uint32{unix.EXT4_SUPER_MAGIC: 65000, unix.XFS_SUPER_MAGIC: 1<<31 - 1, unix.BTRFS_SUPER_MAGIC: 65535}

// MaxLinks is how many names a file can have in the file system that a directory is on; 0: nobody knows. A file of a
// lower with more names can be read in an upper there, but not changed.
func MaxLinks(dir string) (uint32, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return 0, fmt.Errorf("statfs %s: %w", dir, err)
	}
	return maxLinks[int64(fs.Type)], nil
}

// probe checks that upper and work are on one file system and that it keeps trusted attributes, and finds out how
// whiteouts can be made. What was found for a file system is not looked for again.
func (u *upper) probe(whiteouts string) error {
	var a, b unix.Stat_t
	if err := unix.Fstatat(u.store.root, ".", &a, 0); err != nil {
		return err
	}
	if err := unix.Fstatat(u.work, ".", &b, 0); err != nil {
		return err
	}
	if a.Dev != b.Dev {
		return errors.New("upper and work directory are on different file systems")
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(u.store.root, &fs); err != nil {
		return err
	}
	if fs.Flags&unix.ST_RDONLY != 0 {
		return unix.EROFS
	}
	key := hostKey{a.Dev, int64(fs.Type), fs.Fsid, whiteouts}
	found, ok := hosts.Load(key)
	if !ok {
		h, err := u.ask(whiteouts)
		if err != nil {
			return err
		}
		switch fs.Type {
		case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.TMPFS_MAGIC:
			h.byBlocks = true
		}
		h.links = maxLinks[int64(fs.Type)]
		hosts.Store(key, h)
		found = h
	}
	u.host = found.(host)
	return nil
}

// ask tries what a host can do.
func (u *upper) ask(whiteouts string) (h host, err error) {
	name := u.temp()
	if err := removeAll(u.work, name); err != nil {
		return h, err
	}
	if err := unix.Mkdirat(u.work, name, 0o700); err != nil {
		return h, fmt.Errorf("work directory: %w", err)
	}
	p := nameIn(u.work, name)
	given, err := p.listxattr()
	if err == nil {
		h.labels = len(given) > 0
		err = p.setxattr(xattrIno, encodeIno(0), 0)
	}
	if rerr := removeAll(u.work, name); err == nil && rerr != nil {
		return h, rerr
	}
	if err != nil {
		return h, fmt.Errorf("the host file system keeps no extended attributes %s: %w", location{}.hostXattr(xattrPrefix+"*"), err)
	}
	switch whiteouts {
	case "char":
	case "xattr":
		h.attrWhiteouts = true
	case "":
		err := unix.Mknodat(u.work, name, unix.S_IFCHR, 0)
		if err == nil {
			return h, unix.Unlinkat(u.work, name, 0)
		}
		h.attrWhiteouts = true
	default:
		return h, fmt.Errorf("unknown kind of whiteouts %q", whiteouts)
	}
	return h, nil
}

// clean removes what a crash left in the work directory, but for the orphan directory if somebody will look at that, and
// undoes what it left half done in the upper.
func (u *upper) clean(orphans bool) error {
	var names []string
	err := eachName(u.work, func(name string, _ uint64, _ uint32) error {
		if orphans && name == orphanDir {
			return nil
		}
		if name[0] == '#' || name[0] == pendingPrefix {
			names = append(names, name)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("clean the work directory: %w", err)
	}
	for _, name := range names {
		if name[0] == pendingPrefix {
			err = u.undoGroup(name)
		} else {
			err = removeAll(u.work, name)
		}
		if err != nil {
			return fmt.Errorf("clean the work directory: %w", err)
		}
	}
	return nil
}

// removeAll removes name below dirfd with everything in it; it is no error if there is nothing.
func removeAll(dirfd int, name string) error {
	err := hosttree.Remove(dirfd, name)
	if noRoom(err) {
		descriptors.shrink()
		err = hosttree.Remove(dirfd, name)
	}
	return err
}

// emptyDir removes everything in the directory name below dirfd.
func emptyDir(dirfd int, name string) error {
	err := hosttree.Empty(dirfd, name)
	if noRoom(err) {
		descriptors.shrink()
		err = hosttree.Empty(dirfd, name)
	}
	return err
}

// inUse tells that an upper was opened for writing before. One that was not has no attributes of its own to show.
func inUse(upperDir string) bool {
	_, err := unix.Lgetxattr(upperDir, location{}.hostXattr(xattrIno), nil)
	return !errors.Is(err, unix.ENODATA)
}

// initRoot gives the root of a fresh upper the attributes of the root below, or plain ones where nothing is below.
// xattrIno marks a root that has them already. An upper with something in it that another overlay wrote has its own.
func (u *upper) initRoot(below *part) error {
	p := nameIn(u.store.root, ".")
	_, err := p.getxattr(xattrIno)
	if err == nil || !errors.Is(err, unix.ENODATA) {
		return err
	}
	own := func() error { return p.setxattr(xattrIno, inodeInfo{ino: rootIno, ctime: noCtime}.encode(true), 0) }
	written := false // by somebody else: the kernel's overlayfs
	if err := eachName(p.dirfd, func(string, uint64, uint32) error { written = true; return nil }); err != nil {
		return err
	}
	switch {
	case written:
		return own()
	case below == nil:
		if err := p.chmod(0o755); err != nil {
			return err
		}
		return own()
	}
	a, err := below.backend().stat(below)
	if err != nil {
		return err
	}
	xattrs, err := below.backend().xattrs(below)
	if err != nil {
		return err
	}
	a.Ino = rootIno
	if err := p.chmod(0); err != nil {
		return err
	}
	return copyAttrs(p, a, xattrs)
}
