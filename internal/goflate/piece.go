package goflate

import (
	"errors"
	"math/bits"
)

// PieceAlign is what the offsets of the data of pieces are multiples of.
const PieceAlign = windowSize

// ErrCut is the error of a piece that cannot be made: its first block does not start where a match or a literal does,
// or its last one needs more data.
var ErrCut = errors.New("deflate: a piece does not begin or end with a block")

// Piece is a part of a deflate stream of a level from 2 to 9, which is made without what comes before, but for some
// context. It starts and ends with a block. See AppendFast for level 1.
type Piece struct {
	Level   int
	Data    []byte // contents: the context, the piece, and 512 bytes behind it or up to the stream's end
	Context int    // bytes. Data begins in the stream at a multiple of PieceAlign
	Last    bool   // the stream ends with Data
	// Until is how many bytes behind the context the piece ends; if no block does there, with the next that does.
	// If it is larger than Data and Last is set, the piece ends with the stream.
	Until int
	// Lead has the bits before the piece in its first byte, and a 1 above them; 1 is none.
	Lead byte
	// Work bounds how many candidates for matches are looked at. With more than Enough the piece ends with the block.
	Work, Enough int
}

// span is the part of the data that is written. The zero value is all of it.
type span struct {
	base int // of the window, in the data

	from   int // where the first block starts; 0: it was reached
	until  int // the last block ends here or later; 0: nowhere
	enough int // or when there was more work than this
	size   int // a block that ends with the stream is not the last
}

// errEnd ends the encoder with the span.
var errEnd = errors.New("deflate: the piece ends")

// Append appends the whole bytes of the piece to dst. It returns how many bytes of contents the piece has, and the bits
// that are left as the lead of what comes next. Errors are ErrCut and ErrWork. Safe for concurrent use.
func (p *Piece) Append(dst []byte) (out []byte, used int, tail byte, err error) {
	if p.Level <= BestSpeed || p.Level > BestCompression || p.Lead == 0 || p.Context > len(p.Data) {
		panic("goflate: piece out of bounds")
	}
	fw := compressorOf(p.Level)
	to := appender{dst}
	fw.Reset(&to)
	d := &fw.d
	defer release(fw, p.Level)
	d.work = 0
	d.span = span{from: p.Context, enough: p.Enough}
	if p.Last {
		d.size = len(p.Data)
	}
	d.until = p.Context + p.Until
	d.w.nbits = uint(bits.Len8(p.Lead)) - 1
	d.w.bits = uint64(p.Lead) &^ (1 << d.w.nbits)
	err = fw.writeWithin(p.Data, p.Work)
	if err == nil && p.Last {
		err = fw.Close()
	} else if err == nil {
		d.step(d) // what was written last
		err = d.err
	}
	used = len(p.Data) - p.Context
	switch {
	case errors.Is(err, errEnd):
		used = d.base + d.blockStart - p.Context
	case err != nil:
		return to.b, 0, 0, err
	case !p.Last || d.from > 0:
		return to.b, 0, 0, ErrCut
	}
	to.b = append(to.b, d.w.bytes[:d.w.nbytes]...)
	for ; d.w.nbits >= 8; d.w.nbits -= 8 {
		to.b = append(to.b, byte(d.w.bits))
		d.w.bits >>= 8
	}
	return to.b, used, byte(d.w.bits) | 1<<d.w.nbits, nil
}

// begin is called before the span, where a block is full or the span begins.
func (d *compressor) begin(index int) error {
	at := d.base + index
	if at > d.from {
		return ErrCut
	}
	if at == d.from {
		d.from, d.blockStart = 0, index
	}
	return nil
}

// ends reports whether the span ends with a block.
func (d *compressor) ends(index int) bool {
	at := d.base + index
	return d.until > 0 && (at >= d.until || d.work > d.enough) && at != d.size
}

// appender is the end of a byte string.
type appender struct{ b []byte }

func (a *appender) Write(p []byte) (int, error) {
	a.b = append(a.b, p...)
	return len(p), nil
}
