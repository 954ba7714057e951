package transform

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"
)

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
		if order.Uint32(h[4:]) != progbits || flags&alloc != 0 ||
			length < minSection || length > uint64(size) || off > uint64(size)-length {
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

// promising reports by a section's first bytes whether it may hold a stream. Bytes too few to tell may.
func (s section) promising(b []byte) bool {
	if len(b) < 24 {
		return s.size <= MaxInflated
	}
	_, inflated, ok := s.stream(b)
	return ok && s.size <= MaxInflated && inflated <= MaxInflated
}
