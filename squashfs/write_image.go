package squashfs

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
)

// tableOptions say which tables an image gets.
type tableOptions struct {
	fragments         []fragmentEntry
	export            bool
	extension         bool
	compressExtension bool
}

// imageOutput receives the part of an image after the data, in order.
type imageOutput interface {
	io.Writer
	// cut announces a table of size bytes.
	cut(table string, size uint64) error
	header(p []byte) error
}

// section is a table ready to be written: spools and bytes, one after the other.
type section struct {
	name  string
	parts []io.WriterTo
	size  uint64
}

// image writes everything behind the data, which ends at off, and then the superblock.
//
//	data | zeros | inodes | directories | fragments | export | ids | xattrs | bytes_used | extension | zeros
//
// The zeros before the inode table make bytes_used a multiple of padding. They cannot be behind the last table, because
// readers compute a table's end from what follows it.
func (w *writer) image(ctx context.Context, out imageOutput, off uint64, sb superblock, opts tableOptions) error {
	t, err := w.tables(ctx, opts)
	if err != nil {
		return err
	}
	sb.inodes, sb.mtime, sb.blockSize = w.inodes, w.mtime, uint32(w.blockSize)
	sb.ids, sb.root = uint16(len(w.ids.ids)), t.root
	sb.fragments = uint32(len(opts.fragments))
	sections, pad, err := w.layOut(t, &sb, off, opts)
	if err != nil {
		return err
	}
	if err := writePadding(out, pad); err != nil {
		return err
	}
	for _, s := range sections {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := out.cut(s.name, s.size); err != nil {
			return err
		}
		for _, p := range s.parts {
			if _, err := p.WriteTo(out); err != nil {
				return err
			}
		}
	}
	end := sb.bytesUsed
	if t.ext != nil {
		if end, err = t.writeExtension(out, end); err != nil {
			return err
		}
	}
	w.info.Size = int64(end)
	return out.header(sb.encode())
}

// layOut determines the location of every table.
func (w *writer) layOut(t *tables, sb *superblock, off uint64, opts tableOptions) ([]section, uint64, error) {
	sections := []section{
		{name: "inodes", parts: []io.WriterTo{t.inodes.out}, size: uint64(t.inodes.out.size)},
		{name: "directories", parts: []io.WriterTo{t.dirs.out}, size: uint64(t.dirs.out.size)},
	}
	lookups, err := w.lookups(t, sb, opts)
	if err != nil {
		return nil, 0, err
	}
	end := off
	for _, s := range sections {
		end += s.size
	}
	for _, l := range lookups {
		end += uint64(l.blocks.out.size) + 8*uint64(len(l.blocks.starts)) + uint64(len(l.before))
		if l.pairs != nil {
			end += uint64(l.pairs.out.size)
		}
	}
	pad := (padding - end%padding) % padding
	sb.bytesUsed = end + pad
	sb.inodeTable = off + pad
	sb.dirTable = sb.inodeTable + sections[0].size
	at := sb.dirTable + sections[1].size
	for _, l := range lookups {
		s := section{name: l.name}
		start := at
		if l.pairs != nil {
			s.parts = append(s.parts, l.pairs.out)
			binary.LittleEndian.PutUint64(l.before, at)
			at += uint64(l.pairs.out.size)
		}
		s.parts = append(s.parts, l.blocks.out)
		index := l.before
		for _, block := range l.blocks.starts {
			index = binary.LittleEndian.AppendUint64(index, at+block)
		}
		at += uint64(l.blocks.out.size)
		*l.place = at
		s.parts = append(s.parts, bytes.NewReader(index))
		at += uint64(len(index))
		s.size = at - start
		sections = append(sections, s)
	}
	return sections, pad, nil
}

// lookup is a table that is found through the absolute offsets of its blocks.
type lookup struct {
	name   string
	place  *uint64     // in the superblock
	pairs  *metaWriter // of xattrs only: what the entries point to, before them
	blocks *metaWriter // the entries
	before []byte      // of xattrs only: the structure before the offsets
}

// lookups builds the look-up tables that the image needs, in the order in which readers expect them.
func (w *writer) lookups(t *tables, sb *superblock, opts tableOptions) ([]lookup, error) {
	var lookups []lookup
	table := func(name string, place *uint64, n int, entry func(b []byte, i int) []byte) error {
		m := newMetaWriter(w.spools.spool(), w.compressor)
		var b []byte
		for i := range n {
			b = entry(b[:0], i)
			if _, err := m.Write(b); err != nil {
				return err
			}
		}
		lookups = append(lookups, lookup{name: name, place: place, blocks: m})
		return m.flush()
	}
	sb.fragTable, sb.exportTable, sb.xattrTable = noTable, noTable, noTable
	if len(opts.fragments) > 0 {
		if err := table("fragments", &sb.fragTable, len(opts.fragments), func(b []byte, i int) []byte {
			return opts.fragments[i].append(b)
		}); err != nil {
			return nil, err
		}
	}
	if t.export != nil {
		if err := t.export.flush(); err != nil {
			return nil, err
		}
		lookups = append(lookups, lookup{name: "export", place: &sb.exportTable, blocks: t.export})
	}
	if err := table("ids", &sb.idTable, len(w.ids.ids), func(b []byte, i int) []byte {
		return binary.LittleEndian.AppendUint32(b, w.ids.ids[i])
	}); err != nil {
		return nil, err
	}
	if n := len(w.xattrs.known); n > 0 {
		if err := w.xattrs.pairs.flush(); err != nil {
			return nil, err
		}
		if err := w.xattrs.ids.flush(); err != nil {
			return nil, err
		}
		lookups = append(lookups, lookup{
			name: "xattrs", place: &sb.xattrTable, blocks: w.xattrs.ids, pairs: w.xattrs.pairs,
			before: xattrTable{ids: uint32(n)}.append(nil),
		})
	}
	return lookups, nil
}

// writeExtension writes the section and the zeros behind it. It returns the file's end.
func (t *tables) writeExtension(out imageOutput, bytesUsed uint64) (uint64, error) {
	head, length, err := t.ext.finish(bytesUsed)
	if err != nil {
		return 0, err
	}
	if err := out.cut("extension", uint64(len(head))); err != nil {
		return 0, err
	}
	if _, err := out.Write(head); err != nil {
		return 0, err
	}
	pad := (padding - length%padding) % padding
	for i, c := range t.ext.columns {
		if c.size() == 0 {
			continue
		}
		if err := out.cut(extColumnNames[i], c.size()); err != nil {
			return 0, err
		}
		if err := c.writeTo(out); err != nil {
			return 0, err
		}
	}
	return bytesUsed + length + pad, writePadding(out, pad)
}

func writePadding(out imageOutput, n uint64) error {
	if n == 0 {
		return nil
	}
	if err := out.cut("padding", n); err != nil {
		return err
	}
	_, err := out.Write(make([]byte, n))
	return err
}
