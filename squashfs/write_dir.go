package squashfs

import (
	"fmt"
	"math"
)

// dirListing builds one directory's listing.
type dirListing struct {
	size  uint32
	index []dirIndex // empty if the listing is within one metadata block
	run   []byte     // scratch
}

// build writes the listing of children, whose inodes are at refs, to out. A run ends where its inodes' metadata block
// ends, where it is full, where inode numbers are too far apart, and where the listing enters a new metadata block: the
// index points there.
func (d *dirListing) build(children []child, refs []Ref, out *metaWriter) error {
	d.size, d.index = 0, d.index[:0]
	block := out.tell().block()
	for len(children) > 0 {
		at := out.tell()
		if at.block() != block {
			block = at.block()
			d.index = append(d.index, dirIndex{index: d.size, start: uint32(block), name: children[0].name})
		}
		n := d.fill(children, refs, metadataSize-at.offset())
		if uint64(d.size)+uint64(len(d.run)) > math.MaxUint32-dirSizeBias || len(d.index) > math.MaxUint16 {
			return fmt.Errorf("%w: a directory of more than %d bytes", ErrLimit, d.size)
		}
		if _, err := out.Write(d.run); err != nil {
			return err
		}
		d.size += uint32(len(d.run))
		children, refs = children[n:], refs[n:]
	}
	return nil
}

// fill builds a run in d.run that ends with the first entry to reach beyond room bytes. It returns the number of
// entries.
func (d *dirListing) fill(children []child, refs []Ref, room int) int {
	first := children[0].number
	h := dirHeader{start: uint32(refs[0].block()), number: first}
	d.run = append(d.run[:0], make([]byte, dirHeaderSize)...)
	for i, c := range children {
		ref, delta := refs[i], int64(c.number)-int64(first)
		if h.count == maxDirRun || uint32(ref.block()) != h.start || delta < math.MinInt16 || delta > math.MaxInt16 ||
			h.count > 0 && len(d.run) >= room {
			break
		}
		d.run = dirEntry{offset: uint16(ref.offset()), delta: int16(delta), typ: c.typ, name: c.name}.append(d.run)
		h.count++
	}
	copy(d.run, h.append(nil))
	return int(h.count)
}
