package squashfs

import (
	"encoding/binary"
)

// maxXattrBytes bounds names and values of one inode: attributes are shared and packed, so a small image could
// ask for much memory. Linux allows far less: 64 KiB of names.
const maxXattrBytes = 32 << 20

// xattrPlaces says where the attributes of an image are.
type xattrPlaces struct {
	ids   table
	pairs region
}

// xattrTables reads the structure that the superblock points at.
func (im *Image) xattrTables() (*xattrPlaces, error) {
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
	return &xattrPlaces{
		ids:   table{name: "xattr id table", at: at + xattrTableSize, count: uint64(t.ids), size: xattrIDSize},
		pairs: region{"xattr pairs", int64(t.start), at},
	}, nil
}

// xattrSet lists the attributes of one entry of the xattr id table.
func (im *Image) xattrSet(index uint32) ([]Xattr, error) {
	places, err := im.xattrs.get(im.xattrTables)
	if err != nil {
		return nil, err
	}
	b, err := im.entry(&places.ids, uint64(index))
	if err != nil {
		return nil, err
	}
	var id xattrID
	id.decode(b)
	c, err := im.xattrCursor(places.pairs, id.ref)
	if err != nil {
		return nil, err
	}
	var list []Xattr
	budget := maxXattrBytes
	for range id.count {
		at := c.at
		x, err := c.pair()
		if err != nil {
			return nil, locate(at, err)
		}
		if budget -= len(x.Name) + len(x.Value) + entryOverhead; budget < 0 {
			return nil, corrupt(at, "xattrs of more than %d bytes", maxXattrBytes)
		}
		list = append(list, x)
	}
	return list, nil
}

func (im *Image) xattrCursor(in region, ref Ref) (cursor, error) {
	if ref.block() > uint64(in.end-in.start) {
		return cursor{}, corrupt(in.start, "xattr reference %#x outside the %s", uint64(ref), in.name)
	}
	return im.cursor(in, position{in.start + int64(ref.block()), ref.offset()})
}

// pair reads one attribute.
func (c *cursor) pair() (Xattr, error) {
	b, err := c.take(xattrKeySize)
	if err != nil {
		return Xattr{}, err
	}
	typ, size := binary.LittleEndian.Uint16(b), int(binary.LittleEndian.Uint16(b[2:]))
	if size == 0 || size > maxXattrName {
		return Xattr{}, corrupt(c.at, "xattr name of %d bytes", size)
	}
	rest, err := c.take(size)
	if err != nil {
		return Xattr{}, err
	}
	name, err := xattrName(typ, string(rest))
	if err != nil {
		return Xattr{}, err
	}
	value, err := c.xattrValue()
	if err == nil && typ&xattrOutOfLine != 0 {
		if len(value) != 8 {
			return Xattr{}, corrupt(c.at, "out of line xattr with a reference of %d bytes", len(value))
		}
		far, ferr := c.im.xattrCursor(c.in, Ref(binary.LittleEndian.Uint64(value)))
		if ferr != nil {
			return Xattr{}, ferr
		}
		value, err = far.xattrValue()
	}
	if err != nil {
		return Xattr{}, err
	}
	return Xattr{Name: name, Value: append([]byte{}, value...)}, nil
}

// xattrValue reads a length and as many bytes.
func (c *cursor) xattrValue() ([]byte, error) {
	b, err := c.take(xattrValueSize)
	if err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint32(b)
	if n > maxXattrValue {
		return nil, corrupt(c.at, "xattr value of %d bytes", n)
	}
	return c.take(int(n))
}
