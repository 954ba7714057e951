package squashfs

import (
	"encoding/binary"
	"slices"
	"sync/atomic"
)

// maxXattrBytes bounds names and values of one inode: attributes are shared and compressed, so a small image could ask
// for much memory. Linux allows far less: 64 KiB of names.
const maxXattrBytes = 32 << 20

// xattrIndex says where the attributes of an image are.
type xattrIndex struct {
	ids   table
	pairs region
}

// xattrTables reads the structure that the superblock points at.
func (im *Image) xattrTables() (*xattrIndex, error) {
	at := int64(im.sb.xattrTable)
	if im.sb.xattrTable == noTable {
		return nil, corrupt(sbXattrTable, "xattrs without a table")
	}
	var b [xattrTableSize]byte
	if err := readFull(im.r, b[:], at); err != nil {
		return nil, err
	}
	var t xattrTable
	t.decode(b[:])
	room := (im.sb.bytesUsed - im.sb.xattrTable - xattrTableSize) / 8
	if tableBlocks(uint64(t.ids), xattrIDSize) > room || t.start < superblockSize || t.start > im.sb.xattrTable {
		return nil, corrupt(at, "xattr table of %d ids with pairs at %d", t.ids, t.start)
	}
	return &xattrIndex{
		ids:   table{name: "xattr id table", at: at + xattrTableSize, count: uint64(t.ids), size: xattrIDSize},
		pairs: region{"xattr pairs", int64(t.start), at},
	}, nil
}

// knownSets are recently read sets of attributes, each in the slot of its index.
type knownSets [16]atomic.Pointer[knownSet]

type knownSet struct {
	index uint32
	list  []Xattr
}

// maxKnownSet is the largest set, in bytes, that is kept.
const maxKnownSet = 128 << 10

// xattrSet lists the attributes of one entry of the xattr id table. Attributes for which want returns false may come
// without their value; if want is nil all have their values. Callers must not change the list.
func (im *Image) xattrSet(index uint32, want func(name string) bool) ([]Xattr, error) {
	slot := &im.sets[index%uint32(len(im.sets))]
	if s := slot.Load(); s != nil && s.index == index {
		return s.list, nil
	}
	where, err := im.xattrs.get(im.xattrTables)
	if err != nil {
		return nil, err
	}
	b, err := im.entry(&where.ids, uint64(index))
	if err != nil {
		return nil, err
	}
	var id xattrID
	id.decode(b)
	c, err := im.xattrCursor(where.pairs, id.ref)
	if err != nil {
		return nil, err
	}
	var list []Xattr
	size := 0
	for range id.count {
		at := c.at
		x, n, err := c.pair(want)
		if err != nil {
			return nil, locate(at, err)
		}
		if size += len(x.Name) + n + entryOverhead; size > maxXattrBytes {
			return nil, corrupt(at, "xattrs of more than %d bytes", maxXattrBytes)
		}
		list = append(list, x)
	}
	list = list[:len(list):len(list)]
	if want == nil && size <= maxKnownSet {
		slot.Store(&knownSet{index, list})
	}
	return list, nil
}

// XattrsOnly reports whether every attribute in the image has a name that allowed takes. It says no of what cannot be
// read, and of an image with more than most different sets of attributes, of which it reads none.
func (im *Image) XattrsOnly(most uint32, allowed func(name string) bool) bool {
	if im.sb.xattrTable == noTable {
		return true
	}
	where, err := im.xattrs.get(im.xattrTables)
	if err != nil || where.ids.count > uint64(most) {
		return false
	}
	for i := range uint32(where.ids.count) {
		list, err := im.xattrSet(i, func(string) bool { return false })
		if err != nil || slices.ContainsFunc(list, func(x Xattr) bool { return !allowed(x.Name) }) {
			return false
		}
	}
	return true
}

func (im *Image) xattrCursor(in region, ref Ref) (cursor, error) {
	if ref.block() > uint64(in.end-in.start) {
		return cursor{}, corrupt(in.start, "xattr reference %#x outside the %s", uint64(ref), in.name)
	}
	return im.cursor(in, position{in.start + int64(ref.block()), ref.offset()})
}

// pair reads one attribute and returns the length of its value. If the value is not wanted it is skipped.
func (c *cursor) pair(want func(name string) bool) (x Xattr, size int, err error) {
	b, err := c.take(xattrKeySize)
	if err != nil {
		return x, 0, err
	}
	typ, length := binary.LittleEndian.Uint16(b), int(binary.LittleEndian.Uint16(b[2:]))
	if length == 0 || length > maxXattrName {
		return x, 0, corrupt(c.at, "xattr name of %d bytes", length)
	}
	rest, err := c.take(length)
	if err != nil {
		return x, 0, err
	}
	if x.Name, err = xattrName(typ, string(rest)); err != nil {
		return x, 0, err
	}
	if want != nil && !want(x.Name) {
		size, err = c.xattrLength()
		if err == nil {
			err = c.skip(int64(size))
		}
		return x, size, err
	}
	value, err := c.xattrValue()
	if err == nil && typ&xattrOutOfLine != 0 {
		if len(value) != 8 {
			return x, 0, corrupt(c.at, "out of line xattr with a reference of %d bytes", len(value))
		}
		far, ferr := c.im.xattrCursor(c.in, Ref(binary.LittleEndian.Uint64(value)))
		if ferr != nil {
			return x, 0, ferr
		}
		value, err = far.xattrValue()
	}
	if err != nil {
		return x, 0, err
	}
	x.Value = append([]byte{}, value...)
	return x, len(value), nil
}

// xattrLength reads the length of a value.
func (c *cursor) xattrLength() (int, error) {
	b, err := c.take(xattrValueSize)
	if err != nil {
		return 0, err
	}
	n := binary.LittleEndian.Uint32(b)
	if n > maxXattrValue {
		return 0, corrupt(c.at, "xattr value of %d bytes", n)
	}
	return int(n), nil
}

// xattrValue reads a length and as many bytes.
func (c *cursor) xattrValue() ([]byte, error) {
	n, err := c.xattrLength()
	if err != nil {
		return nil, err
	}
	return c.take(n)
}
