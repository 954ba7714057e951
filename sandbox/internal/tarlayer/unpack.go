package tarlayer

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"snapfs/internal/sparse"
	"snapfs/layers"
	"snapfs/sandbox/api"
)

// Names with a meaning in layers of images.
const (
	whiteoutPrefix = ".wh."
	metaPrefix     = whiteoutPrefix + whiteoutPrefix
	opaqueName     = metaPrefix + ".opq"
)

// Limits are what is left to unpack, of several layers together.
type Limits struct {
	Entries int64
	Bytes   int64 // holes included
}

// Options are for Unpack.
type Options struct {
	// Whiteouts says that .wh.NAME has the meaning that it has in layers of images.
	Whiteouts bool
	// Below opens the tree of the layers below, and closes it when it is not needed any more; nil: there are none.
	Below  func() (t *layers.Tree, done func(), err error)
	Limits *Limits
	// Progress is told of each entry. nil = nobody.
	Progress func()
}

// Unpack writes what a tar file lists into an overlay without lowers that nobody mounts. Errors of class api.ErrInvalid
// and api.ErrCorrupt are the tar file's.
func Unpack(ctx context.Context, from io.Reader, o *layers.Overlay, opts Options) (err error) {
	u := &unpacker{
		ctx: ctx, o: o, opts: opts, buf: make([]byte, 256<<10),
		caller: layers.Caller{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid()), PID: uint32(os.Getpid())},
	}
	u.dirs.forget = u.leave
	defer func() { err = errors.Join(err, u.end()) }()
	if err := u.root(); err != nil {
		return err
	}
	r := tar.NewReader(from)
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return tarError(err)
		}
		if err := u.entry(h, r); err != nil {
			return fmt.Errorf("%s: %w", api.Quoted(h.Name), err)
		}
		if opts.Progress != nil {
			opts.Progress()
		}
	}
}

// tarError marks what is wrong with a tar file, and passes what is wrong with what it comes from.
func tarError(err error) error {
	if errors.Is(err, api.ErrCorrupt) {
		return err
	}
	if errors.Is(err, tar.ErrHeader) || errors.Is(err, tar.ErrFieldTooLong) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: the tar file is damaged or cut off: %w", api.ErrCorrupt, err)
	}
	return err
}

// unpacker is one call of Unpack.
type unpacker struct {
	ctx    context.Context
	o      *layers.Overlay
	opts   Options
	caller layers.Caller
	buf    []byte
	dirs   dirs
	lower  lowerTree
}

// end gives the directories their times, and closes what is open.
func (u *unpacker) end() error {
	err := u.dirs.clear()
	u.lower.close()
	return err
}

// root gives the root directory the attributes of that below it.
func (u *unpacker) root() error {
	d := &dir{path: "", node: layers.RootNode}
	u.dirs.add(d)
	f, err := u.below("")
	if f == nil || err != nil {
		return err
	}
	return u.likeBelow(d, f)
}

// entry unpacks one entry.
func (u *unpacker) entry(h *tar.Header, r io.Reader) error {
	if err := u.count(); err != nil {
		return err
	}
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	name, err := inside(h.Name)
	if err != nil {
		return err
	}
	if name == "" {
		if h.Typeflag != tar.TypeDir {
			return fmt.Errorf("%w: the root is no directory", api.ErrInvalid)
		}
		d, _ := u.dirs.get("")
		return u.attributes(d.node, d, h, 0o755)
	}
	in, base := split(name)
	times, err := timesOf(h)
	if err != nil {
		return err
	}
	d, err := u.directory(in, times, 0)
	if err != nil {
		return err
	}
	if u.opts.Whiteouts && strings.HasPrefix(base, whiteoutPrefix) {
		return u.whiteout(d, base)
	}
	return u.put(d, base, h, r)
}

// count counts an inode to be made.
func (u *unpacker) count() error {
	if l := u.opts.Limits; l != nil {
		if l.Entries--; l.Entries < 0 {
			return fmt.Errorf("%w: too many entries", api.ErrInvalid)
		}
	}
	return nil
}

// take counts bytes to be written.
func (u *unpacker) take(size int64) error {
	if l := u.opts.Limits; l != nil {
		if size > l.Bytes {
			return fmt.Errorf("%w: too many bytes", api.ErrInvalid)
		}
		l.Bytes -= size
	}
	return nil
}

// maxPath is how long a path in a layer may be, in bytes: as long as programs can name.
const maxPath = unix.PathMax - 1

// inside is a name without what does not count: below the root, "" for the root itself.
func inside(name string) (string, error) {
	if strings.ContainsRune(name, 0) {
		return "", fmt.Errorf("%w: a name with a NUL byte", api.ErrInvalid)
	}
	if len(name) > maxPath {
		return "", fmt.Errorf("%w: a path of %d bytes", api.ErrInvalid, len(name))
	}
	name = path.Clean(strings.TrimLeft(name, "/"))
	switch {
	case name == ".":
		return "", nil
	case name == "..", strings.HasPrefix(name, "../"):
		return "", fmt.Errorf("%w: the name leads out of the layer", api.ErrInvalid)
	}
	return name, nil
}

func split(name string) (dir, base string) {
	if i := strings.LastIndexByte(name, '/'); i >= 0 {
		return name[:i], name[i+1:]
	}
	return "", name
}

func join(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}

