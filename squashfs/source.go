package squashfs

import (
	"context"
	"errors"
	"io"
)

// InodeID tells inodes of a Source apart, whatever numbers their attributes claim.
type InodeID struct{ Layer, Inode uint64 }

// Entry is one node of a Source. Non-directories with Nlink > 1 and equal Inode are hard links of one inode; without an
// Inode, those with an equal Attr.Ino.
type Entry struct {
	Name   string
	Attr   Attr
	Inode  InodeID
	Xattrs []Xattr
	Shared XattrSet // instead of Xattrs, which is nil then
	Target string   // of a symlink
	// Links is the least link count of a directory: in one layer of several, subdirectories count that only others have.
	Links  uint32
	Handle any // the source's own
}

// XattrSet is a set of attributes that many entries may share. Equal IDs of one source are equal sets, so that each is read once.
type XattrSet struct {
	ID   uint64 // 0: there is none
	Read func() ([]Xattr, error)
}

// Attributes gives the entry's attributes, shared or its own.
func (e *Entry) Attributes() ([]Xattr, error) {
	if e.Shared.ID == 0 {
		return e.Xattrs, nil
	}
	return e.Shared.Read()
}

// inode is what names of one inode have in common.
func (e *Entry) inode() InodeID {
	if e.Inode == (InodeID{}) {
		return InodeID{Inode: e.Attr.Ino}
	}
	return e.Inode
}

// Source is a tree to be written. It is called from one goroutine, except Open's files, which are read by several. What it
// keeps should not grow with the tree: the writer holds the entries of the directories above the one it is at, and of what
// is beside them only the names.
type Source interface {
	Root(ctx context.Context) (*Entry, error)
	// Names lists a directory in any order; the writer sorts, in a slice that is its own from then on.
	Names(ctx context.Context, dir *Entry) ([]string, error)
	// Entry gives what a name is that Names has listed; nil if it is left out, as what has gone meanwhile.
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
	// CopyTo gives the sink the next bytes of its image, which are those at off, n at most, in another way than by Write.
	// copied tells whether it did, and k how many, or else how many must be read before it makes sense to ask again.
	CopyTo(sink Sink, off, n int64) (k int64, copied bool, err error)
}
