package extract

import (
	"bytes"
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/squashfs"
)

// errDiffers ends a comparison.
var errDiffers = errors.New("the target has another tree")

// comparison finds out whether a target without a marker has the whole tree: a caller that did not get the answer of an
// extraction repeats it. Contents count as equal if size and modification time are, and if the machine has run since:
// without a sync, a power loss keeps those and not the contents.
type comparison struct {
	*extraction
	free  bool  // it may make everything
	boot  int64 // when the machine was started, in seconds
	links map[squashfs.InodeID]unix.Stat_t
}

// isWhole reports whether the target has the whole tree, but for what this process may not make. The modification time
// of the root does not count.
func (x *extraction) isWhole(ctx context.Context, root *squashfs.Entry, names []string) (bool, error) {
	x.room = newRoom()
	defer x.room.leave()
	x.dirs.room = x.room
	c := comparison{extraction: x, free: os.Geteuid() == 0 && x.opts.Do == nil, links: map[squashfs.InodeID]unix.Stat_t{}}
	var up unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &up); err != nil {
		return false, os.NewSyscallError("clock_gettime", err)
	}
	c.boot = time.Now().Unix() - up.Sec
	top := &dir{fd: x.root}
	err := c.tree(ctx, top, root, names)
	if err = errors.Join(err, x.dirs.closeAll(top)); errors.Is(err, errDiffers) || errors.Is(err, unix.EACCES) {
		return false, nil
	}
	return err == nil, err
}

// tree compares a whole tree.
func (c *comparison) tree(ctx context.Context, top *dir, root *squashfs.Entry, names []string) error {
	var st unix.Stat_t
	if err := unix.Fstat(c.root, &st); err != nil {
		return err
	}
	top.dev, top.ino = st.Dev, st.Ino
	rootTime := *root
	rootTime.Attr.Mtime = squashfs.Time{Sec: st.Mtim.Sec, Nsec: uint32(st.Mtim.Nsec)}
	if err := c.node(top, "", &rootTime, &st); err != nil {
		return err
	}
	if err := c.listing(top, names); err != nil {
		return err
	}
	stack := []frame{{d: top, e: root, names: names}}
	for len(stack) > 0 {
		f := &stack[len(stack)-1]
		if len(f.names) == 0 {
			c.dirs.drop(f.d)
			stack = stack[:len(stack)-1]
			continue
		}
		name := f.names[0]
		f.names = f.names[1:]
		below, err := c.name(ctx, f, name)
		if err != nil {
			return err
		}
		if below.d != nil {
			stack = append(stack, below)
		}
	}
	return nil
}

// name compares what has a name, and returns the directory that it is.
func (c *comparison) name(ctx context.Context, f *frame, name string) (below frame, err error) {
	k := c.describeName(ctx, f, name)
	if k.err != nil || k.e == nil {
		return frame{}, k.err
	}
	at, err := c.dirs.acquire(f.d)
	if err != nil {
		return frame{}, err
	}
	defer c.dirs.release(f.d)
	var st unix.Stat_t
	err = unix.Fstatat(at, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) && !c.free && kindOf(k.e) == "device" {
		c.skip(f.d, name, "device", unix.EPERM)
		return frame{}, nil
	}
	if err != nil {
		return frame{}, errDiffers
	}
	if err := c.node(f.d, name, k.e, &st); err != nil || k.e.Attr.Mode&unix.S_IFMT != unix.S_IFDIR {
		return frame{}, err
	}
	d := &dir{parent: f.d, name: name, dev: st.Dev, ino: st.Ino, fd: -1}
	below = frame{d: d, e: k.e}
	if below.names, err = c.src.Names(ctx, k.e); err != nil {
		return frame{}, failed(d, "", err)
	}
	return below, c.listing(d, below.names)
}

// listing sorts the names of a directory and compares them with those that are there, as far as they must be.
func (c *comparison) listing(d *dir, names []string) error {
	slices.Sort(names)
	fd, err := c.dirs.acquire(d)
	if err != nil {
		return err
	}
	defer c.dirs.release(d)
	there, err := readNames(fd)
	if err != nil {
		return failed(d, "", err)
	}
	for _, name := range there {
		if _, known := slices.BinarySearch(names, name); !known && (d.parent != nil || name != lostFound) {
			return errDiffers
		}
	}
	return nil
}

