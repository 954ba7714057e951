package squashfs

import (
	"encoding/binary"
	"math/bits"
	"sync"
)

// scratches are the buffers for stored blocks, data or metadata, of all images, by the logarithm of their size. A pool
// for each image would keep a buffer for each recently opened image. That raises the heap size at which the garbage
// collector starts, so that more images are opened before it runs, and so on without bound.
var scratches [25]sync.Pool // of *[]byte

// takeScratch returns a buffer of n bytes or more; n is at most a block with its header. Callers must put it back.
func takeScratch(n int) *[]byte {
	class := bits.Len(uint(n - 1))
	if buf, ok := scratches[class].Get().(*[]byte); ok {
		return buf
	}
	buf := make([]byte, 1<<class)
	return &buf
}

func putScratch(buf *[]byte) { scratches[bits.Len(uint(len(*buf)-1))].Put(buf) }

// metadataBlock returns the unpacked metadata block at off of a region that ends at end, and where the next block
// begins. The bytes belong to the cache; callers must not change them.
func (im *Image) metadataBlock(off, end int64) (data []byte, next int64, err error) {
	if off < superblockSize || off > end-3 {
		return nil, 0, corrupt(off, "metadata block outside its table, which ends at %d", end)
	}
	e, owner := im.cache.acquire(cacheKey{im.id, off, metadataKey})
	if owner {
		data, next, err := im.loadMetadata(off)
		im.cache.settle(e, data, next, err)
	}
	if e.err != nil {
		return nil, 0, e.err
	}
	if e.end > end {
		return nil, 0, corrupt(off, "metadata block up to %d leaves its table, which ends at %d", e.end, end)
	}
	return e.data, e.end, nil
}

// loadMetadata reads a metadata block: its header and what follows in one go.
func (im *Image) loadMetadata(off int64) ([]byte, int64, error) {
	buf := takeScratch(2 + metadataSize)
	defer putScratch(buf)
	got := (*buf)[:min(2+metadataSize, int64(im.sb.bytesUsed)-off)]
	if err := readFull(im.r, got, off); err != nil {
		return nil, 0, err
	}
	n, compressed := metadataHeader(binary.LittleEndian.Uint16(got))
	if n == 0 || n > metadataSize || 2+n > len(got) {
		return nil, 0, corrupt(off, "metadata block of %d bytes", n)
	}
	data, err := im.unpackBlock(off, got[2:2+n], compressed, metadataSize)
	return data, off + 2 + int64(n), err
}

// unpackBlock returns a stored block's contents in a new slice, of 1 to limit bytes.
func (im *Image) unpackBlock(off int64, stored []byte, compressed bool, limit int) ([]byte, error) {
	if !compressed {
		if len(stored) > limit {
			return nil, corrupt(off, "block of %d bytes, at most %d expected", len(stored), limit)
		}
		return append(make([]byte, 0, len(stored)), stored...), nil
	}
	data := make([]byte, limit)
	n, err := im.unpack(data, stored)
	switch {
	case err != nil:
		return nil, &CorruptError{Off: off, Reason: "cannot unpack block", cause: err}
	case n == 0:
		return nil, corrupt(off, "block unpacks to nothing")
	case n < limit-limit/8: // cached data should not keep much more memory alive
		data = append(make([]byte, 0, n), data[:n]...)
	}
	return data[:n], nil
}

// cursor reads a region's unpacked bytes across the borders of its blocks. Not for concurrent use; copies are.
type cursor struct {
	im   *Image
	in   region
	at   int64  // of the current block in the image
	next int64  // of the one after it
	data []byte // the current block's bytes
	off  int    // in data
}

// position is a location in a region: a metadata block in the image and an offset in its unpacked contents.
type position struct {
	at  int64
	off int
}

// cursor starts at a position; the end of a block is the start of the next one.
func (im *Image) cursor(in region, p position) (cursor, error) {
	c := cursor{im: im, in: in, at: p.at, off: p.off}
	if p.at < in.start || p.at >= in.end || p.off > metadataSize {
		return c, corrupt(p.at, "pointer outside the %s: block %d, offset %d", in.name, p.at-in.start, p.off)
	}
	var err error
	if c.data, c.next, err = im.metadataBlock(p.at, in.end); err != nil {
		return c, err
	}
	if p.off > len(c.data) {
		return c, corrupt(p.at, "pointer to byte %d of a metadata block of %d", p.off, len(c.data))
	}
	return c, nil
}

// position is where the next byte is.
func (c *cursor) position() position { return position{c.at, c.off} }

// load ensures that there are bytes left in the current block, by loading the next one.
func (c *cursor) load() error {
	if c.off < len(c.data) {
		return nil
	}
	if c.next >= c.in.end {
		return corrupt(c.at, "%s ends early", c.in.name)
	}
	data, next, err := c.im.metadataBlock(c.next, c.in.end)
	if err != nil {
		return err
	}
	c.at, c.next, c.data, c.off = c.next, next, data, 0
	return nil
}

// take returns the next n bytes, from the block itself if they lie in it, else in a new slice. They stay valid; callers
// must not change them.
func (c *cursor) take(n int) ([]byte, error) {
	if rest := c.data[c.off:]; len(rest) >= n {
		c.off += n
		return rest[:n:n], nil
	}
	b := make([]byte, 0, n)
	for len(b) < n {
		if err := c.load(); err != nil {
			return nil, err
		}
		m := min(n-len(b), len(c.data)-c.off)
		b = append(b, c.data[c.off:c.off+m]...)
		c.off += m
	}
	return b, nil
}

// skip passes over n bytes.
func (c *cursor) skip(n int64) error {
	for n > 0 {
		if err := c.load(); err != nil {
			return err
		}
		m := min(n, int64(len(c.data)-c.off))
		c.off += int(m)
		n -= m
	}
	return nil
}
