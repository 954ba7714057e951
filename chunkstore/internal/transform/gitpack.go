package transform

import (
	"bytes"
	"encoding/binary"
)

// packMagic begins a pack of git.
const packMagic = "PACK"

// packFormat is that of git's packs: objects, each a header and a zlib stream. The header tells the type and the length
// of the contents; a delta's also tells its base. Blobs and trees that are no deltas get bodies of their own.
type packFormat struct {
	begun bool
	left  uint32 // objects still to come
}

// Types of objects in packs. Others are commits and tags.
const (
	packTree     = 2
	packBlob     = 3
	packOffDelta = 6
	packRefDelta = 7
)

func (f *packFormat) next(b []byte, _ bool, g *guesser) (piece, verdict) {
	if !f.begun {
		const header = 12
		if len(b) < header {
			return piece{}, more
		}
		if v := binary.BigEndian.Uint32(b[4:]); !bytes.HasPrefix(b, []byte(packMagic)) || v != 2 && v != 3 {
			return piece{}, stop
		}
		f.begun, f.left = true, binary.BigEndian.Uint32(b[8:])
		return piece{skip: header}, found
	}
	if f.left == 0 {
		return piece{}, stop
	}
	kind, size, skip, v := packObject(b)
	if v != found {
		return piece{}, v
	}
	inner, used, list, windowBits, err := inflateZlib(b[skip:], size)
	if err == errShort { //nolint:errorlint // never wrapped
		return piece{}, more
	}
	if err != nil || len(inner) != size {
		return piece{}, stop
	}
	f.left--
	e, parts, ok := g.find(list, zlibFrame, windowBits, b[skip:skip+used], inner)
	if !ok {
		return piece{skip: int64(skip + used)}, found
	}
	const minTree = 2 << 10
	file := kind == packBlob || kind == packTree && size >= minTree
	return piece{skip: int64(skip), raw: used, enc: e, inner: inner, parts: parts, file: file}, found
}

// packObject reads the header of an object: its type, the length of its contents, and the length of the header.
func packObject(b []byte) (kind, size, n int, v verdict) {
	const longest, refLen, largest = 32, 20, 1 << 31
	short := more
	if len(b) >= longest+refLen {
		short = stop
	}
	if len(b) == 0 {
		return 0, 0, 0, short
	}
	kind, size = int(b[0]>>4&7), int(b[0]&15)
	n = 1
	for shift := 4; b[n-1]&0x80 != 0; shift += 7 {
		if n == len(b) || shift > 32 {
			return 0, 0, 0, short
		}
		size |= int(b[n]&0x7f) << shift
		n++
	}
	switch kind {
	case 0, 5:
		return 0, 0, 0, stop
	case packRefDelta:
		n += refLen
	case packOffDelta:
		for {
			if n++; n > len(b) || n > longest {
				return 0, 0, 0, short
			}
			if b[n-1]&0x80 == 0 {
				break
			}
		}
	}
	if n > len(b) {
		return 0, 0, 0, short
	}
	if size > largest {
		return 0, 0, 0, stop
	}
	return kind, size, n, found
}
