package squashfs

import (
	"io"
	"sync/atomic"
)

// Options bound a reader.
type Options struct {
	CacheBytes int64  // of unpacked blocks; 0 means DefaultCacheBytes
	Cache      *Cache // to share a cache among images, instead of CacheBytes
}

// Image reads one squashfs image. It is safe for concurrent use.
type Image struct {
	r      io.ReaderAt
	size   int64 // of r
	sb     superblock
	id     uint64 // identifies the image in a shared cache
	cache  *Cache
	unpack decompressor

	inodes    region
	dirs      region
	fragments table
	exports   table
	idTable   table

	ids     lazy[[]uint32]
	xattrs  lazy[xattrIndex]
	ext     lazy[*extension]
	ordered refSet // directories whose order has been verified
	tables  dirTables
	sets    knownSets
}

// region is where a table of metadata blocks lies in the image.
type region struct {
	name       string
	start, end int64
}

// lazy is a value that is computed on first use. Goroutines that need it at the same time may each compute it; no lock
// is held.
type lazy[T any] struct{ p atomic.Pointer[T] }

func (l *lazy[T]) get(load func() (*T, error)) (*T, error) {
	if v := l.p.Load(); v != nil {
		return v, nil
	}
	v, err := load()
	if err != nil {
		return nil, err
	}
	l.p.CompareAndSwap(nil, v)
	return l.p.Load(), nil
}

// Open checks the superblock and the locations of the tables. It does not read the tables, so it takes the same time
// for any image. size is that of the file or store that r reads, bytes after the file system included. Errors are of
// class ErrCorrupt, or r's.
func Open(r io.ReaderAt, size int64, opts Options) (*Image, error) {
	im := &Image{r: r, size: size, id: imageIDs.Add(1), cache: opts.Cache}
	if size < superblockSize {
		return nil, corrupt(0, "%d bytes hold no superblock", size)
	}
	var b [superblockSize]byte
	if err := readFull(r, b[:], 0); err != nil {
		return nil, err
	}
	if err := im.sb.decode(b[:]); err != nil {
		return nil, locate(0, err)
	}
	var err error
	if im.unpack, err = newDecompressor(im.sb.compressor); err != nil {
		return nil, locate(sbCompressor, err)
	}
	if err := im.checkTables(); err != nil {
		return nil, err
	}
	if im.cache == nil {
		im.cache = NewCache(opts.CacheBytes)
	}
	return im, nil
}

// Offsets of superblock fields that errors point at.
const (
	sbInodes     = 0
	sbFragments  = 16
	sbCompressor = 20
	sbIDs        = 26
	sbRoot       = 32
	sbBytesUsed  = 40
	sbIDTable    = 48
	sbXattrTable = 56
	sbInodeTable = 64
	sbDirTable   = 72
	sbFragTable  = 80
	sbExports    = 88
)

// checkTables checks that the tables lie inside the image in the order that the kernel requires, too: inodes,
// directories, fragments, export, ids, xattrs. Missing tables take no space.
func (im *Image) checkTables() error {
	sb := &im.sb
	if sb.bytesUsed < superblockSize || sb.bytesUsed > uint64(im.size) {
		return corrupt(sbBytesUsed, "file system of %d bytes in an image of %d", sb.bytesUsed, im.size)
	}
	if sb.inodes == 0 {
		return corrupt(sbInodes, "no inodes")
	}
	if sb.ids == 0 {
		return corrupt(sbIDs, "no ids")
	}
	if sb.fragments == 0 || sb.fragTable == noTable {
		if sb.fragments != 0 {
			return corrupt(sbFragTable, "%d fragments without a table", sb.fragments)
		}
		sb.fragTable = noTable // some writers give an offset for a table without entries
	}
	end := sb.bytesUsed
	for _, t := range []struct {
		name  string
		field int64
		at    uint64
		min   uint64 // bytes of its array of offsets
		need  bool
	}{
		{"xattr", sbXattrTable, sb.xattrTable, xattrTableSize, false},
		{"id", sbIDTable, sb.idTable, 8 * tableBlocks(uint64(sb.ids), idEntrySize), true},
		{"export", sbExports, sb.exportTable, 8 * tableBlocks(uint64(sb.inodes), exportEntrySize), false},
		{"fragment", sbFragTable, sb.fragTable, 8 * tableBlocks(uint64(sb.fragments), fragmentEntrySize), false},
		{"directory", sbDirTable, sb.dirTable, 0, true},
		{"inode", sbInodeTable, sb.inodeTable, 1, true},
	} {
		if t.at == noTable && !t.need {
			continue
		}
		if t.at < superblockSize || t.at > end || end-t.at < t.min {
			return corrupt(t.field, "%s table at %d, want %d bytes or more between %d and %d", t.name, t.at, t.min,
				superblockSize, end)
		}
		end = t.at
	}
	dirEnd := sb.idTable
	for _, at := range []uint64{sb.exportTable, sb.fragTable} {
		if at != noTable {
			dirEnd = at
		}
	}
	if uint64(sb.fragments) > sb.inodeTable {
		return corrupt(sbFragments, "%d fragments in a data area of %d bytes", sb.fragments, sb.inodeTable)
	}
	im.inodes = region{"inode table", int64(sb.inodeTable), int64(sb.dirTable)}
	im.dirs = region{"directory table", int64(sb.dirTable), int64(dirEnd)}
	im.fragments = table{
		name: "fragment table", at: int64(sb.fragTable), count: uint64(sb.fragments),
		size: fragmentEntrySize,
	}
	im.idTable = table{name: "id table", at: int64(sb.idTable), count: uint64(sb.ids), size: idEntrySize}
	if sb.exportTable != noTable {
		im.exports = table{
			name: "export table", at: int64(sb.exportTable), count: uint64(sb.inodes),
			size: exportEntrySize,
		}
	}
	return nil
}

// Root is the root directory.
func (im *Image) Root() Ref { return im.sb.root }
