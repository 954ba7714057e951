package squashfs

import (
	"encoding/binary"
	"fmt"
	"math/bits"
)

// The on-disk structures follow the kernel's fs/squashfs/squashfs_fs.h; every integer is little endian.

const (
	magic        = 0x73717368 // "hsqs"
	majorVersion = 4
	minorVersion = 0

	superblockSize = 96
	metadataSize   = 8192 // bytes of an unpacked metadata block; only a table's last may be shorter
	minBlockSize   = 4 << 10
	maxBlockSize   = 1 << 20
	padding        = 4096 // the kernel refuses a device that ends before bytes_used rounded up to its block size

	// noTable in a superblock, noFragment and noXattr in an inode: there is none.
	noTable    = ^uint64(0)
	noFragment = ^uint32(0)
	noXattr    = ^uint32(0)
)

// Flags of a superblock.
const (
	flagUncompressedInodes    = 1 << 0
	flagUncompressedData      = 1 << 1
	flagUncompressedFragments = 1 << 3
	flagNoFragments           = 1 << 4
	flagAlwaysFragments       = 1 << 5
	flagDuplicates            = 1 << 6
	flagExportable            = 1 << 7
	flagUncompressedXattrs    = 1 << 8
	flagNoXattrs              = 1 << 9
	flagCompressorOptions     = 1 << 10
	flagUncompressedIDs       = 1 << 11
)

// Compressor ids of a superblock.
const (
	compressorGzip = 1
	compressorLzma = 2
	compressorLzo  = 3
	compressorXz   = 4
	compressorLz4  = 5
	compressorZstd = 6
)

// superblock is the first structure of an image:
//
//	 0 magic      u32   4 inodes    u32   8 mtime     u32  12 blockSize u32
//	16 fragments  u32  20 compressor u16 22 blockLog  u16  24 flags     u16  26 ids u16
//	28 major      u16  30 minor     u16  32 root      u64  40 bytesUsed u64
//	48 idTable    u64  56 xattrTable u64 64 inodeTable u64 72 dirTable  u64
//	80 fragTable  u64  88 exportTable u64
type superblock struct {
	inodes      uint32
	mtime       uint32
	blockSize   uint32
	fragments   uint32
	compressor  uint16
	flags       uint16
	ids         uint16
	root        Ref
	bytesUsed   uint64
	idTable     uint64
	xattrTable  uint64
	inodeTable  uint64
	dirTable    uint64
	fragTable   uint64
	exportTable uint64
}

func (s *superblock) encode() []byte {
	le := binary.LittleEndian
	b := make([]byte, 0, superblockSize)
	b = le.AppendUint32(b, magic)
	b = le.AppendUint32(b, s.inodes)
	b = le.AppendUint32(b, s.mtime)
	b = le.AppendUint32(b, s.blockSize)
	b = le.AppendUint32(b, s.fragments)
	b = le.AppendUint16(b, s.compressor)
	b = le.AppendUint16(b, uint16(bits.TrailingZeros32(s.blockSize)))
	b = le.AppendUint16(b, s.flags)
	b = le.AppendUint16(b, s.ids)
	b = le.AppendUint16(b, majorVersion)
	b = le.AppendUint16(b, minorVersion)
	for _, v := range []uint64{
		uint64(s.root), s.bytesUsed, s.idTable, s.xattrTable,
		s.inodeTable, s.dirTable, s.fragTable, s.exportTable,
	} {
		b = le.AppendUint64(b, v)
	}
	return b
}

// decode reads a superblock of at least superblockSize bytes. It checks magic, version and block size. Callers, who
// know the image's size, must check whether the tables lie inside the image.
func (s *superblock) decode(b []byte) error {
	le := binary.LittleEndian
	if len(b) < superblockSize {
		return fmt.Errorf("%w: %d bytes hold no superblock", ErrCorrupt, len(b))
	}
	if m := le.Uint32(b); m != magic {
		return fmt.Errorf("%w: magic %#x is not squashfs", ErrCorrupt, m)
	}
	if major, minor := le.Uint16(b[28:]), le.Uint16(b[30:]); major != majorVersion || minor != minorVersion {
		return fmt.Errorf("%w: version %d.%d, want %d.%d", ErrCorrupt, major, minor, majorVersion, minorVersion)
	}
	*s = superblock{
		inodes:      le.Uint32(b[4:]),
		mtime:       le.Uint32(b[8:]),
		blockSize:   le.Uint32(b[12:]),
		fragments:   le.Uint32(b[16:]),
		compressor:  le.Uint16(b[20:]),
		flags:       le.Uint16(b[24:]),
		ids:         le.Uint16(b[26:]),
		root:        Ref(le.Uint64(b[32:])),
		bytesUsed:   le.Uint64(b[40:]),
		idTable:     le.Uint64(b[48:]),
		xattrTable:  le.Uint64(b[56:]),
		inodeTable:  le.Uint64(b[64:]),
		dirTable:    le.Uint64(b[72:]),
		fragTable:   le.Uint64(b[80:]),
		exportTable: le.Uint64(b[88:]),
	}
	if s.blockSize < minBlockSize || s.blockSize > maxBlockSize || s.blockSize&(s.blockSize-1) != 0 {
		return fmt.Errorf("%w: block size %d", ErrCorrupt, s.blockSize)
	}
	if log := le.Uint16(b[22:]); int(log) != bits.TrailingZeros32(s.blockSize) {
		return fmt.Errorf("%w: block size %d with logarithm %d", ErrCorrupt, s.blockSize, log)
	}
	return nil
}

// A metadata block is preceded by its stored length; metadataUncompressed says it is stored as it is.
const metadataUncompressed = 1 << 15

// metadataHeader splits the u16 before a metadata block.
func metadataHeader(v uint16) (length int, compressed bool) {
	return int(v &^ metadataUncompressed), v&metadataUncompressed == 0
}

// A data block's u32 is its stored length, 0 for a block of zeros that is not stored;
// dataUncompressed says it is stored as it is.
const dataUncompressed = 1 << 24

// dataHeader splits a u32 of a block list or fragment entry. The length is not checked against the block size.
func dataHeader(v uint32) (length int, compressed bool) {
	return int(v &^ dataUncompressed), v&dataUncompressed == 0
}

// makeRef joins the offset of a metadata block in its table with an offset in the unpacked block.
func makeRef(block uint64, offset int) Ref { return Ref(block<<16 | uint64(offset)) }

func (r Ref) block() uint64 { return uint64(r) >> 16 }
func (r Ref) offset() int   { return int(r & 0xffff) }

// tableBlocks is how many metadata blocks n entries of the given size fill.
func tableBlocks(n uint64, size int) uint64 {
	return (n*uint64(size) + metadataSize - 1) / metadataSize
}
