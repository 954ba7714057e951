package chunkstore

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"slices"

	"github.com/klauspost/compress/zlib"

	"snapfs/internal/goflate"
)

// transform is the codec of a transform run: bytes that are stored as other bytes, from which they can be
// made again exactly. It is recorded in manifests.
type transform uint8

const (
	transformNone   transform = 0
	transformGoZlib transform = 1 // a zlib stream as Go's linker writes it, stored inflated
)

// Bounds of what is inflated, at write time and when a manifest is read.
const (
	maxInflated     = 64 << 20
	maxInflateRatio = 64
	minDeflated     = 512 // a shorter stream is not worth a run of its own
)

// transformFits says whether a run of outLen bytes made from innerLen bytes is within the bounds.
// A stream longer than its contents is not worth a run, so it is none.
func transformFits(outLen, innerLen int64) bool {
	return minDeflated <= outLen && outLen <= innerLen && innerLen <= maxInflated && innerLen <= outLen*maxInflateRatio
}

// undo appends to dst the outLen bytes of a transform run, made from its inner bytes. An unknown codec,
// lengths out of bounds and any other length than outLen are errors of class ErrCorrupt.
func (t transform) undo(dst, inner []byte, outLen int64) ([]byte, error) {
	if t != transformGoZlib || !transformFits(outLen, int64(len(inner))) {
		return dst, fmt.Errorf("%w: transform %d of %d to %d bytes", ErrCorrupt, t, len(inner), outLen)
	}
	at := len(dst)
	out := limitedBuffer{b: slices.Grow(dst, int(outLen)), max: at + int(outLen)}
	if err := goflate.Zlib(&out, inner); err != nil || len(out.b) != out.max {
		return dst, fmt.Errorf("%w: transform %d gives %d or more of %d bytes", ErrCorrupt, t, len(out.b)-at, outLen)
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

// inflate gives the inner bytes of a zlib stream that claims to hold claimed bytes, if undo makes
// exactly raw from them. Memory is bounded by the claim, which is checked first.
func inflate(raw []byte, claimed uint64) ([]byte, bool) {
	if claimed > maxInflated || !transformFits(int64(len(raw)), int64(claimed)) {
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

// elfHead is how much of a file is looked at to find an ELF section table. Go's linker puts it right
// behind the program headers.
const elfHead = 8 << 10

// section is a part of an ELF file that may hold a compressed debug section.
type section struct {
	off, size int64
	chdr      int // size of its compression header; 0: it starts with "ZLIB" and a size, if compressed at all
	order     binary.ByteOrder
}

// elfSections lists sections that may be transformed, in order and not overlapping, from a file's first
// bytes. Anything unexpected gives none: it only costs compression.
func elfSections(head []byte, size int64) []section {
	const (
		progbits   = 1      // SHT_PROGBITS
		alloc      = 1 << 1 // SHF_ALLOC
		compressed = 1 << 11
		chdr32     = 12
		chdr64     = 24
	)
	if len(head) < 64 || !bytes.HasPrefix(head, []byte("\x7fELF")) {
		return nil
	}
	var order binary.ByteOrder = binary.LittleEndian
	if head[5] == 2 {
		order = binary.BigEndian
	}
	wide := head[4] == 2
	var tableOff uint64
	var entry, count int
	if wide {
		tableOff = order.Uint64(head[40:])
		entry, count = int(order.Uint16(head[58:])), int(order.Uint16(head[60:]))
	} else {
		tableOff = uint64(order.Uint32(head[32:]))
		entry, count = int(order.Uint16(head[46:])), int(order.Uint16(head[48:]))
	}
	if entry < 40 || wide && entry < 64 || tableOff > uint64(len(head)) {
		return nil
	}
	var out []section
	for table := head[tableOff:]; count > 0 && len(table) >= entry; count-- {
		h := table[:entry]
		table = table[entry:]
		var flags, off, length uint64
		s := section{order: order}
		if wide {
			flags, off, length = order.Uint64(h[8:]), order.Uint64(h[24:]), order.Uint64(h[32:])
		} else {
			flags, off, length = uint64(order.Uint32(h[8:])), uint64(order.Uint32(h[16:])), uint64(order.Uint32(h[20:]))
		}
		if order.Uint32(h[4:]) != progbits || flags&alloc != 0 || length < minDeflated || length > uint64(size) || off > uint64(size)-length {
			continue
		}
		if flags&compressed != 0 {
			s.chdr = chdr32
			if wide {
				s.chdr = chdr64
			}
		}
		s.off, s.size = int64(off), int64(length)
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b section) int { return cmp.Compare(a.off, b.off) })
	end := int64(len(head))
	return slices.DeleteFunc(out, func(s section) bool {
		if s.off < end {
			return true
		}
		end = s.off + s.size
		return false
	})
}

// zlibHeaderLen is the length of the older form's header: "ZLIB" and the size, big-endian.
const zlibHeaderLen = 12

// stream splits a section's bytes: how many to leave as they are, and the inflated size of the zlib
// stream behind them.
func (s section) stream(b []byte) (skip int, inflated uint64, ok bool) {
	const typeZlib = 1 // ELFCOMPRESS_ZLIB
	switch {
	case s.chdr == 0:
		if len(b) < zlibHeaderLen || !bytes.HasPrefix(b, []byte("ZLIB")) {
			return 0, 0, false
		}
		return zlibHeaderLen, binary.BigEndian.Uint64(b[4:]), true
	case len(b) < s.chdr || s.order.Uint32(b) != typeZlib:
		return 0, 0, false
	case s.chdr == 24:
		return s.chdr, s.order.Uint64(b[8:]), true
	default:
		return s.chdr, uint64(s.order.Uint32(b[4:])), true
	}
}
