package zdeflate

import (
	"encoding/binary"
	"errors"
	"hash/adler32"
	"io"
	"math"
	"sync"
)

// Strategy tunes the search for matches.
type Strategy uint8

// Strategies, numbered as in zlib's interface.
const (
	Default  Strategy = 0
	Filtered Strategy = 1 // matches of up to 5 bytes are not used; for the filtered rows of images
)

// Params are the parameters of zlib's deflateInit2.
type Params struct {
	Level      int // 1 to 9
	MemLevel   int // 1 to 9; zlib's default is 8
	WindowBits int // 9 to 15
	Strategy   Strategy
}

// Valid reports whether all parameters are within the bounds above.
func (p Params) Valid() bool {
	return 1 <= p.Level && p.Level <= 9 && 1 <= p.MemLevel && p.MemLevel <= 9 &&
		9 <= p.WindowBits && p.WindowBits <= 15 && p.Strategy <= Filtered
}

// MaxInput is how many bytes can be compressed at once.
const MaxInput = 256 << 20

// Header is what zlib writes before a stream (RFC 1950).
func (p Params) Header() [2]byte {
	class := 3
	switch {
	case p.Level < 2:
		class = 0
	case p.Level < 6:
		class = 1
	case p.Level == 6:
		class = 2
	}
	const deflate = 8
	h := (p.WindowBits-8)<<12 | deflate<<8 | class<<6
	h += 31 - h%31
	return [2]byte{byte(h >> 8), byte(h)}
}

var compressors = sync.Pool{New: func() any { return new(compressor) }}

// ErrWork is the error of a stream that takes more work than was allowed.
var ErrWork = errors.New("deflate: too much work")

// Deflate writes data as a deflate stream (RFC 1951) to w. The parameters must be valid and data not longer than
// MaxInput. Its errors are those of w, and end it early. w gets a few writes for each block. Safe for concurrent use.
func Deflate(w io.Writer, data []byte, p Params) error { return DeflateWithin(w, data, p, math.MaxInt) }

// DeflateWithin is Deflate, but fails with ErrWork when more than work candidates for matches were looked at. Ordinary
// data takes up to some 30 for each byte; data that was made to be slow, up to 4096.
func DeflateWithin(w io.Writer, data []byte, p Params, work int) error {
	if !p.Valid() || len(data) > MaxInput {
		panic("zdeflate: parameters out of bounds")
	}
	c := compressors.Get().(*compressor)
	c.begin(w, data, p)
	c.work = work
	c.run()
	err := c.out.err
	c.release()
	compressors.Put(c)
	return err
}

// Zlib is Deflate with the header and the checksum of RFC 1950.
func Zlib(w io.Writer, data []byte, p Params) error {
	h := p.Header()
	if _, err := w.Write(h[:]); err != nil {
		return err //nolint:wrapcheck // the caller's own
	}
	if err := Deflate(w, data, p); err != nil {
		return err
	}
	_, err := w.Write(binary.BigEndian.AppendUint32(nil, adler32.Checksum(data)))
	return err //nolint:wrapcheck // the caller's own
}

// bitWriter gathers bits, the lowest first, and writes them out in pieces. After an error it drops everything.
type bitWriter struct {
	w    io.Writer
	buf  []byte
	bits uint64
	n    uint // bits in bits, always less than 32 between calls
	err  error
}

// flushSize is how many bytes are gathered before they are written.
const flushSize = 16 << 10

// put appends the n lowest bits of v, at most 32.
func (b *bitWriter) put(v uint32, n uint) {
	b.bits |= uint64(v) << b.n
	if b.n += n; b.n >= 32 {
		b.buf = binary.LittleEndian.AppendUint32(b.buf, uint32(b.bits))
		b.bits >>= 32
		b.n -= 32
	}
}

// align fills the last byte with zeros.
func (b *bitWriter) align() {
	for ; b.n > 0; b.n -= min(b.n, 8) {
		b.buf = append(b.buf, byte(b.bits))
		b.bits >>= 8
	}
}

// stored appends whole bytes; the writer must be aligned.
func (b *bitWriter) stored(p []byte) {
	b.buf = binary.LittleEndian.AppendUint16(b.buf, uint16(len(p)))
	b.buf = binary.LittleEndian.AppendUint16(b.buf, ^uint16(len(p)))
	b.buf = append(b.buf, p...)
}

// flush writes what was gathered, if that is at least least bytes.
func (b *bitWriter) flush(least int) {
	if len(b.buf) < least {
		return
	}
	if b.err == nil {
		_, b.err = b.w.Write(b.buf)
	}
	b.buf = b.buf[:0]
}
