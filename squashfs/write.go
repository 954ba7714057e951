package squashfs

import (
	"context"
	"errors"
	"io"
)

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
