package layers

import (
	"context"
	"errors"
	"io"
	"iter"

	"snapfs/chunkstore"
	"snapfs/squashfs"
)

// NodeID names a node of a live overlay as FUSE does; the root is 1.
type NodeID uint64

// RootNode is the root directory of every overlay.
const RootNode NodeID = 1

// Caller is who asks: owner of what is created. Permission checks are the kernel's (default_permissions).
type Caller struct{ UID, GID, PID uint32 }

// Attr is what stat shows. Ino is stable across copy-up, rename, remount, seal, restore and branch.
type Attr struct {
	Ino, Size, Blocks uint64
	Mode              uint32
	Nlink             uint32
	UID, GID          uint32
	Rdev              uint64
	Blksize           uint32
	Atime             squashfs.Time
	Mtime             squashfs.Time
	Ctime             squashfs.Time
	Btime             squashfs.Time
}

// Entry is the answer of a look-up; it holds one reference that Forget gives back.
type Entry struct {
	Node NodeID
	Gen  uint64
	Attr Attr
}

// Valid bits of SetAttr.
const (
	SetMode = 1 << iota
	SetUID
	SetGID
	SetSize
	SetAtime
	SetMtime
	SetAtimeNow
	SetMtimeNow
	KillPriv // clear setuid, setgid and capabilities, as the kernel asks with a size change or chown
)

// SetAttr is a change of attributes; Valid says which fields count.
type SetAttr struct {
	Valid        uint32
	Mode         uint32
	UID, GID     uint32
	Size         uint64
	Atime, Mtime squashfs.Time
}

// DirEntry is one name of a directory listing. Cookie resumes the listing after this name.
type DirEntry struct {
	Name   string
	Ino    uint64
	Mode   uint32 // type bits
	Cookie uint64
}

// Statfs is what statfs(2) shows, counted on the file system of the upper.
type Statfs struct {
	Blocks, Bfree, Bavail, Files, Ffree uint64
	Bsize, NameLen, Frsize              uint32
}

// Lower is one immutable layer: a sealed directory or an image. Safe for concurrent use. Reference-counted: whoever
// opened it calls Close; an overlay that uses it holds its own reference.
type Lower interface {
	// Key is durable and unique in a home, and the same for the sealed directory and for the image it becomes.
	Key() string
	Close() error
}

// OpenSealed opens a sealed upper directory as a lower. inoBase is the Options.InoBase of the overlay that wrote it.
func OpenSealed(key, dir string, inoBase uint64) (Lower, error) { return nil, errors.ErrUnsupported }

// OpenImage opens a stored image as a lower; it closes r when it is closed.
func OpenImage(key string, r *chunkstore.Reader, id chunkstore.ID) (Lower, error) {
	return nil, errors.ErrUnsupported
}

// OpenFile opens an image file of any origin as a lower.
func OpenFile(key string, r io.ReaderAt, size int64) (Lower, error) {
	return nil, errors.ErrUnsupported
}

// Options are for New.
type Options struct {
	// InoBase is or-ed to the host's inode numbers of what is created in this upper, so that numbers are unique in a home.
	InoBase  uint64
	ReadOnly bool // no upper is written; Upper may be ""
	// Whiteouts: "" probes the host; "char" or "xattr".
	Whiteouts string
}

// Notifier tells the kernel that something changed beneath it; implemented by fs. Calls may block and are never made inside the gate.
type Notifier interface {
	InvalidateNode(n NodeID)
	InvalidateEntry(parent NodeID, name string)
}

// Overlay is one live workspace: an upper over lowers. All methods are safe for concurrent use; errors are
// unix.Errno (possibly wrapped) for everything a caller of the file system should see.
type Overlay struct{}

// New opens an overlay. upper and work are directories on one host file system; lowers go from the topmost down.
func New(upper, work string, lowers []Lower, opts Options) (*Overlay, error) {
	return nil, errors.ErrUnsupported
}

// Close releases descriptors and lowers. No call may be running.
func (o *Overlay) Close() error { return errors.ErrUnsupported }

