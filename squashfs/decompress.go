package squashfs

import (
	"errors"
	"fmt"
	"io"

	"github.com/anchore/go-lzo"
	"github.com/pierrec/lz4/v4"
)

// A decompressor unpacks one block from src into dst and returns its length. A block that does not fit is an error, so
// that len(dst) bounds the cost of a decompression bomb. Safe for concurrent use.
type decompressor func(dst, src []byte) (int, error)

var errTooLong = errors.New("block unpacks to more than it may")

// newDecompressor returns the decompressor for any compressor id of squashfs 4.0.
func newDecompressor(id uint16) (decompressor, error) {
	var d decompressor
	switch id {
	case compressorGzip:
		d = unpackZlib
	case compressorLzma:
		d = unpackLzma
	case compressorLzo:
		d = func(dst, src []byte) (int, error) { return lzo.Decompress(src, dst) }
	case compressorXz:
		d = unpackXz
	case compressorLz4:
		d = func(dst, src []byte) (int, error) { return lz4.UncompressBlock(src, dst) }
	case compressorZstd:
		d = unpackZstd
	default:
		return nil, fmt.Errorf("%w: compressor %d", ErrCorrupt, id)
	}
	return d.catchPanic, nil
}

// catchPanic turns a library's panic on damaged input into an error: goroutines that wait for the block must be woken.
func (d decompressor) catchPanic(dst, src []byte) (n int, err error) {
	defer func() {
		if r := recover(); r != nil {
			n, err = 0, fmt.Errorf("decompressor failed: %v", r)
		}
	}()
	n, err = d(dst, src)
	if err == nil && (n < 0 || n > len(dst)) {
		return 0, errTooLong
	}
	return n, err
}

// drain reads r into dst up to the end of r, where checksums are verified. Unlike io.ReadFull it distinguishes a short
// complete stream from a truncated one.
func drain(r io.Reader, dst []byte) (int, error) {
	n, spare := 0, [1]byte{}
	for {
		p := dst[n:]
		if len(p) == 0 {
			p = spare[:]
		}
		m, err := r.Read(p)
		if m > 0 && n == len(dst) {
			return n, errTooLong
		}
		n += m
		switch {
		case err == io.EOF: //nolint:errorlint // a wrapped io.EOF is not the end of the stream
			return n, nil
		case err != nil:
			return n, err
		}
	}
}
