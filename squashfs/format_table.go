package squashfs

import (
	"encoding/binary"
	"fmt"
	"strings"
)

// Fragment, id, export and xattr id tables are stored alike: entries in metadata blocks, then an array with the u64
// offset of each of those blocks. The superblock has the offset of the array (for xattr ids: of the xattrTable
// structure before it).

const (
	idEntrySize     = 4 // u32 uid or gid
	exportEntrySize = 8 // u64 Ref of the inode with number index+1
	maxIDs          = 65535
)

// fragmentEntrySize is the size of
//
//	0 start u64   8 data header u32   12 unused u32
const fragmentEntrySize = 16

// fragmentEntry is the location of one block of file tails.
type fragmentEntry struct {
	start uint64
	size  uint32 // see dataHeader
}

func (f fragmentEntry) append(b []byte) []byte {
	le := binary.LittleEndian
	b = le.AppendUint64(b, f.start)
	b = le.AppendUint32(b, f.size)
	return le.AppendUint32(b, 0)
}

func (f *fragmentEntry) decode(b []byte) {
	f.start, f.size = binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint32(b[8:])
}

// xattrTableSize is the size of
//
//	0 place of the first metadata block of key-value pairs u64   8 ids u32   12 unused u32
//
// which is followed by the places of the xattr id table's metadata blocks.
const xattrTableSize = 16

type xattrTable struct {
	start uint64
	ids   uint32
}

func (t xattrTable) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, t.start)
	b = binary.LittleEndian.AppendUint32(b, t.ids)
	return binary.LittleEndian.AppendUint32(b, 0)
}

func (t *xattrTable) decode(b []byte) {
	t.start, t.ids = binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint32(b[8:])
}

// xattrIDSize is the size of
//
//	0 Ref of the first pair, relative to the pairs' first block u64   8 pairs u32   12 bytes u32
const xattrIDSize = 16

// xattrID is one set of attributes, shared by all inodes that have the same.
type xattrID struct {
	ref   Ref
	count uint32
	size  uint32 // of all full names with their NULs and values, as listxattr and getxattr would need; informative
}

func (x xattrID) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(x.ref))
	b = binary.LittleEndian.AppendUint32(b, x.count)
	return binary.LittleEndian.AppendUint32(b, x.size)
}

func (x *xattrID) decode(b []byte) {
	le := binary.LittleEndian
	x.ref, x.count, x.size = Ref(le.Uint64(b)), le.Uint32(b[8:]), le.Uint32(b[12:])
}

// A pair is a key (type u16, name length u16, name without prefix) and a value (length u32, bytes).
// xattrOutOfLine in the type: the value is the u64 Ref of where length and bytes really are.
const (
	xattrKeySize   = 4
	xattrValueSize = 4
	xattrOutOfLine = 1 << 8
	maxXattrValue  = 65536 // XATTR_SIZE_MAX
	maxXattrName   = 255   // XATTR_NAME_MAX, prefix included
)

// xattrPrefixes are indexed by a key's type.
var xattrPrefixes = [...]string{"user.", "trusted.", "security."}

// splitXattr returns the type of an attribute and its name without prefix; ok is false in a namespace that squashfs
// lacks.
func splitXattr(name string) (typ uint16, rest string, ok bool) {
	for t, p := range xattrPrefixes {
		if rest, ok := strings.CutPrefix(name, p); ok {
			return uint16(t), rest, true
		}
	}
	return 0, "", false
}

// xattrName is the inverse of splitXattr; an out-of-line mark is ignored.
func xattrName(typ uint16, rest string) (string, error) {
	if t := typ &^ xattrOutOfLine; int(t) < len(xattrPrefixes) {
		return xattrPrefixes[t] + rest, nil
	}
	return "", fmt.Errorf("%w: xattr of type %d", ErrCorrupt, typ)
}

func appendXattrKey(b []byte, typ uint16, rest string) []byte {
	b = binary.LittleEndian.AppendUint16(b, typ)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(rest)))
	return append(b, rest...)
}

func appendXattrValue(b, value []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(len(value)))
	return append(b, value...)
}
