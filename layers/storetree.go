package layers

import (
	"context"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"

	"snapfs/chunkstore"
	"snapfs/internal/hosttree"
	"snapfs/squashfs"
)

// StoreTree stores a host directory (read once, nothing copied) as a base image. What is mounted inside is left out: a
// directory there becomes an empty one, as with find -xdev. The tree should not change meanwhile; when a file becomes
// shorter while it is read all is done once more, and the second time it is an error. Inodes get numbers of their own.
// The path is absolute; a symbolic link in it is an error.
func StoreTree(
	ctx context.Context, s *chunkstore.Store, dir string, opts StoreOptions,
	fn func(tx *chunkstore.Tx, m chunkstore.Manifest) error,
) (chunkstore.Manifest, error) {
	t, err := openTreeAs(dir, opts.Do)
	if err != nil {
		return chunkstore.Manifest{}, err
	}
	defer t.close()
	return t.storeStable(ctx, s, opts, fn)
}

func (t *tree) storeStable(
	ctx context.Context, s *chunkstore.Store, opts StoreOptions, fn func(tx *chunkstore.Tx, m chunkstore.Manifest) error,
) (chunkstore.Manifest, error) {
	opts.renumber = true
	store := func() (chunkstore.Manifest, error) {
		k := &sink{}
		t.recaller = t.newRecaller(opts, k)
		if t.inTurn {
			return storeSource(ctx, s, t, k, opts, false, fn)
		}
		whole := t.source()
		if opts.Part != nil {
			whole = opts.Part(whole)
		}
		src := readAhead(whole)
		defer src.close()
		return storeSource(ctx, s, src, k, opts, false, fn)
	}
	m, err := store()
	if errors.Is(err, errNoted) && ctx.Err() == nil {
		opts.Seen = nil
		m, err = store()
	}
	if errors.Is(err, errShrunk) && ctx.Err() == nil {
		m, err = store() // a log that was rotated, most likely; what is stored is found again
	}
	return m, err
}

// tree presents a host directory as the source of a base image. What would mean something to an overlay is escaped.
type tree struct {
	dir   string
	store *dirStore
	layer *layer
	mount uint64 // id of the mount of the root
	exact bool   // its change times can be relied on
	local bool   // its file system knows all without asking anybody

	recaller *recaller // nil: all files are read

	do     func(fn func() error) error // nil: what looks at the directory is called as it is
	opened func(name string)           // by tests: called for each file whose size is known and whose contents are not
	inTurn bool                        // by tests: nothing is read ahead
}

// virtual lists the file systems whose files have contents that their sizes do not tell.
var virtual = map[int64]string{
	unix.PROC_SUPER_MAGIC: "procfs", unix.SYSFS_MAGIC: "sysfs", unix.DEVPTS_SUPER_MAGIC: "devpts",
	unix.CGROUP_SUPER_MAGIC: "cgroup", unix.CGROUP2_SUPER_MAGIC: "cgroup2", unix.DEBUGFS_MAGIC: "debugfs",
	unix.TRACEFS_MAGIC: "tracefs", unix.SECURITYFS_MAGIC: "securityfs", unix.BPF_FS_MAGIC: "bpf",
	unix.SELINUX_MAGIC: "selinuxfs", unix.PSTOREFS_MAGIC: "pstore", unix.EFIVARFS_MAGIC: "efivarfs",
	unix.BINFMTFS_MAGIC: "binfmt_misc",
}

// openTreeAs is openTree by do, by which the tree is looked at later, too.
func openTreeAs(dir string, do func(fn func() error) error) (t *tree, err error) {
	if do == nil {
		return openTree(dir)
	}
	err = do(func() (err error) {
		t, err = openTree(dir)
		return err
	})
	if t != nil {
		t.do = do
	}
	return t, err
}

// source is the tree as it is looked at by do.
func (t *tree) source() squashfs.Source {
	if t.do == nil {
		return t
	}
	return treeBy{t}
}

// treeBy is a tree that is looked at by its do.
type treeBy struct{ *tree }

func (t treeBy) Root(ctx context.Context) (e *squashfs.Entry, err error) {
	err = t.do(func() (err error) { e, err = t.tree.Root(ctx); return err })
	return e, err
}

func (t treeBy) Names(ctx context.Context, dir *squashfs.Entry) (names []string, err error) {
	err = t.do(func() (err error) { names, err = t.tree.Names(ctx, dir); return err })
	return names, err
}

func (t treeBy) Entry(ctx context.Context, dir *squashfs.Entry, name string) (e *squashfs.Entry, err error) {
	err = t.do(func() (err error) { e, err = t.tree.Entry(ctx, dir, name); return err })
	return e, err
}

// Open opens a file. Its contents are read by its descriptor, which needs no rights.
func (t treeBy) Open(ctx context.Context, file *squashfs.Entry) (f squashfs.File, err error) {
	err = t.do(func() (err error) { f, err = t.tree.Open(ctx, file); return err })
	return f, err
}

