package transform

import (
	"bytes"
	"io"
	"slices"

	"github.com/klauspost/compress/zlib"

	"snapfs/chunkstore/internal/corrupt"
	"snapfs/internal/goflate"
)

// Codec is the codec of a transform run: bytes that are stored as other bytes, from which they can be
// made again exactly. It is recorded in manifests.
type Codec uint8

const (
	None   Codec = 0
	GoZlib Codec = 1 // a zlib stream as Go's linker writes it, stored inflated
)

// Bounds of what is inflated, at write time and when a manifest is read.
const (
	MaxInflated     = 64 << 20
	maxInflateRatio = 64
	minDeflated     = 512 // a shorter stream is not worth a run of its own
)

// Fits reports whether a run of outLen bytes made from innerLen bytes is within the bounds.
// A stream longer than its contents is not worth a run, so it is none.
func Fits(outLen, innerLen int64) bool {
	return minDeflated <= outLen && outLen <= innerLen && innerLen <= MaxInflated && innerLen <= outLen*maxInflateRatio
}

// Undo appends to dst the outLen bytes of a transform run, made from its inner bytes. An unknown codec,
// lengths out of bounds and any other length than outLen are errors of class corrupt.Err.
func (t Codec) Undo(dst, inner []byte, outLen int64) ([]byte, error) {
	if t != GoZlib || !Fits(outLen, int64(len(inner))) {
		return dst, corrupt.Errorf("transform %d of %d to %d bytes", t, len(inner), outLen)
	}
	at := len(dst)
	out := limitedBuffer{b: slices.Grow(dst, int(outLen)), max: at + int(outLen)}
	if err := goflate.Zlib(&out, inner); err != nil || len(out.b) != out.max {
		return dst, corrupt.Errorf("transform %d gives %d or more of %d bytes", t, len(out.b)-at, outLen)
	}
	return out.b, nil
}

type limitedBuffer struct {
	b   []byte
	max int
}

// Write fails with io.ErrShortWrite when more than max bytes come together.
func (w *limitedBuffer) Write(p []byte) (int, error) {
	n := min(len(p), w.max-len(w.b))
	w.b = append(w.b, p[:n]...)
	if n < len(p) {
		return n, io.ErrShortWrite
	}
	return n, nil
}

// inflate gives the inner bytes of a zlib stream that claims to hold claimed bytes, if Undo makes
// exactly raw from them. Memory is bounded by the claim, which is checked first.
func inflate(raw []byte, claimed uint64) ([]byte, bool) {
	if claimed > MaxInflated || !Fits(int64(len(raw)), int64(claimed)) {
		return nil, false
	}
	r, err := zlib.NewReader(bytes.NewReader(raw))
	if err != nil {
		return nil, false
	}
	inner := make([]byte, claimed)
	if _, err := io.ReadFull(r, inner); err != nil {
		return nil, false
	}
	// Whatever raw holds besides this stream makes the comparison fail.
	same := equalWriter(raw)
	if err := goflate.Zlib(&same, inner); err != nil || len(same) != 0 {
		return nil, false
	}
	return inner, true
}

// equalWriter is what is expected to be written; other bytes are an error.
type equalWriter []byte

func (w *equalWriter) Write(p []byte) (int, error) {
	if !bytes.HasPrefix(*w, p) {
		return 0, io.ErrShortWrite
	}
	*w = (*w)[len(p):]
	return len(p), nil
}
