package squashfs

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"sort"
	"sync/atomic"

	"github.com/klauspost/compress/zstd"
)

// errExtVersion is for sections of an unknown version: not corrupt, but of no use.
var errExtVersion = errors.New("extension section of an unknown version")

// extCacheSlots unpacked pages of at most maxExtPage bytes are kept, usually 4 KiB each.
const extCacheSlots = 256

// extension reads an extension section. Opening reads only its header; every page is verified when it is first used. It
// is safe for concurrent use. An error of any method means that the requested data is damaged: callers continue without
// it, and Check reports it.
type extension struct {
	r       io.ReaderAt
	base    int64 // of the section in the image
	length  uint64
	home    uint64 // 0: unknown
	columns [extColumns]extColumnReader
	cache   [extCacheSlots]atomic.Pointer[extPage]
}

type extColumnReader struct {
	extColumn
	table atomic.Pointer[[]extPageRef]
}

// extPageCost is the memory that a page takes, with its entry in the page table.
const extPageCost = 24

// extPageRef is where a page is stored.
type extPageRef struct {
	offset uint64
	length uint32
	crc    uint32
}

// extPage is an unpacked page in the cache; immutable.
type extPage struct {
	column int
	page   uint64
	data   []byte
}

// openExtension finds the section of an image of size bytes. If there is none it returns nil and no error.
func openExtension(r io.ReaderAt, size int64, sb *superblock) (*extension, error) {
	base := int64(sb.bytesUsed+padding-1) / padding * padding
	if sb.bytesUsed > maxFileSize-padding || base > size-extHeaderSize {
		return nil, nil
	}
	head := make([]byte, extHeaderSize, extHeaderSize+extColumns*extColumnSize)
	if _, err := r.ReadAt(head, base); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read extension header: %w", err)
	}
	if allZero(head) {
		return nil, nil
	}
	n, err := extColumnCount(head)
	if err != nil {
		return nil, err
	}
	room := size - base
	if int64(n*extColumnSize) > room-extHeaderSize {
		return nil, fmt.Errorf("%w: extension section of %d columns in %d bytes", ErrCorrupt, n, room)
	}
	rest := make([]byte, n*extColumnSize)
	if _, err := r.ReadAt(rest, base+extHeaderSize); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read extension columns: %w", err)
	}
	var h extHeader
	if err := h.decode(append(head, rest...), uint64(room)); err != nil {
		return nil, err
	}
	if h.bytesUsed != sb.bytesUsed || h.inodes != sb.inodes {
		return nil, fmt.Errorf("%w: extension section of another image (%d bytes, %d inodes)", ErrCorrupt, h.bytesUsed,
			h.inodes)
	}
	x := &extension{r: r, base: base, length: h.length}
	for _, c := range h.columns {
		if int(c.id) < len(x.columns) { // columns of later writers are ignored
			x.columns[c.id].extColumn = c
		}
		if c.id == extHome && c.width == 0 {
			x.home = uint64(c.constant)
		}
	}
	if n := x.columns[extExtraNumber].rows; n != x.columns[extExtraOffset].rows || n > uint64(sb.inodes) {
		return nil, fmt.Errorf("%w: extension section with %d extras at %d places", ErrCorrupt,
			x.columns[extExtraNumber].rows, x.columns[extExtraOffset].rows)
	}
	return x, nil
}

// attr stores in a what the section has about the inode with that number: Ino and times. a already has the clamped
// Mtime. After an error a is unchanged.
func (x *extension) attr(number uint32, a *Attr) error {
	var v [extBtimeNsec + 1]int64
	for c := range v {
		if x.columns[c].rows == 0 { // a column that its writer left out
			return fmt.Errorf("%w: extension section without column %d", ErrCorrupt, c)
		}
		var err error
		if v[c], err = x.value(c, uint64(number)-1); err != nil {
			return err
		}
	}
	for _, c := range []int{extMtimeNsec, extCtimeNsec, extBtimeNsec} {
		if v[c] < 0 || v[c] >= 1e9 {
			return fmt.Errorf("%w: %d nanoseconds in extension column %d of inode %d", ErrCorrupt, v[c], c, number)
		}
	}
	a.Ino = uint64(v[extIno])
	a.Mtime = Time{a.Mtime.Sec + v[extMtimeSec], uint32(v[extMtimeNsec])}
	a.Ctime = Time{v[extCtimeSec], uint32(v[extCtimeNsec])}
	a.Btime = Time{v[extBtimeSec], uint32(v[extBtimeNsec])}
	return nil
}

// extra returns what few inodes have, empty for the others.
func (x *extension) extra(number uint32) (extra, error) {
	var e extra
	numbers := &x.columns[extExtraNumber]
	var failed error
	i, found := sort.Find(int(numbers.rows), func(i int) int {
		v, err := x.value(extExtraNumber, uint64(i))
		if err != nil {
			failed = err
			return 0
		}
		return int(int64(number) - v)
	})
	if failed != nil || !found {
		return e, failed
	}
	b, err := x.extraBytes(uint64(i))
	if err != nil {
		return e, err
	}
	return e, e.decode(b)
}

