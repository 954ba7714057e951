package squashfs

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"iter"
)

// ErrCorrupt is the class of every error that says an image breaks the format.
var ErrCorrupt = errors.New("corrupt squashfs image")

// Time is a Linux timespec since 1970.
type Time struct {
	Sec  int64
	Nsec uint32
}

// Attr is what an inode carries. Ino, nanoseconds, Ctime and Btime come from the
// extension section; without one Ino is the squashfs inode number and the rest Mtime.
type Attr struct {
	Ino                 uint64
	Mode                uint32 // st_mode: type and permissions
	UID, GID            uint32
	Nlink               uint32
	Rdev                uint64 // st_rdev as golang.org/x/sys/unix.Mkdev makes it
	Size                int64  // bytes; of a symlink its target's length
	Mtime, Ctime, Btime Time   // Btime zero: unknown
}

// Xattr is one extended attribute under its full name ("user.x", "trusted.overlay.opaque", "system.posix_acl_access").
type Xattr struct {
	Name  string
	Value []byte
}

// Extent is a range of a file that holds data; what lies between extents is a hole.
type Extent struct{ Off, Len int64 }

// Ref is an inode's place in the inode table, as directory entries give it.
type Ref uint64

// DirEntry is one name in a directory.
type DirEntry struct {
	Name string
	Ref  Ref
	Mode uint32 // type bits only
	Ino  uint64
}

// Options bound a reader.
type Options struct{ CacheBytes int64 }

// Image reads one squashfs image; safe for concurrent use.
type Image struct{}

// Inode is one parsed inode, immutable and safe for concurrent use.
type Inode struct{}

// Open checks the superblock and tables' places; it does not read the tables.
func Open(r io.ReaderAt, size int64, opts Options) (*Image, error) { return nil, errors.ErrUnsupported }

// Root is the root directory.
func (im *Image) Root() Ref { return 0 }

// Inode parses the inode at ref.
func (im *Image) Inode(ref Ref) (*Inode, error) { return nil, errors.ErrUnsupported }

// FS presents the image as an io/fs file system (also ReadLinkFS; FileInfo.Sys gives *Inode).
func (im *Image) FS() fs.FS { return nil }

// Ref is where the inode came from.
func (n *Inode) Ref() Ref { return 0 }

// Attr gives the inode's attributes.
func (n *Inode) Attr() Attr { return Attr{} }

// Lookup finds one name in a directory by binary search of its index; fs.ErrNotExist if it is not there.
func (n *Inode) Lookup(name string) (DirEntry, error) { return DirEntry{}, errors.ErrUnsupported }

// ReadDir yields the names after the given one ("" = from the start) in byte order.
func (n *Inode) ReadDir(after string) iter.Seq2[DirEntry, error] { return nil }

// ReadAt reads file contents, holes as zeros.
func (n *Inode) ReadAt(p []byte, off int64) (int, error) { return 0, errors.ErrUnsupported }

// Extents lists where the file has data, from the extension section or else by whole sparse blocks.
func (n *Inode) Extents() ([]Extent, error) { return nil, errors.ErrUnsupported }

// Readlink gives a symlink's target.
func (n *Inode) Readlink() (string, error) { return "", errors.ErrUnsupported }

// Xattrs lists all extended attributes, ACLs of the extension section included.
func (n *Inode) Xattrs() ([]Xattr, error) { return nil, errors.ErrUnsupported }

// Data tells where in the image a file's bytes lie, if they lie there uncompressed and contiguous
// (always so in the store form): the ranges to predict the next version of the file from.
func (n *Inode) Data() (off, length int64, ok bool) { return 0, 0, false }

// MetadataStart is the first byte after the data area: the inode, directory and other tables up to the end.
func (im *Image) MetadataStart() int64 { return 0 }

// Entry is one node of a Source. Non-directories with Nlink > 1 and equal Ino are hard links of one inode.
type Entry struct {
	Name   string
	Attr   Attr
	Xattrs []Xattr
	Target string // of a symlink
	Handle any    // the source's own
}

// Source is a tree to be written. It is called from one goroutine, except Open's files, which are read by several.
type Source interface {
	Root(ctx context.Context) (*Entry, error)
	// ReadDir lists a directory's entries in any order; the writer sorts.
	ReadDir(ctx context.Context, dir *Entry) ([]*Entry, error)
	Open(ctx context.Context, file *Entry) (File, error)
}

// File is the contents of a regular file of a Source.
type File interface {
	io.ReaderAt
	io.Closer
	// Extents lists where the file has data, in order.
	Extents() ([]Extent, error)
}

// Sink takes a store-form image. The image starts with HeaderSize bytes that come last, by Header;
// Write gives the bytes after them in order.
type Sink interface {
	io.Writer
	// Cut announces what the next bytes are; called before each file's data and before each metadata table.
	Cut(c Cut) error
	// Header gives the first HeaderSize bytes, once, at the end.
	Header(p []byte) error
}

// HeaderSize is how many bytes of a store-form image are known last: the superblock.
const HeaderSize = 96

// Cut describes the bytes that follow it.
type Cut struct {
	Path string // slash-separated from the root, "" for metadata
	Size int64  // bytes of data that follow for this file; for metadata the table's length
	Meta bool
}

// StoreOptions are for WriteStore.
type StoreOptions struct {
	Progress func(files int64, bytes int64) // may be nil; called often
}

// ShipOptions are for WriteShip.
type ShipOptions struct {
	Compression string // none, gzip, zstd, xz, lz4
	Level       int    // 0 = the compressor's default
	BlockSize   int    // 0 = 128 KiB; 4 KiB to 1 MiB, a power of two
	NoFragments bool
	NoExtension bool // leave the extension section out
	Exportable  bool
	Workers     int
	Progress    func(files int64, bytes int64)
}

// Info says what was written.
type Info struct {
	Size   int64 // bytes, padding included
	Inodes uint32
	Files  int64
	Data   int64 // bytes of file contents, holes excluded
}

// WriteStore writes the store form of src: uncompressed contiguous data, deterministic.
func WriteStore(ctx context.Context, sink Sink, src Source, opts StoreOptions) (Info, error) {
	return Info{}, errors.ErrUnsupported
}

// WriteShip writes a compressed image of src for other tools, deterministic for equal options (Workers aside).
func WriteShip(ctx context.Context, w io.WriterAt, src Source, opts ShipOptions) (Info, error) {
	return Info{}, errors.ErrUnsupported
}

// ImageSource presents an image as a Source, to re-encode it.
func ImageSource(im *Image) Source { return nil }

// Violation is one broken rule of the format.
type Violation struct {
	Off  int64 // in the image, -1 if none
	Path string
	Rule string
}

// Check walks an image and reports every violated rule; its error is only that of reading or of ctx.
func Check(ctx context.Context, r io.ReaderAt, size int64, report func(Violation)) error {
	return errors.ErrUnsupported
}