// SetNotifier is called by the mount before it serves.
func (o *Overlay) SetNotifier(n Notifier) {}

// Lookup finds name in parent; ENOENT.
func (o *Overlay) Lookup(parent NodeID, name string) (Entry, error) {
	return Entry{}, errors.ErrUnsupported
}

// Forget gives back n references of a node.
func (o *Overlay) Forget(node NodeID, n uint64) {}

// GetAttr stats a node.
func (o *Overlay) GetAttr(node NodeID) (Attr, error) { return Attr{}, errors.ErrUnsupported }

// SetAttr changes attributes, copying up metadata only where data need not move.
func (o *Overlay) SetAttr(c Caller, node NodeID, s SetAttr) (Attr, error) {
	return Attr{}, errors.ErrUnsupported
}

// Mknod makes a file of any type but directory and symlink, regular files included. mode has the umask applied.
func (o *Overlay) Mknod(c Caller, parent NodeID, name string, mode uint32, rdev uint64) (Entry, error) {
	return Entry{}, errors.ErrUnsupported
}

// Mkdir makes a directory.
func (o *Overlay) Mkdir(c Caller, parent NodeID, name string, mode uint32) (Entry, error) {
	return Entry{}, errors.ErrUnsupported
}

// Symlink makes a symbolic link.
func (o *Overlay) Symlink(c Caller, parent NodeID, name, target string) (Entry, error) {
	return Entry{}, errors.ErrUnsupported
}

// Link makes a hard link of node.
func (o *Overlay) Link(node, parent NodeID, name string) (Entry, error) {
	return Entry{}, errors.ErrUnsupported
}

// Unlink removes a non-directory; its node lives until Forget.
func (o *Overlay) Unlink(parent NodeID, name string) error { return errors.ErrUnsupported }

// Rmdir removes an empty directory.
func (o *Overlay) Rmdir(parent NodeID, name string) error { return errors.ErrUnsupported }

// Rename moves a name; flags are RENAME_NOREPLACE and RENAME_EXCHANGE of renameat2(2). Directories of a lower move in O(1) by redirect.
func (o *Overlay) Rename(oldParent NodeID, oldName string, newParent NodeID, newName string, flags uint32) error {
	return errors.ErrUnsupported
}

// Readlink gives a symlink's target.
func (o *Overlay) Readlink(node NodeID) (string, error) { return "", errors.ErrUnsupported }

// ReadDir yields the names after cookie (0 = start), "." and ".." included, until yield returns false. Cookies survive concurrent change.
func (o *Overlay) ReadDir(dir NodeID, cookie uint64, yield func(DirEntry) bool) error {
	return errors.ErrUnsupported
}

// Read reads file contents.
func (o *Overlay) Read(node NodeID, p []byte, off int64) (int, error) {
	return 0, errors.ErrUnsupported
}

// Write writes file contents, copying up first. killPriv clears setuid and setgid.
func (o *Overlay) Write(node NodeID, p []byte, off int64, killPriv bool) (int, error) {
	return 0, errors.ErrUnsupported
}

// Fallocate is fallocate(2).
func (o *Overlay) Fallocate(node NodeID, mode uint32, off, length int64) error {
	return errors.ErrUnsupported
}

// Seek is lseek(2) for SEEK_DATA and SEEK_HOLE.
func (o *Overlay) Seek(node NodeID, off int64, whence int) (int64, error) {
	return 0, errors.ErrUnsupported
}

// CopyRange is copy_file_range(2).
func (o *Overlay) CopyRange(src NodeID, srcOff int64, dst NodeID, dstOff, length int64) (int64, error) {
	return 0, errors.ErrUnsupported
}

// Fsync makes a file or directory durable.
func (o *Overlay) Fsync(node NodeID, dataOnly bool) error { return errors.ErrUnsupported }

// Sync makes everything in the upper durable.
func (o *Overlay) Sync() error { return errors.ErrUnsupported }

