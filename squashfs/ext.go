package squashfs

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// The extension section keeps what squashfs cannot hold. It begins at the first multiple of padding at or after
// bytes_used, where other readers do not look; docs/FORMAT.md draws it. All offsets in it count from its start.

const (
	extMagic       = "SNAPFSX\n"
	extVersion     = 1
	extHeaderSize  = 40
	extColumnSize  = 40
	extPageRefSize = 8
	maxExtColumns  = 64
	maxExtPage     = 1 << 16 // bytes of an unpacked page
	extPageRows    = 1024    // of the store form: 4 KiB for a column of four bytes
	extZstdRows    = 4096    // of the ship form, where whole pages are compressed
	extBlobPage    = 4096
	maxExtents     = 1 << 20  // of one file: they take 16 bytes of memory each, and 2 to 18 in the section
	maxExtra       = 64 << 20 // bytes of one inode's extra: pages may unpack to far more than the section's size
	maxFileSize    = 1<<63 - 1
)

// Columns. Those before extExtraNumber have a row for each inode, by inode number.
const (
	extIno         = iota // our inode number
	extMtimeSec           // what to add to the inode's mtime, which is clamped to u32
	extMtimeNsec          //
	extCtimeSec           //
	extCtimeNsec          //
	extBtimeSec           // seconds and nanoseconds 0: unknown
	extBtimeNsec          //
	extExtraNumber        // sorted inode numbers of those that have an extra
	extExtraOffset        // where in extExtraBlob it begins; it ends where the next does
	extExtraBlob          // a row is a byte; see appendExtra
	extColumns
)

// extHome is a column of one constant row: the home that assigned the inode numbers.
const extHome = 10

// extColumnNames name the columns for Cut.Table.
var extColumnNames = [extColumns]string{
	"extension ino", "extension mtime sec", "extension mtime nsec", "extension ctime sec", "extension ctime nsec",
	"extension btime sec", "extension btime nsec", "extension extra number", "extension extra offset",
	"extension extra",
}