// extraBytes returns row i's part of the blob.
func (x *extension) extraBytes(i uint64) ([]byte, error) {
	blob := &x.columns[extExtraBlob]
	from, err := x.value(extExtraOffset, i)
	if err != nil {
		return nil, err
	}
	to := int64(blob.rows)
	if i+1 < x.columns[extExtraOffset].rows {
		if to, err = x.value(extExtraOffset, i+1); err != nil {
			return nil, err
		}
	}
	if from < 0 || to < from || to-from > maxExtra || uint64(to) > blob.rows || blob.width != 1 {
		return nil, fmt.Errorf("%w: extension record %d from %d to %d", ErrCorrupt, i, from, to)
	}
	var b []byte
	for at := uint64(from); at < uint64(to); {
		p, err := x.page(extExtraBlob, at/uint64(blob.pageRows))
		if err != nil {
			return nil, err
		}
		p = p[at%uint64(blob.pageRows):]
		p = p[:min(uint64(len(p)), uint64(to)-at)]
		b = append(b, p...)
		at += uint64(len(p))
	}
	return b, nil
}

// value returns one row of a column.
func (x *extension) value(column int, row uint64) (int64, error) {
	c := &x.columns[column]
	if row >= c.rows {
		return 0, fmt.Errorf("%w: row %d of extension column %d with %d", ErrCorrupt, row, column, c.rows)
	}
	if c.width == 0 {
		return c.constant, nil
	}
	p, err := x.page(column, row/uint64(c.pageRows))
	if err != nil {
		return 0, err
	}
	p = p[row%uint64(c.pageRows)*uint64(c.width):][:c.width]
	var v uint64
	for i, b := range p {
		v |= uint64(b) << (8 * i)
	}
	unused := 64 - 8*uint(c.width)
	return int64(v<<unused) >> unused, nil
}

// page returns an unpacked page, of the length that the column promises.
func (x *extension) page(column int, page uint64) ([]byte, error) {
	slot := &x.cache[(page*extColumns+uint64(column))%extCacheSlots]
	if p := slot.Load(); p != nil && p.column == column && p.page == page {
		return p.data, nil
	}
	table, err := x.table(column)
	if err != nil {
		return nil, err
	}
	c, ref := &x.columns[column], table[page]
	stored := make([]byte, ref.length)
	if _, err := x.r.ReadAt(stored, x.base+int64(ref.offset)); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read extension page: %w", err)
	}
	if got := crc32.Checksum(stored, castagnoli); got != ref.crc {
		return nil, fmt.Errorf("%w: extension page at %d: checksum %#x, stored %#x", ErrCorrupt,
			x.base+int64(ref.offset), got, ref.crc)
	}
	data := stored
	if c.codec == extZstd {
		data, err = extDecoder.DecodeAll(stored, make([]byte, 0, c.pageBytes(page)))
	}
	if err != nil || len(data) != c.pageBytes(page) {
		return nil, fmt.Errorf("%w: extension page at %d: %d bytes, want %d", ErrCorrupt, x.base+int64(ref.offset),
			len(data), c.pageBytes(page))
	}
	slot.Store(&extPage{column: column, page: page, data: data})
	return data, nil
}

// extDecoder is safe for concurrent DecodeAll and refuses to unpack more than a page.
var extDecoder = func() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(maxExtPage))
	if err != nil {
		panic(err) // the options are constants
	}
	return d
}()

// table loads a column's page table.
func (x *extension) table(column int) ([]extPageRef, error) {
	c := &x.columns[column]
	if t := c.table.Load(); t != nil {
		return *t, nil
	}
	n := c.pages()
	b := make([]byte, n*extPageRefSize)
	if _, err := x.r.ReadAt(b, x.base+int64(c.offset)); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read extension page table: %w", err)
	}
	if got := crc32.Checksum(b, castagnoli); got != c.tableCRC {
		return nil, fmt.Errorf("%w: extension page table at %d: checksum %#x, stored %#x", ErrCorrupt,
			x.base+int64(c.offset), got, c.tableCRC)
	}
	table := make([]extPageRef, n)
	at := c.offset + uint64(len(b))
	for i := range table {
		ref := extPageRef{
			offset: at, length: binary.LittleEndian.Uint32(b[i*extPageRefSize:]),
			crc: binary.LittleEndian.Uint32(b[i*extPageRefSize+4:]),
		}
		if ref.length > maxExtPage || uint64(ref.length) > x.length-at {
			return nil, fmt.Errorf("%w: extension page %d of column %d has %d bytes", ErrCorrupt, i, column, ref.length)
		}
		table[i] = ref
		at += uint64(ref.length)
	}
	c.table.Store(&table)
	return table, nil
}

// verify reads the whole section and reports what is wrong in it.
func (x *extension) verify(ctx context.Context, report func(Violation)) error {
	bad := func(err error) error {
		if !errors.Is(err, ErrCorrupt) {
			return err
		}
		report(Violation{Off: x.base, Rule: err.Error()})
		return nil
	}
	for column := range x.columns {
		for page := range x.columns[column].pages() {
			if err := ctx.Err(); err != nil {
				return err
			}
			if _, err := x.page(column, page); err != nil {
				if err := bad(err); err != nil {
					return err
				}
			}
		}
	}
	last := int64(0)
	for i := range x.columns[extExtraNumber].rows {
		number, err := x.value(extExtraNumber, i)
		if err == nil && number <= last {
			err = fmt.Errorf("%w: extension record of inode %d after that of %d", ErrCorrupt, number, last)
		}
		if err == nil {
			last = number
			var b []byte
			if b, err = x.extraBytes(i); err == nil {
				err = new(extra).decode(b)
			}
		}
		if err != nil {
			if err := bad(err); err != nil {
				return err
			}
		}
	}
	return nil
}

func allZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
