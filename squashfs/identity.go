package squashfs

import (
	"context"
	"encoding/binary"

	"github.com/zeebo/blake3"
)

// ContentsID is equal only for files with the same contents and extents; files with the same contents may have
// different ones. It is only valid within this process.
type ContentsID [16]byte

// ContentsID identifies the contents of a regular file by where they are stored. It reads the block list, and no
// contents.
func (n *Inode) ContentsID(ctx context.Context) (ContentsID, error) {
	x, err := n.extra()
	if err != nil {
		return ContentsID{}, err
	}
	return n.contentsID(ctx, &x)
}

// contentsID is ContentsID for callers that have read the inode's extra.
func (n *Inode) contentsID(ctx context.Context, x *extra) (ContentsID, error) {
	le := binary.LittleEndian
	var room [1024]byte // enough for nearly all
	b := le.AppendUint64(room[:0], n.im.id)
	b = le.AppendUint64(b, n.raw.size)
	b = le.AppendUint32(b, n.raw.fragment)
	if n.raw.fragment != noFragment {
		b = le.AppendUint32(b, n.raw.offset)
	}
	var h *blake3.Hasher
	full := func() {
		if h == nil {
			h = blake3.New()
		}
		_, _ = h.Write(b) // a hash never fails
		b = b[:0]
	}
	if x.hasExtents {
		for _, e := range x.extents {
			if len(b)+16 > cap(b) {
				full()
			}
			b = le.AppendUint64(le.AppendUint64(b, uint64(e.Off)), uint64(e.Len))
		}
	}
	if blocks := n.raw.blocks(n.im.sb.blockSize); blocks > 0 {
		if len(b)+8 > cap(b) {
			full()
		}
		b = le.AppendUint64(b, n.raw.start)
		w, err := n.walk(0)
		if err != nil {
			return ContentsID{}, err
		}
		for i := range blocks {
			if i%walkCheck == walkCheck-1 && ctx.Err() != nil {
				return ContentsID{}, ctx.Err()
			}
			_, _, word, err := w.next()
			if err != nil {
				return ContentsID{}, err
			}
			if len(b)+4 > cap(b) {
				full()
			}
			b = le.AppendUint32(b, word)
		}
	}
	if h == nil {
		sum := blake3.Sum256(b)
		return ContentsID(sum[:16]), nil
	}
	full()
	var sum [32]byte
	return ContentsID(h.Sum(sum[:0])[:16]), nil
}

// walkCheck is after how many words of a block list the context is checked: a millisecond or less.
const walkCheck = 1 << 16
