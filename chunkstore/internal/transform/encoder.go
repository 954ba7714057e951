package transform

import (
	"bytes"
	"encoding/binary"
	"hash/adler32"
	"hash/crc32"
	"io"
	"math"

	"snapfs/chunkstore/internal/corrupt"
	"snapfs/internal/goflate"
	"snapfs/internal/zdeflate"
)

// wrapper is what surrounds a deflate stream and can be computed.
type wrapper uint8

const (
	bare       wrapper = iota // nothing (RFC 1951)
	zlibFrame                 // header and checksum of RFC 1950
	gzipFooter                // CRC-32 and length behind it (RFC 1952); the header is not computed
	imageData                 // as zlibFrame, in IDAT chunks of PNG, of equal length but the last
)

// encoder makes one particular deflate stream out of its contents. It is comparable.
type encoder struct {
	zdeflate.Params

	golang bool // the compressor of Go's compress/flate, of which only the level is a parameter
	wrap   wrapper
}

// Bits of an encoder's first byte. The second byte has the memory level, and from bit 4 on the window's bits less 9;
// for compressors of Go it is 0.
const (
	encLevel    = 0x0f // 1 to 9
	encFiltered = 0x10
	encGo       = 0x20
	encWrapper  = 6 // shift
)

func (e encoder) append(b []byte) []byte {
	first := byte(e.Level) | byte(e.wrap)<<encWrapper
	if e.golang {
		return append(b, first|encGo, 0)
	}
	if e.Strategy == zdeflate.Filtered {
		first |= encFiltered
	}
	return append(b, first, byte(e.MemLevel)|byte(e.WindowBits-9)<<4)
}

func parseEncoder(first, second byte) (encoder, error) {
	e := encoder{wrap: wrapper(first >> encWrapper), golang: first&encGo != 0}
	e.Level = int(first & encLevel)
	e.MemLevel, e.WindowBits = int(second&0x0f), int(second>>4)+9
	if first&encFiltered != 0 {
		e.Strategy = zdeflate.Filtered
	}
	if e.golang {
		if second != 0 || first&encFiltered != 0 {
			return e, corrupt.Errorf("encoder %x %x", first, second)
		}
		e.Params = goParams(e.Level)
	}
	if !e.Valid() {
		return e, corrupt.Errorf("encoder %x %x", first, second)
	}
	return e, nil
}

// goParams are the parameters of a compressor of Go; those other than the level stand for its zlib header.
func goParams(level int) zdeflate.Params {
	return zdeflate.Params{Level: level, MemLevel: 8, WindowBits: 15}
}

// deflate writes the stream with its wrapper, except imageData, for which it writes that of zlib. Its errors are
// those of w, zdeflate.ErrWork and goflate.ErrWork.
func (e encoder) deflate(w io.Writer, inner []byte, work int) error {
	if e.wrap == zlibFrame || e.wrap == imageData {
		h := e.Header()
		if _, err := w.Write(h[:]); err != nil {
			return err //nolint:wrapcheck // the caller's own
		}
	}
	var err error
	if e.golang {
		err = goflate.DeflateWithin(w, inner, e.Level, work)
	} else {
		err = zdeflate.DeflateWithin(w, inner, e.Params, work)
	}
	if err != nil {
		return err
	}
	var foot []byte
	switch e.wrap {
	case bare:
		return nil
	case gzipFooter:
		foot = binary.LittleEndian.AppendUint32(nil, crc32.ChecksumIEEE(inner))
		foot = binary.LittleEndian.AppendUint32(foot, uint32(len(inner)))
	default:
		foot = binary.BigEndian.AppendUint32(nil, adler32.Checksum(inner))
	}
	_, err = w.Write(foot)
	return err //nolint:wrapcheck // the caller's own
}

// makes reports whether the encoder makes exactly raw, with a bounded amount of work: every reader has it again. A long
// stream is divided into pieces, if it can be.
func (e encoder) makes(raw, inner []byte) (pieces *Pieces, ok bool) {
	work := workFor(len(inner))
	if len(inner) >= minPieced && e.wrap != imageData {
		if pieces := e.divided(raw, inner); pieces != nil {
			return pieces, true
		}
		work = min(work, 2*pieceWork)
	}
	same := equalWriter(raw)
	return nil, e.deflate(&same, inner, work) == nil && len(same) == 0
}

// workFor is the work that the encoder of n bytes may have: for each byte more than ordinary data takes, but of long
// streams, of which most take a fifth of that, no more than takes a second.
func workFor(n int) int {
	const perByte, least, most = 64, 1 << 16, 128 << 20
	return min(perByte*n+least, most)
}

// divided divides a stream with its wrapper, which is not verified: it is copied.
func (e encoder) divided(raw, inner []byte) *Pieces {
	head, foot := 0, 0
	switch e.wrap {
	case zlibFrame:
		head, foot = 2, 4
	case gzipFooter:
		foot = 8
	}
	end := len(raw) - foot
	if end <= head {
		return nil
	}
	p := divide(e, raw[head:end], inner)
	if p == nil {
		return nil
	}
	p.wrapped(raw[:head], raw[end:])
	if !p.make(raw, inner) {
		return nil
	}
	return p
}

// anyWork does not bound the work of an encoder: what is stored was within the bounds.
const anyWork = math.MaxInt

// equalWriter is what is expected to be written; other bytes are an error.
type equalWriter []byte

func (w *equalWriter) Write(p []byte) (int, error) {
	if !bytes.HasPrefix(*w, p) {
		return 0, io.ErrShortWrite
	}
	*w = (*w)[len(p):]
	return len(p), nil
}

// limitedBuffer takes up to max bytes.
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
