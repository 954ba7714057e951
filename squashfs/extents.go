package squashfs

// Data tells where in the image a file's bytes lie, if they lie there uncompressed and side by side (always so in
// the store form): the ranges to predict the next version of the file from. Blocks of zeros that are not stored
// are left out, so length is less than the file's size if it has any. It reads the whole block list.
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

// blockExtents lists where a file has data, by whole blocks.
func (n *Inode) blockExtents() ([]Extent, error) {
	w, err := n.walk(0)
	if err != nil {
		return nil, err
	}
	var list []Extent
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
		_, stored, _, err := w.next()
		if err != nil {
			return nil, err
		}
		if stored > 0 {
			add(off, min(bs, n.attr.Size-off))
		}
		off += bs
	}
	if off < n.attr.Size {
		add(off, n.attr.Size-off)
	}
	return list, nil
}
