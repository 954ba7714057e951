package transform

import (
	"bytes"
	"encoding/binary"
)

// zipMagic begins a zip file with an entry: wheels, Java archives, Android packages, zips of Go modules.
const zipMagic = "PK\x03\x04"

// zipFormat is that of zip files, whose entries are read in order of their local headers, without the directory at the
// end.
type zipFormat struct {
	failed int // entries that were inflated in vain
}

func (f *zipFormat) next(b []byte, _ bool, g *guesser) (piece, verdict) {
	const (
		fixed      = 30
		encrypted  = 1 << 0
		descriptor = 1 << 3 // lengths and checksum are behind the data
		deflated   = 8
		unknown    = 1<<32 - 1 // the length is in an extra field
	)
	skip := zipDescriptor(b)
	if len(b) < skip+fixed {
		return piece{}, more
	}
	h := b[skip:]
	if !bytes.HasPrefix(h, []byte(zipMagic)) {
		return piece{}, stop
	}
	le := binary.LittleEndian
	flags, method := le.Uint16(h[6:]), le.Uint16(h[8:])
	packed, size := le.Uint32(h[18:]), le.Uint32(h[22:])
	skip += fixed + int(le.Uint16(h[26:])) + int(le.Uint16(h[28:]))
	if flags&encrypted != 0 || method != deflated {
		if flags&descriptor != 0 && packed == 0 && size == 0 && method == 0 {
			return piece{skip: int64(skip)}, found // a directory of Go's
		}
		if flags&descriptor != 0 || packed == unknown {
			return piece{}, stop
		}
		return piece{skip: int64(skip) + int64(packed)}, found
	}
	if len(b) < skip {
		return piece{}, more
	}
	claimed := int(size)
	if flags&descriptor != 0 || size == unknown {
		claimed = -1
	}
	inner, used, err := inflate(b[skip:], claimed)
	if err == errShort { //nolint:errorlint // never wrapped
		return piece{}, more
	}
	if err != nil {
		// Entries that lie about their length may all go on to the same end, with good ones between them. Inflating it
		// for each takes hours.
		if claimed <= maxStream {
			f.failed++
		}
		if claimed < 0 || packed == unknown || f.failed >= maxMisses {
			return piece{}, stop
		}
		return piece{skip: int64(skip) + int64(packed)}, found
	}
	e, parts, ok := g.find(zipHint(flags), bare, 15, b[skip:skip+used], inner)
	if !ok {
		return piece{skip: int64(skip + used)}, found
	}
	return piece{skip: int64(skip), raw: used, enc: e, inner: inner, parts: parts, file: true}, found
}

// zipDescriptor is the length of the data descriptor at the start of b, 0 if there is none. It is only looked for with
// its signature, which is optional but usual, and before another header.
func zipDescriptor(b []byte) int {
	const short, long = 16, 24
	if !bytes.HasPrefix(b, []byte("PK\x07\x08")) {
		return 0
	}
	if len(b) >= long+2 && string(b[long:long+2]) == "PK" && string(b[short:short+2]) != "PK" {
		return long
	}
	return short
}

// zipHint gives the encoders that the flags of an entry allow.
func zipHint(flags uint16) hint {
	switch flags >> 1 & 3 {
	case 1:
		return zipBest
	case 2, 3:
		return zipFast
	default:
		return zipUsual
	}
}