func openTree(dir string) (*tree, error) {
	fd, err := hosttree.OpenFD(dir, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", dir, err)
	}
	t := &tree{dir: dir, store: &dirStore{root: fd, sealed: true, apart: true}}
	t.layer = &layer{lower: newDirLower(dir, t.store)}
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil {
		t.close()
		return nil, fmt.Errorf("open %s: %w", dir, err)
	}
	if name, ok := virtual[int64(st.Type)]; ok {
		t.close()
		return nil, fmt.Errorf("%s is a %s file system, whose files cannot be stored: %w", dir, name, unix.EINVAL)
	}
	t.exact = exactTimes[int64(st.Type)]
	t.local = t.exact || st.Type == unix.TMPFS_MAGIC
	if t.mount, err = mountID(nameIn(fd, ".")); err != nil {
		t.close()
		return nil, fmt.Errorf("open %s: %w", dir, err)
	}
	return t, nil
}

func (t *tree) close() {
	descriptors.purge(func(k fdKey) bool { return k.o.layer == t.layer })
	_ = t.store.close() // O_PATH
}

// mountID tells mounts apart, also bind mounts of one file system.
func mountID(p location) (uint64, error) {
	var sx unix.Statx_t
	if err := unix.Statx(p.dirfd, p.name, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_MNT_ID, &sx); err != nil {
		return 0, err
	}
	return mountOf(&sx), nil
}

func mountOf(sx *unix.Statx_t) uint64 {
	if sx.Mask&unix.STATX_MNT_ID == 0 {
		return unix.Mkdev(sx.Dev_major, sx.Dev_minor)
	}
	return sx.Mnt_id
}

func (t *tree) Root(context.Context) (*squashfs.Entry, error) {
	return t.entry(location{dirfd: t.store.root, name: ".", foreign: true}, "", nil)
}

func (t *tree) Names(ctx context.Context, dir *squashfs.Entry) ([]string, error) {
	s := dir.Handle.(*viewNode)
	if s.parts == nil {
		return nil, nil // a mount point
	}
	h, err := t.store.dir(s.parts[0])
	if err != nil {
		return nil, err
	}
	defer h.release()
	var names []string
	err = eachName(h.fd, func(name string, _ uint64, _ uint32) error {
		names = append(names, name)
		return ctx.Err()
	})
	return names, err
}

func (t *tree) Entry(_ context.Context, dir *squashfs.Entry, name string) (*squashfs.Entry, error) {
	parent := dir.Handle.(*viewNode).parts[0]
	h, err := t.store.dir(parent)
	if err != nil {
		return nil, err
	}
	defer h.release()
	e, err := t.entry(location{dirfd: h.fd, name: name, foreign: true}, name, parent)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil // removed meanwhile
	}
	return e, err
}

// entry describes what is at a location: a name in a directory, or the root, which has no parent. What is mounted there
// has no parts.
func (t *tree) entry(p location, name string, parent *part) (*squashfs.Entry, error) {
	var sx unix.Statx_t
	apart, err := t.stat(p, &sx)
	if err != nil {
		return nil, err
	}
	a := hostAttr(&sx)
	s := &viewNode{}
	switch {
	case parent == nil:
		s.parts = []*part{rootPart(t.layer)}
		s.parts[0].host = a.Ino
	case !apart:
		s.parts = []*part{{layer: t.layer, parent: parent, name: name, host: a.Ino}}
	}
	if t.recaller != nil && isReg(a.Mode) && s.parts != nil {
		s.seen = t.recaller.asListed(&sx, &a)
	}
	e := &squashfs.Entry{Name: name, Attr: imageOf(a), Inode: squashfs.InodeID{Layer: 1, Inode: a.Ino}, Handle: s}
	if name == "" {
		e.Attr.Ino = rootIno
	}
	if apart && isReg(a.Mode) {
		e.Attr.Size = 0 // a mount on a file
	}
	if !apart && (!s.seen.bare() || isLnk(a.Mode)) {
		err = t.within(p, func(p location) (err error) {
			if e.Xattrs, err = p.xattrs(); err == nil && isLnk(a.Mode) {
				e.Target, err = p.readlink()
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return e, escape(e)
}

func (t *tree) Open(_ context.Context, file *squashfs.Entry) (squashfs.File, error) {
	s := file.Handle.(*viewNode)
	if t.opened != nil {
		t.opened(file.Name)
	}
	if f, ok := t.unopened(s, file); ok {
		return f, nil
	}
	d, err := t.store.file(s.parts[0], fdRead)
	if err != nil {
		return nil, err
	}
	descriptors.drop(s.parts[0]) // it is read once
	f := wholeFile{hostFile{d}, file.Attr.Size}
	if t.recaller != nil {
		return t.recaller.open(f, file), nil
	}
	return f, nil
}

// wholeFile is a file of a tree that may be changing.
type wholeFile struct {
	hostFile
	size int64
}

// errShrunk says that a file became shorter while it was read.
var errShrunk = errors.New("file changed while it was being stored: it became shorter")

func (f wholeFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.hostFile.ReadAt(p, off)
	if errors.Is(err, io.EOF) && off+int64(n) < f.size && n < len(p) {
		return n, errShrunk
	}
	return n, err
}
