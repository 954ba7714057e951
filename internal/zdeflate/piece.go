package zdeflate

import (
	"errors"
	"math"
	"math/bits"
)

// Lookahead is how many bytes of contents behind a piece decide its last block, at most.
const Lookahead = 512

// ErrCut is the error of a piece that cannot be made: its first block does not start where a match or a literal does,
// or its last one needs more data.
var ErrCut = errors.New("deflate: a piece does not begin or end with a block")

// Piece is a part of a deflate stream that is made without what comes before, but for some context. It starts and ends
// with a block.
//
// The state of zlib's compressors is what they have hashed of the last 32 KiB, and how far they have come. So with a
// little more than that as context a piece is likely to be that of the whole stream, but it has to be compared.
type Piece struct {
	Params

	Data    []byte // contents: the context, the piece, and Lookahead bytes behind it or up to the stream's end
	Offset  int    // of Data in the stream
	Context int    // bytes
	Last    bool   // the stream ends with Data
	// Until is how many bytes behind the context the piece ends; if no block does there, with the next that does.
	// If it is larger than Data and Last is set, the piece ends with the stream.
	Until int
	// Lead has the bits before the piece in its first byte, and a 1 above them; 1 is none.
	Lead byte
	// Work bounds how many candidates for matches are looked at. With more than Enough the piece ends with the block.
	Work, Enough int
}

// Append appends the whole bytes of the piece to dst. It returns how many bytes of contents the piece has, and the bits
// that are left as the lead of what comes next. Errors are ErrCut and ErrWork. Safe for concurrent use.
func (p *Piece) Append(dst []byte) (out []byte, used int, tail byte, err error) {
	if !p.Valid() || p.Lead == 0 || p.Context > len(p.Data) || len(p.Data) > MaxInput {
		panic("zdeflate: piece out of bounds")
	}
	c := compressors.Get().(*compressor)
	to := appender{dst}
	c.begin(&to, p.Data, p.Params)
	c.base = -p.Offset
	c.work, c.out.n = p.Work, uint(bits.Len8(p.Lead))-1
	c.out.bits = uint64(p.Lead) &^ (1 << c.out.n)
	c.span = span{from: p.Context, until: math.MaxInt, enough: p.Work - p.Enough, open: !p.Last}
	if p.Context == 0 {
		c.from = begun
	}
	if p.Until < len(p.Data) {
		c.until = p.Context + p.Until
	}
	c.run()
	tail = c.out.rest()
	used, err = c.pos-p.Context, c.out.err
	c.release()
	compressors.Put(c)
	return to.b, used, tail, err
}

// span is the part of the data of which the blocks are written.
type span struct {
	from   int  // its start, or begun
	until  int  // it ends with the first block that ends here or later
	enough int  // or when no more work than this is left
	open   bool // the data does not end with the stream's end
}

// begun stands for the start of a span that was reached.
const begun = math.MaxInt

// endSpan is called where a block is full, or the start of the span was reached. It reports whether the span ends.
func (c *compressor) endSpan() bool {
	if c.from != begun {
		c.blocks.clear()
		if c.pos > c.from {
			c.out.err = ErrCut
		}
		if c.pos >= c.from {
			c.from, c.start = begun, c.pos
		}
		return c.out.err != nil
	}
	c.endBlock(false)
	return (c.pos >= c.until || c.work < c.enough) && (c.open || c.pos < len(c.data))
}

// finish ends the stream's last block.
func (c *compressor) finish() {
	if c.open || c.from != begun {
		if c.out.err == nil {
			c.out.err = ErrCut
		}
		return
	}
	c.endBlock(true)
}

// rest writes the whole bytes, and returns the bits that are left.
func (b *bitWriter) rest() byte {
	for ; b.n >= 8; b.n -= 8 {
		b.buf = append(b.buf, byte(b.bits))
		b.bits >>= 8
	}
	b.flush(0)
	return byte(b.bits) | 1<<b.n
}

// appender is the end of a byte string.
type appender struct{ b []byte }

func (a *appender) Write(p []byte) (int, error) {
	a.b = append(a.b, p...)
	return len(p), nil
}
