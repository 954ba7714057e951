package squashfs

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// Inode types. An extended type is its basic type plus extendedType; directory entries name the basic one.
const (
	typeDir      = 1
	typeFile     = 2
	typeSymlink  = 3
	typeBlockDev = 4
	typeCharDev  = 5
	typeFifo     = 6
	typeSocket   = 7
	extendedType = 7
)

// inodeHeaderSize and the sizes after it are fixed parts, header included, without block list,
// directory index, symlink target and the u32 xattr index that follows an extended symlink's target.
const (
	inodeHeaderSize  = 16
	basicDirSize     = 32
	basicFileSize    = 32
	symlinkSize      = 24
	basicDeviceSize  = 24
	basicIPCSize     = 20
	extDirSize       = 40
	extFileSize      = 56
	extDeviceSize    = 28
	extIPCSize       = 24
	maxSymlinkTarget = 65535 // ours: the kernel's page-sized targets and a margin
)

// inodeSizes are the fixed parts by type.
var inodeSizes = [...]int{
	typeDir: basicDirSize, typeFile: basicFileSize, typeSymlink: symlinkSize,
	typeBlockDev: basicDeviceSize, typeCharDev: basicDeviceSize, typeFifo: basicIPCSize, typeSocket: basicIPCSize,
	typeDir + extendedType: extDirSize, typeFile + extendedType: extFileSize, typeSymlink + extendedType: symlinkSize,
	typeBlockDev + extendedType: extDeviceSize, typeCharDev + extendedType: extDeviceSize,
	typeFifo + extendedType: extIPCSize, typeSocket + extendedType: extIPCSize,
}

// dirSizeBias is added to a listing's length in a directory inode: readers count "." and ".." and a byte more.
const dirSizeBias = 3

// rawInode is an inode as the inode table holds it, basic or extended. Header:
//
//	0 type u16   2 mode u16   4 uid index u16   6 gid index u16   8 mtime u32   12 number u32
//
// then, by type,
//
//	dir       start u32, nlink u32, size u16, offset u16, parent u32
//	ext dir   nlink u32, size u32, start u32, parent u32, indexes u16, offset u16, xattr u32, indexes…
//	file      start u32, fragment u32, offset u32, size u32, block list…
//	ext file  start u64, size u64, sparse u64, nlink u32, fragment u32, offset u32, xattr u32, block list…
//	symlink   nlink u32, size u32, target…            ext: , xattr u32
//	device    nlink u32, rdev u32                     ext: , xattr u32
//	fifo      nlink u32                               ext: , xattr u32    (and socket)
type rawInode struct {
	typ      uint16
	mode     uint16 // permission bits
	uid, gid uint16 // indices into the id table
	mtime    uint32
	number   uint32
	nlink    uint32

	size uint64 // file and symlink: length; directory: listing + dirSizeBias
	// file: offset of its first block in the image; directory: of its listing's block in the directory table
	start    uint64
	offset   uint32 // file: in its unpacked fragment; directory: in the unpacked metadata block
	fragment uint32 // file: index of its fragment or noFragment
	sparse   uint64 // file: bytes of holes, informative
	parent   uint32 // directory: number of its parent inode
	indexes  uint16 // extended directory: entries of the index behind it
	rdev     uint32 // device: as the kernel's new_encode_dev
	xattr    uint32 // index into the xattr id table or noXattr
	target   []byte // symlink
}

// basic is the type without the extension.
func (n *rawInode) basic() uint16 {
	if n.typ > extendedType {
		return n.typ - extendedType
	}
	return n.typ
}

// blocks is the length of a file's block list: a tail in a fragment has no entry.
func (n *rawInode) blocks(blockSize uint32) uint64 {
	full, tail := n.size/uint64(blockSize), n.size%uint64(blockSize)
	if n.fragment == noFragment && tail != 0 {
		full++
	}
	return full
}

// append encodes the inode up to where a block list or a directory index begins.
func (n *rawInode) append(b []byte) []byte {
	le := binary.LittleEndian
	for _, v := range []uint16{n.typ, n.mode, n.uid, n.gid} {
		b = le.AppendUint16(b, v)
	}
	u32 := func(vs ...uint32) {
		for _, v := range vs {
			b = le.AppendUint32(b, v)
		}
	}
	u32(n.mtime, n.number)
	switch n.typ {
	case typeDir:
		u32(uint32(n.start), n.nlink)
		b = le.AppendUint16(b, uint16(n.size))
		b = le.AppendUint16(b, uint16(n.offset))
		u32(n.parent)
	case typeDir + extendedType:
		u32(n.nlink, uint32(n.size), uint32(n.start), n.parent)
		b = le.AppendUint16(b, n.indexes)
		b = le.AppendUint16(b, uint16(n.offset))
		u32(n.xattr)
	case typeFile:
		u32(uint32(n.start), n.fragment, n.offset, uint32(n.size))
	case typeFile + extendedType:
		for _, v := range []uint64{n.start, n.size, n.sparse} {
			b = le.AppendUint64(b, v)
		}
		u32(n.nlink, n.fragment, n.offset, n.xattr)
	default:
		u32(n.nlink)
		switch n.basic() {
		case typeSymlink:
			u32(uint32(len(n.target)))
			b = append(b, n.target...)
		case typeBlockDev, typeCharDev:
			u32(n.rdev)
		}
		if n.typ > extendedType {
			u32(n.xattr)
		}
	}
	return b
}

