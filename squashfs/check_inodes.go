package squashfs

import (
	"encoding/binary"
	"slices"
)

// scan reads the inode table from beginning to end, so that the tree knows where inodes begin.
func (c *checker) scan() error {
	im := c.im
	cur, err := im.cursor(im.inodes, position{at: im.inodes.start})
	if err != nil {
		c.cut = true
		return c.failed("", err)
	}
	short := int64(-1) // the last block found to be too short
	for {
		if err := c.stop(); err != nil {
			return err
		}
		if len(cur.data) < metadataSize && cur.next < im.inodes.end && short != cur.at {
			short = cur.at
			c.bad("", corrupt(cur.at, "metadata block of %d bytes inside the inode table", len(cur.data)))
		}
		if cur.off == len(cur.data) {
			if cur.next >= im.inodes.end {
				break
			}
			if err := cur.load(); err != nil {
				c.cut = true
				return c.failed("", err)
			}
			continue
		}
		n := new(Inode)
		err := im.parse(n, makeRef(uint64(cur.at-im.inodes.start), cur.off))
		if err == nil {
			cur, err = n.behind()
		}
		if err != nil {
			c.cut = true
			return c.failed("", err)
		}
		c.refs = append(c.refs, n.ref)
		c.inodes = append(c.inodes,
			checked{number: n.raw.number, nlink: n.raw.nlink, parent: n.raw.parent, typ: n.raw.basic()})
	}
	return c.numbers()
}

// behind is the location of the next inode.
func (n *Inode) behind() (cursor, error) {
	cur, err := n.im.cursor(n.im.inodes, n.rest)
	if err != nil {
		return cur, err
	}
	if n.raw.basic() == typeFile {
		return cur, cur.skip(4 * int64(min(n.raw.blocks(n.im.sb.blockSize), 1<<60)))
	}
	for range n.raw.indexes {
		if _, err := cur.dirIndex(); err != nil {
			return cur, locate(cur.at, err)
		}
	}
	return cur, nil
}

// numbers checks that there are as many inodes as promised, each with its own number.
func (c *checker) numbers() error {
	if got, want := uint64(len(c.inodes)), uint64(c.im.sb.inodes); got != want {
		c.bad("", corrupt(sbInodes, "%d inodes in the inode table, superblock says %d", got, want))
	}
	seen := make([]bool, len(c.inodes)+1)
	for i, n := range c.inodes {
		switch {
		case n.number == 0 || uint64(n.number) >= uint64(len(seen)):
			c.bad("", corrupt(c.location(i), "inode number %d of %d", n.number, len(c.inodes)))
		case seen[n.number]:
			c.bad("", corrupt(c.location(i), "inode number %d is there twice", n.number))
		default:
			seen[n.number] = true
		}
	}
	return nil
}

// location is the metadata block of an inode.
func (c *checker) location(i int) int64 { return c.im.inodes.start + int64(c.refs[i].block()) }

// find returns the index of the inode that begins at ref.
func (c *checker) find(ref Ref) (int, bool) { return slices.BinarySearch(c.refs, ref) }

// exports checks that the export table, if there is one, has the location of each inode.
func (c *checker) exports() error {
	t := &c.im.exports
	if t.count == 0 || c.cut {
		return nil
	}
	for _, n := range c.inodes {
		if err := c.stop(); err != nil {
			return err
		}
		if uint64(n.number)-1 >= t.count {
			continue // numbers has reported it
		}
		ref, err := c.im.Export(n.number)
		if err != nil {
			return c.failed("", err)
		}
		if i, ok := c.find(ref); !ok || c.inodes[i].number != n.number {
			c.bad("", corrupt(t.at, "export table has %#x for inode %d, which is not there", uint64(ref), n.number))
		}
	}
	return nil
}