// Codecs of a column's pages.
const (
	extPlain = 0
	extZstd  = 1
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// extHeader begins the section:
//
//	 0 magic [8]byte   8 version u32   12 columns u32   16 length u64   24 bytesUsed u64
//	32 inodes u32     36 CRC-32C u32 of header and column descriptors with this field 0
//
// and is followed by the column descriptors.
type extHeader struct {
	length    uint64 // of the section without the padding behind it
	bytesUsed uint64 // the superblock's, so that a section left behind by another image is not believed
	inodes    uint32
	columns   []extColumn
}

// extColumn describes one array of integers:
//
//	 0 id u16   2 width u8   3 codec u8   4 pageRows u32   8 rows u64   16 constant u64
//	24 offset u64   32 CRC-32C of the page table u32   36 zero u32
//
// A value is width bytes, two's complement. With width 0 every row is the constant and nothing else is stored; else
// there is at offset a page table of {stored length u32, CRC-32C of the stored bytes u32} and behind it the pages.
type extColumn struct {
	id       uint16
	width    uint8
	codec    uint8
	pageRows uint32
	rows     uint64
	constant int64
	offset   uint64
	tableCRC uint32
}

func (c *extColumn) pages() uint64 {
	if c.width == 0 {
		return 0
	}
	return (c.rows + uint64(c.pageRows) - 1) / uint64(c.pageRows)
}

// pageBytes is the unpacked size of a page.
func (c *extColumn) pageBytes(page uint64) int {
	rows := min(uint64(c.pageRows), c.rows-page*uint64(c.pageRows))
	return int(rows) * int(c.width)
}

func (h *extHeader) encode() []byte {
	le := binary.LittleEndian
	b := make([]byte, 0, extHeaderSize+len(h.columns)*extColumnSize)
	b = append(b, extMagic...)
	b = le.AppendUint32(b, extVersion)
	b = le.AppendUint32(b, uint32(len(h.columns)))
	b = le.AppendUint64(b, h.length)
	b = le.AppendUint64(b, h.bytesUsed)
	b = le.AppendUint32(b, h.inodes)
	b = le.AppendUint32(b, 0)
	for i := range h.columns {
		c := &h.columns[i]
		b = le.AppendUint16(b, c.id)
		b = append(b, c.width, c.codec)
		b = le.AppendUint32(b, c.pageRows)
		b = le.AppendUint64(b, c.rows)
		b = le.AppendUint64(b, uint64(c.constant))
		b = le.AppendUint64(b, c.offset)
		b = le.AppendUint32(b, c.tableCRC)
		b = le.AppendUint32(b, 0)
	}
	le.PutUint32(b[36:], crc32.Checksum(b, castagnoli))
	return b
}

// extColumnCount checks magic and version of a header's fixed part and returns how many descriptors follow.
func extColumnCount(b []byte) (int, error) {
	le := binary.LittleEndian
	if string(b[:len(extMagic)]) != extMagic {
		return 0, fmt.Errorf("%w: extension section without its magic", ErrCorrupt)
	}
	if v := le.Uint32(b[8:]); v != extVersion {
		return 0, fmt.Errorf("%w: %d, this reads %d", errExtVersion, v, extVersion)
	}
	n := le.Uint32(b[12:])
	if n > maxExtColumns {
		return 0, fmt.Errorf("%w: extension section of %d columns", ErrCorrupt, n)
	}
	return int(n), nil
}

// decode reads header and descriptors, which are all of b, of a section with room bytes in its file.
func (h *extHeader) decode(b []byte, room uint64) error {
	le := binary.LittleEndian
	n, err := extColumnCount(b)
	if err != nil {
		return err
	}
	if len(b) != extHeaderSize+n*extColumnSize {
		return fmt.Errorf("%w: extension header of %d bytes", ErrCorrupt, len(b))
	}
	want := le.Uint32(b[36:])
	zeroed := append([]byte(nil), b...)
	le.PutUint32(zeroed[36:], 0)
	if got := crc32.Checksum(zeroed, castagnoli); got != want {
		return fmt.Errorf("%w: extension header checksum %#x, stored %#x", ErrCorrupt, got, want)
	}
	*h = extHeader{length: le.Uint64(b[16:]), bytesUsed: le.Uint64(b[24:]), inodes: le.Uint32(b[32:])}
	if h.length > room {
		return fmt.Errorf("%w: extension section of %d bytes where %d are left", ErrCorrupt, h.length, room)
	}
	for i := range n {
		p := b[extHeaderSize+i*extColumnSize:]
		c := extColumn{
			id: le.Uint16(p), width: p[2], codec: p[3], pageRows: le.Uint32(p[4:]), rows: le.Uint64(p[8:]),
			constant: int64(le.Uint64(p[16:])), offset: le.Uint64(p[24:]), tableCRC: le.Uint32(p[32:]),
		}
		if err := c.check(h); err != nil {
			return err
		}
		h.columns = append(h.columns, c)
	}
	return nil
}

// check bounds how much memory a descriptor makes a reader allocate.
func (c *extColumn) check(h *extHeader) error {
	bad := c.width > 8 || c.codec > extZstd
	if c.id < extExtraNumber {
		bad = bad || c.rows != uint64(h.inodes)
	}
	if c.width > 0 && !bad {
		bad = c.pageRows == 0 || uint64(c.pageRows)*uint64(c.width) > maxExtPage ||
			c.rows > 1<<48 || c.offset > h.length || c.pages()*extPageRefSize > h.length-c.offset
	}
	if bad {
		return fmt.Errorf("%w: extension column %d of %d rows, width %d, at %d", ErrCorrupt, c.id, c.rows, c.width,
			c.offset)
	}
	return nil
}

// extra is what only few inodes have.
type extra struct {
	// extents is where the file has data, if hasExtents; else the block list tells.
	extents    []Extent
	hasExtents bool
	xattrs     []Xattr // in namespaces squashfs lacks
}

const (
	extraExtents = 1 << 0
	extraXattrs  = 1 << 1
)

// appendExtra encodes as uvarints: flags; extents: count, then hole before and length of each; xattrs: count, then
// length and bytes of each name and value.
func appendExtra(b []byte, e *extra) []byte {
	var flags uint64
	if e.hasExtents {
		flags |= extraExtents
	}
	if len(e.xattrs) > 0 {
		flags |= extraXattrs
	}
	b = binary.AppendUvarint(b, flags)
	if e.hasExtents {
		b = binary.AppendUvarint(b, uint64(len(e.extents)))
		end := int64(0)
		for _, x := range e.extents {
			b = binary.AppendUvarint(b, uint64(x.Off-end))
			b = binary.AppendUvarint(b, uint64(x.Len))
			end = x.Off + x.Len
		}
	}
	if len(e.xattrs) > 0 {
		b = binary.AppendUvarint(b, uint64(len(e.xattrs)))
		for _, x := range e.xattrs {
			b = binary.AppendUvarint(b, uint64(len(x.Name)))
			b = append(b, x.Name...)
			b = binary.AppendUvarint(b, uint64(len(x.Value)))
			b = append(b, x.Value...)
		}
	}
	return b
}

// decode reads all of b.
func (e *extra) decode(b []byte) error {
	d := varintReader{b: b}
	*e = extra{}
	flags := d.uvarint()
	if flags&extraExtents != 0 {
		e.hasExtents = true
		n, end := d.count(2), int64(0)
		if n > maxExtents {
			return fmt.Errorf("%w: a file with %d extents", ErrCorrupt, n)
		}
		e.extents = make([]Extent, 0, n)
		for range n {
			hole, length := d.uvarint(), d.uvarint()
			if hole > maxFileSize-uint64(end) || length > maxFileSize-uint64(end)-hole {
				return fmt.Errorf("%w: extent of %d bytes after a hole of %d at %d", ErrCorrupt, length, hole, end)
			}
			x := Extent{Off: end + int64(hole), Len: int64(length)}
			end = x.Off + x.Len
			e.extents = append(e.extents, x)
		}
	}
	if flags&extraXattrs != 0 {
		for range d.count(2) {
			name := string(d.bytes())
			e.xattrs = append(e.xattrs, Xattr{Name: name, Value: append([]byte(nil), d.bytes()...)})
		}
	}
	if d.bad || len(d.b) != 0 || flags&^(extraExtents|extraXattrs) != 0 {
		return fmt.Errorf("%w: extension record of an inode", ErrCorrupt)
	}
	return nil
}

// varintReader parses varints. After an overrun all values are zero and bad is set.
type varintReader struct {
	b   []byte
	bad bool
}

func (d *varintReader) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.b, d.bad = nil, true
		return 0
	}
	d.b = d.b[n:]
	return v
}

// count reads a number of items of at least size bytes each, so that a wrong number allocates nothing.
func (d *varintReader) count(size int) int {
	v := d.uvarint()
	if v > uint64(len(d.b)/size) {
		d.b, d.bad = nil, true
		return 0
	}
	return int(v)
}

// bytes reads a length and returns that many bytes without copying.
func (d *varintReader) bytes() []byte {
	n := d.count(1)
	p := d.b[:n]
	d.b = d.b[n:]
	return p
}
