package squashfs

import (
	"encoding/binary"
	"hash/crc32"
	"io"
	"math/bits"

	"github.com/klauspost/compress/zstd"
)

// valueRange is the range of a column's values. It determines the column's width.
type valueRange struct {
	low, high int64
	any       bool
}

func (r *valueRange) add(v int64) {
	if !r.any {
		r.low, r.high, r.any = v, v, true
	}
	r.low, r.high = min(r.low, v), max(r.high, v)
}

// width is how many bytes of two's complement hold every value, 0 if all are the same.
func (r *valueRange) width() uint8 {
	if r.low == r.high {
		return 0
	}
	n := max(bits.Len64(uint64(r.low^r.low>>63)), bits.Len64(uint64(r.high^r.high>>63))) + 1
	return uint8((n + 7) / 8)
}

// extValues are the rows of an inode in the columns before extExtraNumber.
func extValues(a *Attr) [extExtraNumber]int64 {
	return [extExtraNumber]int64{
		extIno:       int64(a.Ino),
		extMtimeSec:  a.Mtime.Sec - int64(clampTime(a.Mtime)),
		extMtimeNsec: int64(a.Mtime.Nsec),
		extCtimeSec:  a.Ctime.Sec,
		extCtimeNsec: int64(a.Ctime.Nsec),
		extBtimeSec:  a.Btime.Sec,
		extBtimeNsec: int64(a.Btime.Nsec),
	}
}

// extWriter builds an extension section in spools, inode by inode. For one goroutine.
type extWriter struct {
	inodes  uint32
	home    uint64
	own     bool // an inode has another number than an import would give it
	columns [extColumns]*extColumnWriter
	blobbed int64
}

// newExtWriter knows from the first pass how wide the columns must be. With compressed, pages are compressed.
func newExtWriter(w *writer, compressed bool) *extWriter {
	x := &extWriter{inodes: w.inodes, home: w.home}
	ranges := [extColumns]valueRange{
		extExtraNumber: {high: int64(w.inodes)},
		extExtraOffset: {high: int64(w.extraBytes)},
	}
	copy(ranges[:], w.ranges[:])
	for c := range x.columns {
		col := extColumn{
			id: uint16(c), rows: uint64(w.inodes), width: ranges[c].width(), constant: ranges[c].low,
			pageRows: extPageRows,
		}
		switch {
		case c == extExtraBlob:
			col.rows, col.width, col.pageRows = w.extraBytes, 1, extBlobPage
		case c >= extExtraNumber:
			col.rows = w.extras
		}
		x.columns[c] = &extColumnWriter{extColumn: col, out: w.spools.spool()}
		if compressed {
			x.columns[c].codec = extZstd
			x.columns[c].pageRows = extZstdRows
		}
	}
	return x
}

func (x *extWriter) add(number uint32, r *spooledInode) error {
	if imported := uint64(number) + 1; r.attr.Ino != imported && (r.attr.Ino != 1 || number != x.inodes) {
		x.own = true
	}
	for c, v := range extValues(&r.attr) {
		if err := x.columns[c].add(v); err != nil {
			return err
		}
	}
	if len(r.extra) == 0 {
		return nil
	}
	if err := x.columns[extExtraNumber].add(int64(number)); err != nil {
		return err
	}
	if err := x.columns[extExtraOffset].add(x.blobbed); err != nil {
		return err
	}
	x.blobbed += int64(len(r.extra))
	for _, b := range r.extra {
		if err := x.columns[extExtraBlob].add(int64(b)); err != nil {
			return err
		}
	}
	return nil
}

// finish ends the columns and returns the header and the total length. Numbers that any home gives to what it imports are
// no home's: the same tree is the same image in all of them.
func (x *extWriter) finish(bytesUsed uint64) (head []byte, length uint64, err error) {
	h := extHeader{bytesUsed: bytesUsed, inodes: x.inodes}
	length = extHeaderSize + uint64(len(x.columns))*extColumnSize
	if x.home != 0 && x.own {
		length += extColumnSize
	}
	for _, c := range x.columns {
		if err := c.flush(); err != nil {
			return nil, 0, err
		}
		if c.width > 0 {
			c.offset, c.tableCRC = length, crc32.Checksum(c.table, castagnoli)
		}
		length += c.size()
		h.columns = append(h.columns, c.extColumn)
	}
	if x.home != 0 && x.own {
		h.columns = append(h.columns, extColumn{id: extHome, rows: 1, constant: int64(x.home)})
	}
	h.length = length
	return h.encode(), length, nil
}

// extColumnWriter builds the pages of one column.
type extColumnWriter struct {
	extColumn
	out   *spool
	page  []byte // being filled
	full  int    // rows in it
	table []byte
}

func (c *extColumnWriter) size() uint64 { return uint64(len(c.table)) + uint64(c.out.size) }

func (c *extColumnWriter) add(v int64) error {
	if c.width == 0 {
		return nil
	}
	for i := range c.width {
		c.page = append(c.page, byte(v>>(8*i)))
	}
	if c.full++; c.full == int(c.pageRows) {
		return c.flush()
	}
	return nil
}

// flush ends the page.
func (c *extColumnWriter) flush() error {
	if c.full == 0 {
		return nil
	}
	stored := c.page
	if c.codec == extZstd {
		stored = extEncoder.EncodeAll(c.page, nil)
	}
	c.table = binary.LittleEndian.AppendUint32(c.table, uint32(len(stored)))
	c.table = binary.LittleEndian.AppendUint32(c.table, crc32.Checksum(stored, castagnoli))
	c.page, c.full = c.page[:0], 0
	_, err := c.out.Write(stored)
	return err
}

// writeTo writes the page table and the pages.
func (c *extColumnWriter) writeTo(w io.Writer) error {
	if _, err := w.Write(c.table); err != nil {
		return err
	}
	_, err := c.out.WriteTo(w)
	return err
}

// extEncoder is safe for concurrent EncodeAll.
var extEncoder = func() *zstd.Encoder {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false),
		zstd.WithWindowSize(maxExtPage))
	if err != nil {
		panic(err) // the options are constants
	}
	return e
}()