// decode reads an inode through next, which returns the following n bytes of the inode table, valid until it is called
// again. Afterwards next returns the block list or directory index.
func (n *rawInode) decode(next func(n int) ([]byte, error)) error {
	le := binary.LittleEndian
	b, err := next(inodeHeaderSize)
	if err != nil {
		return err
	}
	*n = rawInode{
		typ: le.Uint16(b), mode: le.Uint16(b[2:]), uid: le.Uint16(b[4:]), gid: le.Uint16(b[6:]),
		mtime: le.Uint32(b[8:]), number: le.Uint32(b[12:]),
		nlink: 1, fragment: noFragment, xattr: noXattr,
	}
	if n.typ == 0 || int(n.typ) >= len(inodeSizes) {
		return fmt.Errorf("%w: inode type %d", ErrCorrupt, n.typ)
	}
	if b, err = next(inodeSizes[n.typ] - inodeHeaderSize); err != nil {
		return err
	}
	switch n.typ {
	case typeDir:
		n.start, n.nlink = uint64(le.Uint32(b)), le.Uint32(b[4:])
		n.size, n.offset = uint64(le.Uint16(b[8:])), uint32(le.Uint16(b[10:]))
		n.parent = le.Uint32(b[12:])
	case typeDir + extendedType:
		n.nlink, n.size = le.Uint32(b), uint64(le.Uint32(b[4:]))
		n.start, n.parent = uint64(le.Uint32(b[8:])), le.Uint32(b[12:])
		n.indexes, n.offset = le.Uint16(b[16:]), uint32(le.Uint16(b[18:]))
		n.xattr = le.Uint32(b[20:])
	case typeFile:
		n.start, n.fragment = uint64(le.Uint32(b)), le.Uint32(b[4:])
		n.offset, n.size = le.Uint32(b[8:]), uint64(le.Uint32(b[12:]))
	case typeFile + extendedType:
		n.start, n.size, n.sparse = le.Uint64(b), le.Uint64(b[8:]), le.Uint64(b[16:])
		n.nlink, n.fragment = le.Uint32(b[24:]), le.Uint32(b[28:])
		n.offset, n.xattr = le.Uint32(b[32:]), le.Uint32(b[36:])
	default:
		n.nlink = le.Uint32(b)
		return n.decodeSmall(b, next)
	}
	return nil
}

// decodeSmall decodes what is neither file nor directory; b is its fixed part after the header.
func (n *rawInode) decodeSmall(b []byte, next func(n int) ([]byte, error)) error {
	le := binary.LittleEndian
	extended := n.typ > extendedType
	switch n.basic() {
	case typeSymlink:
		n.size = uint64(le.Uint32(b[4:]))
		if n.size > maxSymlinkTarget {
			return fmt.Errorf("%w: symlink target of %d bytes", ErrCorrupt, n.size)
		}
		t, err := next(int(n.size))
		if err != nil {
			return err
		}
		n.target = append([]byte(nil), t...)
		if !extended {
			return nil
		}
		if b, err = next(4); err != nil {
			return err
		}
		n.xattr = le.Uint32(b)
	case typeBlockDev, typeCharDev:
		n.rdev = le.Uint32(b[4:])
		if extended {
			n.xattr = le.Uint32(b[8:])
		}
	default:
		if extended {
			n.xattr = le.Uint32(b[4:])
		}
	}
	return nil
}

// fileType returns the S_IFMT bits of a basic or extended type, 0 for unknown types.
func fileType(typ uint16) uint32 {
	if typ > extendedType {
		typ -= extendedType
	}
	if int(typ) >= len(fileTypes) {
		return 0
	}
	return fileTypes[typ]
}

var fileTypes = [...]uint32{
	typeDir: unix.S_IFDIR, typeFile: unix.S_IFREG, typeSymlink: unix.S_IFLNK, typeBlockDev: unix.S_IFBLK,
	typeCharDev: unix.S_IFCHR, typeFifo: unix.S_IFIFO, typeSocket: unix.S_IFSOCK,
}

// basicType is the inverse of fileType for a st_mode, 0 if squashfs has no such type.
func basicType(mode uint32) uint16 {
	for t, m := range fileTypes {
		if m == mode&unix.S_IFMT && t != 0 {
			return uint16(t)
		}
	}
	return 0
}

// encodeDev packs a st_rdev as the kernel's new_encode_dev: 12 bits of major, 20 of minor.
func encodeDev(rdev uint64) (uint32, bool) {
	major, minor := unix.Major(rdev), unix.Minor(rdev)
	return minor&0xff | major<<8 | minor&^0xff<<12, major < 1<<12 && minor < 1<<20
}

func decodeDev(v uint32) uint64 {
	return unix.Mkdev(v>>8&0xfff, v&0xff|v>>12&^0xff)
}
