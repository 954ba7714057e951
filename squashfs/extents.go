package squashfs

import (
	"context"
	"fmt"
)

// Data tells where in the image a file's bytes lie, if they are uncompressed and contiguous (always so in the store
// form). The ranges serve to predict the next version of the file. Blocks of zeros that are not stored are left out, so
// length is less than the file's size if it has any. It reads the whole block list.
func (n *Inode) Data() (off, length int64, ok bool) {
	if n.raw.basic() != typeFile || n.raw.fragment != noFragment {
		return 0, 0, false
	}
	w, err := n.walk(0)
	if err != nil {
		return 0, 0, false
	}
	for i := n.raw.blocks(n.im.sb.blockSize); i > 0; i-- {
		_, stored, word, err := w.next()
		if _, compressed := dataHeader(word); err != nil || compressed && stored > 0 {
			return 0, 0, false
		}
	}
	off = int64(n.raw.start)
	return off, w.data - off, w.data > off
}

// Place tells where in the image the byte at off of a regular file lies, if it is stored uncompressed, and how many
// bytes of the file follow it contiguously, at most most. Otherwise at is 0, and n is for how many bytes that holds.
func (n *Inode) Place(off, most int64) (at, count int64, err error) {
	bs := int64(n.im.sb.blockSize)
	most = min(most, n.attr.Size-off)
	i, blocks := uint64(off/bs), n.raw.blocks(n.im.sb.blockSize)
	if n.raw.basic() != typeFile || off < 0 || most <= 0 || i >= blocks {
		return 0, max(most, 0), nil
	}
	w, err := n.walk(i)
	if err != nil {
		return 0, 0, err
	}
	for found := false; i < blocks && count < most; i++ {
		place, stored, word, err := w.next()
		if err != nil {
			return 0, 0, err
		}
		_, compressed := dataHeader(word)
		plain := stored > 0 && !compressed
		switch {
		case count == 0:
			if found = plain; plain {
				at = place + off - int64(i)*bs
			}
		case plain != found || plain && place != at+count:
			return at, count, nil
		}
		count = min(int64(i+1)*bs, n.attr.Size) - off
	}
	return at, min(count, most), nil
}

// blockExtents appends the parts of a file with data, by whole blocks, to an empty list.
func (n *Inode) blockExtents(ctx context.Context, list []Extent) ([]Extent, error) {
	w, err := n.walk(0)
	if err != nil {
		return nil, err
	}
	add := func(off, length int64) {
		if last := len(list) - 1; last >= 0 && list[last].Off+list[last].Len == off {
			list[last].Len += length
			return
		}
		list = append(list, Extent{off, length})
	}
	bs := int64(n.im.sb.blockSize)
	off := int64(0)
	for i := n.raw.blocks(n.im.sb.blockSize); i > 0; i-- {
		if i%walkCheck == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		_, stored, _, err := w.next()
		if err != nil {
			return nil, err
		}
		if stored > 0 {
			add(off, min(bs, n.attr.Size-off))
		}
		if len(list) > maxExtents {
			return nil, fmt.Errorf("%w: file with more than %d stretches of data", ErrLimit, maxExtents)
		}
		off += bs
	}
	if off < n.attr.Size {
		add(off, n.attr.Size-off)
	}
	return list, nil
}
