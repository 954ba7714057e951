package squashfs

import (
	"context"
	"errors"
	"io"
)

// InodeID identifies inodes of a Source, whatever numbers their attributes claim.
type InodeID struct{ Layer, Inode uint64 }

// Entry is one node of a Source. Non-directories with Nlink > 1 and equal Inode are hard links of one inode. If Inode
// is not set, equal Attr.Ino counts instead.
type Entry struct {
	Name   string
	Attr   Attr
	Inode  InodeID
	Xattrs []Xattr
	Shared XattrSet // instead of Xattrs, which is nil then
	Target string   // of a symlink
	// Links is the least link count of a directory: in one layer of several, subdirectories that only other layers have
	// count, too.
	Links  uint32
	Handle any // the source's own
}

// XattrSet is a set of attributes that many entries may share. Within one source, equal IDs are equal sets, so that
// each set is read once.
type XattrSet struct {
	ID   uint64 // 0: none
	Read func() ([]Xattr, error)
}

// Attributes returns the entry's attributes, shared or not.
func (e *Entry) Attributes() ([]Xattr, error) {
	if e.Shared.ID == 0 {
		return e.Xattrs, nil
	}
	return e.Shared.Read()
}

// inode is what the names of one inode have in common.
func (e *Entry) inode() InodeID {
	if e.Inode == (InodeID{}) {
		return InodeID{Inode: e.Attr.Ino}
	}
	return e.Inode
}

// Source is a tree to be written. It is called from one goroutine, except the files that Open returns, which are read
// by several. Its memory should not grow with the tree: the writer holds the entries of the directories above the
// current one, and the names of their siblings.
type Source interface {
	Root(ctx context.Context) (*Entry, error)
	// Names lists a directory in any order. The writer owns the slice from then on, and sorts it.
	Names(ctx context.Context, dir *Entry) ([]string, error)
	// Entry describes a name that Names has listed. nil means that the name is left out, as when it has been removed in
	// between.
	Entry(ctx context.Context, dir *Entry, name string) (*Entry, error)
	Open(ctx context.Context, file *Entry) (File, error)
}

// errForeign is for entries that come from another Source.
var errForeign = errors.New("an entry of another source")

// File is the contents of a regular file of a Source.
type File interface {
	io.ReaderAt
	io.Closer
	// Extents lists where the file has data, in order.
	Extents() ([]Extent, error)
}

// Copier is a File of which a sink may have some bytes already, so that they need not be read.
type Copier interface {
	File
	// CopyTo gives the sink the next bytes of its image, which are those at off, n at most, in another way than by
	// Write. copied reports whether it did. k is how many bytes it gave, or else how many must be read before it makes
	// sense to try again.
	CopyTo(sink Sink, off, n int64) (k int64, copied bool, err error)
}
