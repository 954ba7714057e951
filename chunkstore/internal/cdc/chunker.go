package cdc

import (
	"fmt"

	chunkers "github.com/PlakarKorp/go-cdc-chunkers"
	"github.com/PlakarKorp/go-cdc-chunkers/chunkers/fastcdc"
)

// Sizes in bytes. They are part of the format: with others, old stores could be read but no duplicates found in them.
const (
	WholePart  = 128 << 10 // a shorter part is one chunk, so that a small file has one predecessor
	MinSize    = 16 << 10  // of a chunk, unless its part ends before
	NormalSize = 64 << 10  // beyond it FastCDC cuts more readily
	MaxSize    = 256 << 10 // of a chunk

	// bufferSize holds what is not cut yet; its rest is moved down once per bufferSize - MaxSize bytes.
	bufferSize = 1 << 20
)

// cutter finds content-defined cuts: FastCDC (Xia et al., ATC 2016) with the published masks of 15 and
// 11 bits, which with the limits above give chunks of 41 KiB on average.
type cutter struct {
	cdc  fastcdc.FastCDC
	opts chunkers.ChunkerOpts
}

func newCutter() (*cutter, error) {
	c := &cutter{opts: chunkers.ChunkerOpts{MinSize: MinSize, NormalSize: NormalSize, MaxSize: MaxSize}}
	// The published masks are chosen by the published sizes; the limits are applied by next.
	if err := c.cdc.Setup(c.cdc.DefaultOptions()); err != nil {
		return nil, fmt.Errorf("set up fastcdc: %w", err)
	}
	return c, nil
}

// next gives the length of the first chunk of data, which holds MaxSize bytes or all that is left of a part.
func (c *cutter) next(data []byte) int {
	return c.cdc.Algorithm(&c.opts, data, len(data))
}

// Chunker cuts a byte stream, given in pieces of any size, into chunks. Cuts depend on the bytes of a
// part only, never on how they were written. Used by one goroutine.
type Chunker struct {
	emit func(chunk []byte) error // chunk is valid during the call
	cut  *cutter
	buf  []byte // bytes of the part before and after the last cut; bufferSize is its capacity
	off  int    // start of what is not cut yet in buf
	left int64  // announced bytes of the part still to come, -1 unknown
	long bool   // a chunk of this part was emitted: it does not become one chunk
}

// New makes a chunker that calls emit for every chunk, in order; its error ends the method that was called.
func New(emit func(chunk []byte) error) *Chunker {
	cut, err := newCutter()
	if err != nil {
		panic(err) // the library refuses its own defaults
	}
	return &Chunker{emit: emit, cut: cut, left: -1}
}

// Begin ends the current part and starts one of size bytes, -1 if unknown. A known size lets small
// files pass without a copy. Bytes beyond it belong to a part of unknown size of their own.
func (c *Chunker) Begin(size int64) error {
	if err := c.Flush(); err != nil {
		return err
	}
	c.left = size
	return nil
}

// Write takes the next bytes of the part; it implements io.Writer.
func (c *Chunker) Write(p []byte) (int, error) {
	done := 0
	for done < len(p) {
		n, err := c.take(p[done:])
		done += n
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// take consumes at least one byte of p: straight from p while nothing is buffered, else through the buffer.
func (c *Chunker) take(p []byte) (int, error) {
	if c.left == 0 {
		c.left = -1
	}
	if c.left > 0 && int64(len(p)) > c.left {
		p = p[:c.left]
	}
	ends := c.left == int64(len(p))
	n := 0
	if c.off == len(c.buf) {
		for len(p)-n >= MaxSize {
			l := c.cut.next(p[n : n+MaxSize])
			c.long = true
			if err := c.emit(p[n : n+l]); err != nil {
				return n, err
			}
			n += l
		}
		if ends {
			c.left = 0
			return len(p), c.tail(p[n:])
		}
	}
	for n < len(p) {
		l, err := c.buffer(p[n:])
		n += l
		if err != nil {
			return n, err
		}
	}
	if c.left > 0 {
		c.left -= int64(n)
	}
	if ends {
		return n, c.endBuffered()
	}
	return n, nil
}

// buffer keeps bytes of p and emits the chunks that are certain.
func (c *Chunker) buffer(p []byte) (int, error) {
	if c.buf == nil {
		c.buf = make([]byte, 0, bufferSize)
	}
	if len(c.buf) == cap(c.buf) {
		c.buf = c.buf[:copy(c.buf, c.buf[c.off:])]
		c.off = 0
	}
	n := min(len(p), cap(c.buf)-len(c.buf))
	c.buf = append(c.buf, p[:n]...)
	for len(c.buf)-c.off >= MaxSize {
		l := c.cut.next(c.buf[c.off : c.off+MaxSize])
		c.long = true
		c.off += l
		if err := c.emit(c.buf[c.off-l : c.off]); err != nil {
			return n, err
		}
	}
	return n, nil
}

// tail emits the rest of a part that ends with data.
func (c *Chunker) tail(data []byte) error {
	whole := !c.long && len(data) < WholePart
	c.long = false
	for len(data) > 0 {
		l := len(data)
		if !whole {
			l = c.cut.next(data[:min(l, MaxSize)])
		}
		if err := c.emit(data[:l]); err != nil {
			return err
		}
		data = data[l:]
	}
	return nil
}

func (c *Chunker) endBuffered() error {
	rest := c.buf[c.off:]
	c.buf, c.off = c.buf[:0], 0
	return c.tail(rest)
}

// Flush ends the current part.
func (c *Chunker) Flush() error {
	c.left = -1
	return c.endBuffered()
}

// Continue starts a part of unknown size that is cut as the rest of a long one: however short, it is cut by content.
func (c *Chunker) Continue() { c.left, c.long = -1, true }

// Idle reports whether all bytes taken are in chunks.
func (c *Chunker) Idle() bool { return c.off == len(c.buf) }

// Resync reports whether the bytes taken so far would be cut at their end if next, which must not be empty, followed
// them. If so it emits them. It never takes next.
func (c *Chunker) Resync(next []byte) (bool, error) {
	next = next[:min(len(next), MaxSize)]
	rest := c.buf[c.off:]
	p := append(append(make([]byte, 0, len(rest)+len(next)), rest...), next...)
	for at := 0; at < len(rest); {
		l := c.cut.next(p[at:min(len(p), at+MaxSize)])
		if at+l > len(rest) {
			return false, nil
		}
		c.off += l
		if err := c.emit(p[at : at+l]); err != nil {
			return false, err
		}
		at += l
	}
	c.buf, c.off = c.buf[:0], 0
	return true, nil
}

// Held gives how many of the bytes taken are not in chunks yet.
func (c *Chunker) Held() int { return len(c.buf) - c.off }
