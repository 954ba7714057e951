package squashfs

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"iter"
)

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