// Statfs describes the host file system.
func (o *Overlay) Statfs() (Statfs, error) { return Statfs{}, errors.ErrUnsupported }

// GetXattr reads one attribute; ENODATA. Names of the overlay itself are hidden and escaped as the kernel does.
func (o *Overlay) GetXattr(node NodeID, name string) ([]byte, error) {
	return nil, errors.ErrUnsupported
}

// ListXattr lists names.
func (o *Overlay) ListXattr(node NodeID) ([]string, error) { return nil, errors.ErrUnsupported }

// SetXattr sets one; flags are XATTR_CREATE and XATTR_REPLACE.
func (o *Overlay) SetXattr(node NodeID, name string, value []byte, flags int) error {
	return errors.ErrUnsupported
}

// RemoveXattr removes one; ENODATA.
func (o *Overlay) RemoveXattr(node NodeID, name string) error { return errors.ErrUnsupported }

// Seal ends the current upper behind the gate: lets running mutations finish, swaps in the empty upper and work given,
// calls record (short, nothing that waits for the kernel) and opens. The old upper becomes the topmost lower under key.
// With an error nothing has changed. The returned Lower is the caller's reference.
func (o *Overlay) Seal(ctx context.Context, key, upper, work string, inoBase uint64, record func() error) (Lower, error) {
	return nil, errors.ErrUnsupported
}

// Changed reports whether the upper holds anything that differs from the lowers (a cheap test: no = a no-op snapshot).
func (o *Overlay) Changed() (bool, error) { return true, errors.ErrUnsupported }

// Replace swaps a lower for another of the same Key beneath the running overlay: a sealed directory for its image.
func (o *Overlay) Replace(next Lower) error { return errors.ErrUnsupported }

// PackOptions are for Pack.
type PackOptions struct {
	NoSync   bool
	Progress func(files, bytes int64)
}

// Pack stores a sealed layer as an image: writes its store form into the chunk store, predicting every file and the
// metadata tables from the layers below, and commits together with the records fn writes.
func Pack(ctx context.Context, s *chunkstore.Store, layer Lower, below []Lower, opts PackOptions,
	fn func(tx *chunkstore.Tx, m chunkstore.Manifest) error) (chunkstore.Manifest, error) {
	return chunkstore.Manifest{}, errors.ErrUnsupported
}

// PackTree stores a host directory (read once, nothing copied) as a base image.
func PackTree(ctx context.Context, s *chunkstore.Store, dir string, opts PackOptions,
	fn func(tx *chunkstore.Tx, m chunkstore.Manifest) error) (chunkstore.Manifest, error) {
	return chunkstore.Manifest{}, errors.ErrUnsupported
}

// Merged presents a whole stack (topmost first) as one tree without whiteouts, for export.
func Merged(stack []Lower) (squashfs.Source, error) { return nil, errors.ErrUnsupported }

// Delta presents one layer as it is, whiteouts and overlay attributes included, as the kernel's overlayfs reads them.
func Delta(layer Lower) (squashfs.Source, error) { return nil, errors.ErrUnsupported }

// Kind of change in a diff.
type Kind byte

// A added, M contents or metadata modified, D deleted, T type changed, R renamed.
const (
	Added    Kind = 'A'
	Modified Kind = 'M'
	Deleted  Kind = 'D'
	Retyped  Kind = 'T'
	Renamed  Kind = 'R'
)

// Change is one line of a diff, in path order.
type Change struct {
	Kind    Kind
	Path    string // relative, slash-separated, raw bytes
	OldPath string // of a rename
	Mode    uint32 // new mode, or the old one if deleted
	Size    int64
}

// Diff compares two stacks (topmost first), skipping what they share, in time proportional to what differs.
func Diff(ctx context.Context, a, b []Lower) iter.Seq2[Change, error] { return nil }

// Lowers gives the overlay's stack with a read-only view of its present upper on top, each with a reference for the caller.
func (o *Overlay) Lowers() ([]Lower, error) { return nil, errors.ErrUnsupported }