// inode checks one inode, when the tree first reaches it.
func (c *checker) inode(path string, ref Ref) error {
	n := new(Inode)
	err := c.im.load(n, ref)
	if err != nil {
		return c.failed(path, err)
	}
	if n.raw.xattr != noXattr {
		switch index, err := c.im.xattrs.get(c.im.xattrTables); {
		case err != nil:
			if err := c.failed(path, err); err != nil {
				return err
			}
		case uint64(n.raw.xattr) >= index.ids.count:
			c.bad(path, corrupt(n.location(), "xattr set %d of %d", n.raw.xattr, index.ids.count))
		}
	}
	if n.raw.basic() == typeSymlink && (n.raw.size == 0 || slices.Contains(n.raw.target, 0)) {
		c.bad(path, corrupt(n.location(), "symlink target %q", n.raw.target))
	}
	if n.raw.basic() != typeFile {
		return nil
	}
	e, err := n.extra()
	if err != nil {
		return err
	}
	if last := len(e.extents) - 1; last >= 0 && e.extents[last].Off+e.extents[last].Len > n.attr.Size {
		c.bad(path, corrupt(n.location(), "extents of the extension section up to %d in a file of %d",
			e.extents[last].Off+e.extents[last].Len, n.attr.Size))
	}
	if err := c.data(path, n); err != nil {
		return err
	}
	return c.tail(path, n)
}

// data checks a file's blocks, and unpacks those that are compressed.
func (c *checker) data(path string, n *Inode) error {
	blocks := n.raw.blocks(c.im.sb.blockSize)
	if blocks == 0 {
		return nil
	}
	w, err := n.walk(0)
	if err != nil {
		return c.failed(path, err)
	}
	rest := uint64(n.attr.Size)
	known := c.starts[n.raw.start] // this data and what follows may be shared with other files
	for ; blocks > 0; blocks-- {
		if err := c.stop(); err != nil {
			return err
		}
		off, stored, word, err := w.next()
		if err != nil {
			return c.failed(path, err)
		}
		whole := int(min(uint64(c.im.sb.blockSize), rest))
		rest -= uint64(whole)
		end := off + int64(stored)
		if stored == 0 {
			continue
		}
		if off < superblockSize || end > c.im.inodes.start {
			c.bad(path, corrupt(off, "data block of %d bytes outside the data area, which ends at %d", stored,
				c.im.inodes.start))
			return nil
		}
		if _, compressed := dataHeader(word); !compressed {
			if stored != whole {
				c.bad(path, corrupt(off, "data block of %d bytes, want %d", stored, whole))
			}
			continue
		}
		if end <= known {
			continue
		}
		c.starts[n.raw.start] = end
		if err := c.unpack(path, off, stored, whole); err != nil {
			return err
		}
	}
	return nil
}

// unpack verifies one compressed data block.
func (c *checker) unpack(path string, off int64, stored, whole int) error {
	if c.dataBudget < 0 {
		return nil
	}
	if c.dataBudget -= int64(stored); c.dataBudget < 0 {
		c.bad(path, corrupt(off, "data blocks overlap so often that the rest is not read"))
		return nil
	}
	buf := make([]byte, whole)
	return c.failed(path, c.im.unpackInto(buf, off, stored))
}

// tail checks a file's part of a fragment, which fragments has unpacked.
func (c *checker) tail(path string, n *Inode) error {
	if int(n.raw.fragment) >= len(c.tails) || n.attr.Size%int64(c.im.sb.blockSize) == 0 {
		return nil
	}
	size := int(n.attr.Size % int64(c.im.sb.blockSize))
	if have := c.tails[n.raw.fragment]; int(n.raw.offset)+size > int(have) {
		c.bad(path, corrupt(c.im.fragments.at, "tail of %d bytes at %d of fragment %d, which has %d", size,
			n.raw.offset, n.raw.fragment, have))
	}
	return nil
}

// options checks the compressor options, which a flag announces behind the superblock.
func (c *checker) options() error { return c.failed("", c.im.options()) }

// options is as checker.options.
func (im *Image) options() error {
	if im.sb.flags&flagCompressorOptions == 0 {
		if im.sb.compressor == compressorLz4 {
			return corrupt(sbCompressor, "lz4 without its options")
		}
		return nil
	}
	data, _, err := im.metadataBlock(superblockSize, im.inodes.start)
	if err != nil {
		return err
	}
	want := map[uint16]int{compressorGzip: 8, compressorLzo: 8, compressorXz: 8, compressorLz4: 8, compressorZstd: 4}
	if n := want[im.sb.compressor]; len(data) < n || n == 0 {
		return corrupt(superblockSize, "%d bytes of options for compressor %d, want %d", len(data), im.sb.compressor, n)
	}
	if v := binary.LittleEndian.Uint32(data); im.sb.compressor == compressorLz4 && v != 1 {
		return corrupt(superblockSize, "lz4 of version %d, want 1", v)
	}
	return nil
}