// node compares and counts an inode. name is "" for the root.
func (c *comparison) node(d *dir, name string, e *squashfs.Entry, st *unix.Stat_t) error {
	mode := e.Attr.Mode
	if st.Uid != e.Attr.UID || st.Gid != e.Attr.GID {
		if c.free {
			return errDiffers
		}
		c.skip(d, name, "owner", unix.EPERM)
		mode &^= unix.S_ISUID | unix.S_ISGID
	}
	kind := mode & unix.S_IFMT
	at := squashfs.Time{Sec: st.Mtim.Sec, Nsec: uint32(st.Mtim.Nsec)}
	switch {
	case st.Mode&unix.S_IFMT != kind, at != e.Attr.Mtime, st.Ctim.Sec < c.boot,
		kind != unix.S_IFLNK && st.Mode != mode,
		kind == unix.S_IFREG && st.Size != e.Attr.Size,
		(kind == unix.S_IFCHR || kind == unix.S_IFBLK) && st.Rdev != e.Attr.Rdev:
		return errDiffers
	}
	if err := c.more(d, name, e); err != nil {
		return err
	}
	return c.count(e, st)
}

// more compares what stat does not show.
func (c *comparison) more(d *dir, name string, e *squashfs.Entry) error {
	at, err := c.dirs.acquire(d)
	if err != nil {
		return err
	}
	defer c.dirs.release(d)
	if e.Attr.Mode&unix.S_IFMT == unix.S_IFLNK {
		target := make([]byte, len(e.Target)+1)
		if n, err := unix.Readlinkat(at, name, target); err != nil || string(target[:max(n, 0)]) != e.Target {
			return errDiffers
		}
	}
	list, err := e.Attributes()
	if err != nil {
		return failed(d, name, err)
	}
	path := procPath(at, name)
	get, names := unix.Lgetxattr, unix.Llistxattr
	if name == "" {
		get, names = unix.Getxattr, unix.Listxattr // the root, by its descriptor
	}
	if hasMore(path, names, list) {
		return errDiffers
	}
	for _, a := range list {
		value := make([]byte, len(a.Value)+1)
		n, err := get(path, a.Name, value)
		if err == nil && bytes.Equal(value[:n], a.Value) {
			continue
		}
		if !denied(err) && (c.free || strings.HasPrefix(a.Name, "user.")) {
			return errDiffers
		}
		c.skip(d, name, "xattr "+a.Name, errors.Join(err, unix.EPERM))
	}
	return nil
}

// hasMore reports whether a file has ACLs or attributes of users that are not in a list. The host gives files others.
func hasMore(path string, names func(string, []byte) (int, error), list []squashfs.Xattr) bool {
	n, err := names(path, nil)
	if err != nil || n == 0 {
		return false // as where there are none
	}
	b := make([]byte, n)
	if n, err = names(path, b); err != nil {
		return true // they change
	}
	for name := range strings.SplitSeq(string(b[:n]), "\x00") {
		if name != xattrAccessACL && name != xattrDefaultACL && !strings.HasPrefix(name, "user.") {
			continue
		}
		if !slices.ContainsFunc(list, func(a squashfs.Xattr) bool { return a.Name == name }) {
			return true
		}
	}
	return false
}

// count counts an inode or a further name of one.
func (c *comparison) count(e *squashfs.Entry, st *unix.Stat_t) error {
	kind := e.Attr.Mode & unix.S_IFMT
	if kind == unix.S_IFDIR {
		c.directories.Add(1)
		return nil
	}
	if e.Attr.Nlink > 1 {
		id := e.Inode
		if id == (squashfs.InodeID{}) {
			id.Inode = e.Attr.Ino
		}
		first, met := c.links[id]
		if !met {
			c.links[id] = *st
		} else if first.Dev != st.Dev || first.Ino != st.Ino {
			return errDiffers
		} else {
			c.linkCount.Add(1)
			return nil
		}
	}
	if kind == unix.S_IFREG {
		c.kept.Add(1)
		c.wrote(1, 0)
	} else {
		c.others.Add(1)
	}
	return nil
}
