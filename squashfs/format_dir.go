package squashfs

import (
	"encoding/binary"
	"fmt"
)

const (
	dirHeaderSize = 12
	dirEntrySize  = 8 // without the name
	dirIndexSize  = 12
	maxDirRun     = 256 // entries behind one header
	maxName       = 256
)

// dirHeader starts a run of entries whose inodes lie in one metadata block of the inode table:
//
//	0 count-1 u32   4 start u32   8 inode number u32
type dirHeader struct {
	count  uint32
	start  uint32 // of the metadata block, relative to the inode table
	number uint32 // entries' inode numbers are differences from it
}

func (h dirHeader) append(b []byte) []byte {
	le := binary.LittleEndian
	b = le.AppendUint32(b, h.count-1)
	b = le.AppendUint32(b, h.start)
	return le.AppendUint32(b, h.number)
}

func (h *dirHeader) decode(b []byte) error {
	le := binary.LittleEndian
	*h = dirHeader{count: le.Uint32(b) + 1, start: le.Uint32(b[4:]), number: le.Uint32(b[8:])}
	if h.count == 0 || h.count > maxDirRun {
		return fmt.Errorf("%w: directory header of %d entries", ErrCorrupt, h.count)
	}
	return nil
}

// dirEntry is one name of a run, dirEntrySize bytes and the name:
//
//	0 offset u16   2 inode number delta i16   4 type u16   6 name length-1 u16   8 name…
type dirEntry struct {
	offset uint16 // of the inode in its unpacked metadata block
	delta  int16  // of the inode number from the header's
	typ    uint16 // basic type
	name   string
}

func (e dirEntry) append(b []byte) []byte {
	le := binary.LittleEndian
	b = le.AppendUint16(b, e.offset)
	b = le.AppendUint16(b, uint16(e.delta))
	b = le.AppendUint16(b, e.typ)
	b = le.AppendUint16(b, uint16(len(e.name)-1))
	return append(b, e.name...)
}

// decode reads the fixed part and returns the length of the name that follows.
func (e *dirEntry) decode(b []byte) (nameLen int, err error) {
	le := binary.LittleEndian
	e.offset, e.delta, e.typ = le.Uint16(b), int16(le.Uint16(b[2:])), le.Uint16(b[4:])
	nameLen = int(le.Uint16(b[6:])) + 1
	if nameLen > maxName {
		return 0, fmt.Errorf("%w: name of %d bytes", ErrCorrupt, nameLen)
	}
	if e.typ == 0 || e.typ > typeSocket {
		return 0, fmt.Errorf("%w: directory entry of type %d", ErrCorrupt, e.typ)
	}
	return nameLen, nil
}

// dirIndex is one entry of the index behind an extended directory inode. It points at the first header
// in a metadata block of the listing, so that a look-up can skip the blocks before:
//
//	0 index u32   4 start u32   8 name length-1 u32   12 name…
type dirIndex struct {
	index uint32 // bytes of the listing before the header
	start uint32 // of the metadata block, relative to the directory table
	name  string // first name behind the header
}

func (x dirIndex) append(b []byte) []byte {
	le := binary.LittleEndian
	b = le.AppendUint32(b, x.index)
	b = le.AppendUint32(b, x.start)
	b = le.AppendUint32(b, uint32(len(x.name)-1))
	return append(b, x.name...)
}

// decode reads the fixed part and returns the length of the name that follows.
func (x *dirIndex) decode(b []byte) (nameLen int, err error) {
	le := binary.LittleEndian
	x.index, x.start = le.Uint32(b), le.Uint32(b[4:])
	n := le.Uint32(b[8:])
	if n >= maxName {
		return 0, fmt.Errorf("%w: directory index name of %d bytes", ErrCorrupt, uint64(n)+1)
	}
	return int(n) + 1, nil
}
