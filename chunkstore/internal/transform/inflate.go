package transform

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"sync"

	"github.com/klauspost/compress/flate"
)

// inflater reads deflate streams.
type inflater struct {
	src bytes.Reader
	r   io.ReadCloser
}

var inflaters = sync.Pool{New: func() any {
	in := &inflater{}
	in.r = flate.NewReader(&in.src)
	return in
}}

var (
	errShort = errors.New("the stream goes on")
	errLarge = errors.New("the stream holds too much")
)

// firstInflated is how much memory a stream of unknown length gets at first, in bytes.
const firstInflated = 16 << 10

// inflate reads the deflate stream (RFC 1951) at the start of b, and returns its contents and how many bytes it has.
// claimed is how many bytes it says to hold, -1 unknown. Contents of more than claimed or maxStream bytes, or of too
// high a ratio, are errLarge; if b ends within the stream, errShort.
func inflate(b []byte, claimed int) ([]byte, int, error) {
	most := min(maxStream, len(b)*maxInflateRatio)
	if claimed > most {
		if claimed > maxStream {
			return nil, 0, errLarge
		}
		return nil, 0, errShort
	}
	if claimed >= 0 {
		most = claimed
	}
	in := inflaters.Get().(*inflater)
	defer func() {
		in.src.Reset(nil)
		inflaters.Put(in)
	}()
	in.src.Reset(b)
	if err := in.r.(flate.Resetter).Reset(&in.src, nil); err != nil {
		return nil, 0, err //nolint:wrapcheck // cannot happen
	}
	// What is not known may be little, and a run keeps the contents of many streams.
	size := max(claimed, min(most, 4*len(b), firstInflated), 0)
	// One byte more lets the reader find the end.
	out := make([]byte, 0, size+1)
	for {
		n, err := in.r.Read(out[len(out):cap(out)])
		out = out[:len(out)+n]
		switch {
		case len(out) > most:
			return nil, 0, errLarge
		case errors.Is(err, io.EOF):
			return out, len(b) - in.src.Len(), nil
		case errors.Is(err, io.ErrUnexpectedEOF):
			return nil, 0, errShort
		case err != nil:
			return nil, 0, err //nolint:wrapcheck // any error means that it is no stream
		}
		if len(out) == cap(out) {
			out = slices.Grow(out, min(len(out), most+1-len(out)))
		}
	}
}

// inflateZlib is inflate for a stream in the format of RFC 1950. It also returns the list of encoders that its header
// allows, and the bits of its window.
func inflateZlib(b []byte, claimed int) (inner []byte, used int, list hint, windowBits int, err error) {
	const head, foot = 2, 4
	if len(b) < head {
		return nil, 0, nil, 0, errShort
	}
	list, windowBits, ok := zlibHeader(b)
	if !ok {
		return nil, 0, nil, 0, errLarge
	}
	inner, used, err = inflate(b[head:], claimed)
	if used += head + foot; err == nil && used > len(b) {
		err = errShort
	}
	return inner, used, list, windowBits, err
}

// zlibHeader checks the header of RFC 1950, of which b has both bytes.
func zlibHeader(b []byte) (list hint, windowBits int, ok bool) {
	const deflate, dictionary = 8, 0x20
	windowBits = int(b[0]>>4) + 8
	if b[0]&0x0f != deflate || windowBits < 9 || windowBits > 15 || b[1]&dictionary != 0 ||
		(int(b[0])<<8|int(b[1]))%31 != 0 {
		return nil, 0, false
	}
	return zlibHints[b[1]>>6], windowBits, true
}
