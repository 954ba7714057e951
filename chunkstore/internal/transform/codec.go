package transform

import (
	"slices"
	"strconv"

	"snapfs/chunkstore/internal/corrupt"
	"snapfs/internal/goflate"
)

// Codec is the codec of a transform run: bytes that are stored as other bytes, from which they can be made again
// exactly. It is recorded in manifests.
type Codec uint8

// Codecs. From looseFirst to looseLast they are loose objects of git: looseFirst + 16 * kind + level.
const (
	None   Codec = 0
	GoZlib Codec = 1 // a zlib stream as Go's linker writes it, stored inflated
	Recipe Codec = 2 // any number of streams and what lies between, see recipe.go
	// Deflate is a single stream of which parts are made alone. Undo does not know it; the run has Pieces.
	Deflate Codec = 3

	looseFirst Codec = 64
	looseLast  Codec = 127
	looseLevel Codec = 0x0f
)

// Bounds of what is inflated, at write time and when a manifest is read.
const (
	MaxInflated     = 64 << 20
	maxInflateRatio = 64
	minSection      = 512 // a shorter section is not worth a run of its own
	minRun          = 48  // nor is any other run that is shorter than this
)

// Fits reports whether a run of outLen bytes made from innerLen bytes is within the bounds. A stream longer than its
// contents is not worth a run, so it is none.
func (t Codec) Fits(outLen, innerLen int64) bool {
	least := int64(minRun)
	if t == GoZlib {
		least = minSection
	}
	return least <= outLen && outLen <= innerLen && innerLen <= MaxInflated && innerLen <= outLen*maxInflateRatio
}

// Undo appends to dst the outLen bytes of a transform run, made from its inner bytes. An unknown codec, lengths out of
// bounds and any other length than outLen are errors of class corrupt.Err.
func (t Codec) Undo(dst, inner []byte, outLen int64) ([]byte, error) {
	if !t.Fits(outLen, int64(len(inner))) {
		return dst, corrupt.Errorf("transform %d of %d to %d bytes", t, len(inner), outLen)
	}
	at := len(dst)
	out := limitedBuffer{b: slices.Grow(dst, int(outLen)), max: at + int(outLen)}
	var err error
	switch {
	case t == GoZlib:
		err = goflate.Zlib(&out, inner)
	case t == Recipe:
		out.b, err = cook(dst, inner, outLen)
	case t.looseEncoder().Valid():
		head := t.looseHead(len(inner))
		err = t.looseEncoder().deflate(&out, slices.Concat(head, inner), anyWork)
	default:
		return dst, corrupt.Errorf("unknown transform %d", t)
	}
	if err != nil || len(out.b) != out.max {
		return dst, corrupt.Errorf("transform %d gives %d or more of %d bytes", t, len(out.b)-at, outLen)
	}
	return out.b, nil
}

// looseKinds are the types of git's objects, by their numbers in codecs.
var looseKinds = [...]string{"blob ", "tree ", "commit ", "tag "}

// looseCodec is the codec of a loose object.
func looseCodec(kind, level int) Codec { return looseFirst + Codec(kind)<<4 + Codec(level) }

// looseEncoder is the encoder of the loose objects of a codec; not valid if it is not one of them.
func (t Codec) looseEncoder() encoder {
	if t < looseFirst || t > looseLast {
		return encoder{}
	}
	e := zlibWith(int(t&looseLevel), 8)
	e.wrap = zlibFrame
	return e
}

// looseHead is what git writes before the contents of an object.
func (t Codec) looseHead(n int) []byte {
	head := append([]byte(nil), looseKinds[t>>4&3]...)
	return append(strconv.AppendInt(head, int64(n), 10), 0)
}