// whiteout hides something of the layers below.
func (u *unpacker) whiteout(d *dir, base string) error {
	if base == opaqueName {
		if u.opts.Below == nil {
			return nil
		}
		return u.o.SetOpaque(d.node)
	}
	if strings.HasPrefix(base, metaPrefix) {
		return nil
	}
	name := strings.TrimPrefix(base, whiteoutPrefix)
	if name == "" || name == "." || name == ".." {
		return fmt.Errorf("%w: a whiteout of no name", api.ErrInvalid)
	}
	if u.opts.Below == nil {
		return nil
	}
	if err := u.touch(d); err != nil {
		return err
	}
	err := u.o.Whiteout(d.node, name)
	if !errors.Is(err, unix.EEXIST) {
		return hostError(err)
	}
	e, err := u.lookup(d.node, name)
	if err != nil {
		return err
	}
	defer u.o.Forget(e.Node, 1)
	if e.Attr.Mode&unix.S_IFMT == unix.S_IFDIR {
		return u.o.SetOpaque(e.Node)
	}
	return nil // what is there hides what is below
}

func (u *unpacker) lookup(parent layers.NodeID, name string) (layers.Entry, error) {
	e, err := u.o.Lookup(parent, name)
	return e, hostError(err)
}

// hostError marks names that no file can have.
func hostError(err error) error {
	if errors.Is(err, unix.ENAMETOOLONG) || errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("%w: %w", api.ErrInvalid, err)
	}
	return err
}

// put makes what an entry tells, in the place of what has its name.
func (u *unpacker) put(d *dir, base string, h *tar.Header, r io.Reader) error {
	if h.Typeflag == tar.TypeLink {
		return u.link(d, base, h)
	}
	typ, rdev, err := typeOf(h)
	if err != nil {
		return err
	}
	if e, err := u.lookup(d.node, base); err == nil {
		isDir := e.Attr.Mode&unix.S_IFMT == unix.S_IFDIR
		if isDir && typ == unix.S_IFDIR {
			sub := u.dirs.open(join(d.path, base), e)
			return u.attributes(sub.node, sub, h, typ)
		}
		u.o.Forget(e.Node, 1)
		if err := u.remove(d, base, isDir); err != nil {
			return err
		}
	} else if !errors.Is(err, unix.ENOENT) {
		return err
	}
	if err := u.touch(d); err != nil {
		return err
	}
	e, err := u.make(d.node, base, typ, rdev, h.Linkname)
	if err != nil {
		return err
	}
	if typ == unix.S_IFDIR {
		sub := u.dirs.open(join(d.path, base), e)
		return u.attributes(sub.node, sub, h, typ)
	}
	defer u.o.Forget(e.Node, 1)
	if typ == unix.S_IFREG && h.Size > 0 {
		if err := u.contents(e.Node, h.Size, r); err != nil {
			return err
		}
	}
	return u.attributes(e.Node, nil, h, typ)
}

// make makes an inode that its maker can change.
func (u *unpacker) make(in layers.NodeID, name string, typ uint32, rdev uint64, target string) (layers.Entry, error) {
	var e layers.Entry
	var err error
	switch typ {
	case unix.S_IFDIR:
		e, err = u.o.Mkdir(u.caller, in, name, 0o700)
	case unix.S_IFLNK:
		if target == "" {
			return e, fmt.Errorf("%w: a symbolic link to nothing", api.ErrInvalid)
		}
		e, err = u.o.Symlink(u.caller, in, name, target)
	default:
		e, err = u.o.Mknod(u.caller, in, name, typ|0o600, rdev)
	}
	return e, hostError(err)
}

// typeOf is what an entry makes.
func typeOf(h *tar.Header) (typ uint32, rdev uint64, err error) {
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeCont, tar.TypeGNUSparse:
		return unix.S_IFREG, 0, nil
	case tar.TypeDir:
		return unix.S_IFDIR, 0, nil
	case tar.TypeSymlink:
		return unix.S_IFLNK, 0, nil
	case tar.TypeFifo:
		return unix.S_IFIFO, 0, nil
	case tar.TypeChar, tar.TypeBlock:
		if h.Devmajor < 0 || h.Devmajor >= 1<<12 || h.Devminor < 0 || h.Devminor >= 1<<20 {
			return 0, 0, fmt.Errorf("%w: device %d:%d", api.ErrInvalid, h.Devmajor, h.Devminor)
		}
		typ = unix.S_IFCHR
		if h.Typeflag == tar.TypeBlock {
			typ = unix.S_IFBLK
		}
		return typ, unix.Mkdev(uint32(h.Devmajor), uint32(h.Devminor)), nil
	}
	return 0, 0, fmt.Errorf("%w: an entry of type %q", api.ErrInvalid, h.Typeflag)
}

// contents writes a file.
func (u *unpacker) contents(id layers.NodeID, size int64, r io.Reader) error {
	if err := u.take(size); err != nil {
		return err
	}
	w := sparse.NewWriter(nodeWriter{u.o, id})
	for left := size; left > 0; {
		if err := u.ctx.Err(); err != nil {
			return err
		}
		n, err := io.ReadFull(r, u.buf[:min(left, int64(len(u.buf)))])
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return tarError(err)
		}
		if _, err := w.Write(u.buf[:n]); err != nil {
			return err
		}
		left -= int64(n)
	}
	return u.size(id, uint64(size))
}

func (u *unpacker) size(id layers.NodeID, size uint64) error {
	_, err := u.o.SetAttr(u.caller, id, layers.SetAttr{Valid: layers.SetSize, Size: size})
	return err
}

// nodeWriter writes into a file of an overlay.
type nodeWriter struct {
	o  *layers.Overlay
	id layers.NodeID
}

// WriteAt implements io.WriterAt.
func (n nodeWriter) WriteAt(data []byte, off int64) (int, error) {
	return n.o.Write(n.id, data, off, nil)
}
