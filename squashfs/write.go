package squashfs

import (
	"errors"
	"io"
)

// ErrLimit is the class of errors for trees that squashfs cannot hold: more than 65,535 owners and groups, names longer
// than 255 bytes, files beyond MaxBlocks, device numbers beyond 12 and 20 bits, and similar.
var ErrLimit = errors.New("beyond the limits of squashfs")

// ErrInodes is the class of errors for a tree with more inodes than StoreOptions.MaxInodes.
var ErrInodes = errors.New("too many inodes")

// ErrLinks is the class of errors for a file with more names than StoreOptions.MaxLinks.
var ErrLinks = errors.New("too many hard links")

// MaxBlocks is how many blocks, holes included, a file to be written may have: 128 TiB at a block size of 1 MiB.
// The kernel could read a longer list, but each entry takes four bytes of metadata even for a hole.
const MaxBlocks = 1 << 27

// Sink takes a store-form image. The first HeaderSize bytes of the image come last, by Header. Write takes the bytes
// after them in order.
type Sink interface {
	io.Writer
	// Cut announces the next bytes. It is called before each file's data and before each metadata table.
	Cut(c Cut) error
	// Header gives the first HeaderSize bytes, once, at the end.
	Header(p []byte) error
}

// HeaderSize is how many bytes of a store-form image are known only at the end: the superblock.
const HeaderSize = 96

// Cut describes the bytes that follow it.
type Cut struct {
	Path string // slash-separated from the root, "" for metadata
	Size int64  // bytes of data that follow for this file; for metadata the table's length
	Meta bool
	// Table names the metadata table, so that the same table of an earlier image can be found: "inodes", "directories",
	// "ids", "xattrs", "extension", one for each column of that, and "padding".
	Table string
}

// StoreOptions are for WriteStore.
type StoreOptions struct {
	Progress func(files int64, bytes int64) // may be nil; called often, from one goroutine
	TempDir  string                         // for what exceeds the bound of memory; "" = the system's
	Home     uint64                         // home of the inode numbers, see Image.Home; 0 = none
	// the root is number 1, the others follow in the order of the image, whatever the source says
	Renumber  bool
	MaxLinks  uint32 // names that a file may have; 0 = any number
	MaxInodes uint32 // of the image; 0 = any number
	// Share stores files once that the source says to be the same (see [Sharer]). The bytes then depend on more than
	// the tree.
	Share bool
}

// ShipOptions are for WriteShip.
type ShipOptions struct {
	Compression string // none, gzip, zstd, xz, lz4; "" = zstd
	Level       int    // 0 = the compressor's default: gzip 9, zstd 15; lz4: above 0 the slow mode; xz has none
	BlockSize   int    // 0 = 128 KiB; 4 KiB to 1 MiB, a power of two
	NoFragments bool
	NoExtension bool // leave the extension section out
	Exportable  bool
	Workers     int    // 0 = GOMAXPROCS
	TempDir     string // as in StoreOptions
	Progress    func(files int64, bytes int64)
	Home        uint64 // as in StoreOptions
}

// Info describes what was written.
type Info struct {
	Size   int64 // bytes, padding included
	Inodes uint32
	Files  int64
	Data   int64 // bytes of file contents, holes excluded
}
