package squashfs

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
)

// A tree is written in two passes. The first walks the source in post-order, writes file contents, numbers the inodes
// and spools each. The second turns the spooled inodes into tables, now that link counts, the parents of directories
// and the widths of the extension section's columns are known.

// spooledInode is one inode between the passes.
type spooledInode struct {
	attr     Attr
	uid, gid uint16 // id table indices
	xattr    uint32 // xattr id table index or noXattr
	target   string
	layout   *layout // of a regular file
	extra    []byte  // see appendExtra, empty if there is none
	children []child // of a directory, in order
	subdirs  uint32
}

// child is one name of a directory.
type child struct {
	name   string
	number uint32
	typ    uint16 // basic
}

// layout says where a file's bytes are.
type layout struct {
	start    uint64
	fragment uint32
	offset   uint32
	sparse   uint64
	runs     []blockRun
}

// blockRun is a sequence of equal entries of a block list.
type blockRun struct {
	count uint64
	block uint32
}

// add appends count equal entries.
func (l *layout) add(count uint64, block uint32) {
	if n := len(l.runs); n > 0 && l.runs[n-1].block == block {
		l.runs[n-1].count += count
	} else if count > 0 {
		l.runs = append(l.runs, blockRun{count, block})
	}
}

// extents is where a reader that only has the block list sees data.
func (l *layout) extents(size int64, blockSize int) []Extent {
	var out []Extent
	at := int64(0)
	add := func(n int64) {
		if k := len(out); k > 0 && out[k-1].Off+out[k-1].Len == at {
			out[k-1].Len += n
		} else if n > 0 {
			out = append(out, Extent{at, n})
		}
	}
	for _, r := range l.runs {
		n := min(int64(r.count)*int64(blockSize), size-at)
		if r.block != 0 {
			add(n)
		}
		at += n
	}
	if at < size { // the tail in a fragment
		add(size - at)
	}
	return out
}

// append encodes the inode as varints, in the order in which decode reads them.
func (r *spooledInode) append(b []byte) []byte {
	for _, v := range []uint64{
		uint64(r.attr.Mode), uint64(r.uid), uint64(r.gid), uint64(r.xattr + 1), r.attr.Rdev, uint64(r.attr.Size),
		r.attr.Ino,
	} {
		b = binary.AppendUvarint(b, v)
	}
	for _, t := range []Time{r.attr.Mtime, r.attr.Ctime, r.attr.Btime} {
		b = binary.AppendVarint(b, t.Sec)
		b = binary.AppendUvarint(b, uint64(t.Nsec))
	}
	b = appendString(b, r.target)
	b = appendString(b, string(r.extra))
	if r.layout != nil {
		l := r.layout
		for _, v := range []uint64{l.start, uint64(l.fragment + 1), uint64(l.offset), l.sparse, uint64(len(l.runs))} {
			b = binary.AppendUvarint(b, v)
		}
		for _, run := range l.runs {
			b = binary.AppendUvarint(b, run.count)
			b = binary.AppendUvarint(b, uint64(run.block))
		}
	}
	b = binary.AppendUvarint(b, uint64(r.subdirs))
	b = binary.AppendUvarint(b, uint64(len(r.children)))
	for _, c := range r.children {
		b = appendString(b, c.name)
		b = binary.AppendUvarint(b, uint64(c.number))
		b = binary.AppendUvarint(b, uint64(c.typ))
	}
	return b
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// spoolReader reads the inodes of a spool in order.
type spoolReader struct {
	r   *bufio.Reader
	err error
}

func (d *spoolReader) uvarint() uint64 {
	v, err := binary.ReadUvarint(d.r)
	if err != nil && d.err == nil {
		d.err = err
	}
	return v
}

func (d *spoolReader) time() Time {
	sec, err := binary.ReadVarint(d.r)
	if err != nil && d.err == nil {
		d.err = err
	}
	return Time{sec, uint32(d.uvarint())}
}

func (d *spoolReader) bytes() []byte {
	n := d.uvarint()
	if n == 0 || d.err != nil {
		return nil
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(d.r, b); err != nil {
		d.err = err
	}
	return b
}

// next reads an inode that append wrote.
func (d *spoolReader) next(r *spooledInode) error {
	*r = spooledInode{}
	r.attr.Mode = uint32(d.uvarint())
	r.uid, r.gid, r.xattr = uint16(d.uvarint()), uint16(d.uvarint()), uint32(d.uvarint())-1
	r.attr.Rdev, r.attr.Size, r.attr.Ino = d.uvarint(), int64(d.uvarint()), d.uvarint()
	r.attr.Mtime, r.attr.Ctime, r.attr.Btime = d.time(), d.time(), d.time()
	r.target = string(d.bytes())
	r.extra = d.bytes()
	if basicType(r.attr.Mode) == typeFile {
		l := &layout{
			start: d.uvarint(), fragment: uint32(d.uvarint()) - 1, offset: uint32(d.uvarint()),
			sparse: d.uvarint(),
		}
		for n := d.uvarint(); n > 0 && d.err == nil; n-- {
			l.runs = append(l.runs, blockRun{d.uvarint(), uint32(d.uvarint())})
		}
		r.layout = l
	}
	r.subdirs = uint32(d.uvarint())
	for n := d.uvarint(); n > 0 && d.err == nil; n-- {
		r.children = append(r.children, child{string(d.bytes()), uint32(d.uvarint()), uint16(d.uvarint())})
	}
	if d.err != nil {
		return fmt.Errorf("read a spooled inode: %w", d.err)
	}
	return nil
}
