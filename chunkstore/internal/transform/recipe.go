package transform

import (
	"encoding/binary"
	"hash/crc32"
	"slices"

	"snapfs/chunkstore/internal/corrupt"
	"snapfs/internal/varint"
)

// The inner bytes of a run of codec Recipe are a recipe, and behind it the bodies of streams, which are chunks of their
// own, so that they are found again where the same bytes are a file:
//
//	uvarint   length of the rest of the recipe
//	steps, until it ends:
//	    uvarint length, bytes              to be copied
//	    2 bytes encoder
//	    uvarint length, bytes              of the stream's contents, the first of them
//	    uvarint length                     of the body, which has the others
//	    uvarint length                     wrapper imageData only: of the data of all IDAT chunks but the last
//
// All of the recipe and of the bodies is used.

// appendStream appends a step: bytes to be copied, and a stream whose contents are inline and a body.
func appendStream(b, literal []byte, e encoder, inline []byte, body, piece int) []byte {
	b = binary.AppendUvarint(b, uint64(len(literal)))
	b = append(b, literal...)
	b = e.append(b)
	b = binary.AppendUvarint(b, uint64(len(inline)))
	b = append(b, inline...)
	b = binary.AppendUvarint(b, uint64(body))
	if e.wrap == imageData {
		b = binary.AppendUvarint(b, uint64(piece))
	}
	return b
}

// cook appends to dst the bytes of a run, outLen at most.
func cook(dst, inner []byte, outLen int64) ([]byte, error) {
	out := limitedBuffer{b: slices.Grow(dst, int(outLen)), max: len(dst) + int(outLen)}
	p := varint.Parser{Rest: inner}
	recipe := varint.Parser{Rest: p.Bytes(p.Count(uint64(len(inner))))}
	bodies := p.Rest
	for !p.Bad && len(recipe.Rest) > 0 {
		literal := recipe.Bytes(recipe.Count(uint64(len(inner))))
		if _, err := out.Write(literal); err != nil {
			return dst, corrupt.Errorf("recipe for more than %d bytes", outLen)
		}
		if err := cookStream(&out, &recipe, &bodies); err != nil {
			return dst, err
		}
	}
	if p.Bad || recipe.Bad || len(bodies) > 0 {
		return dst, corrupt.Errorf("malformed recipe")
	}
	return out.b, nil
}

// cookStream makes the stream of a step.
func cookStream(out *limitedBuffer, recipe *varint.Parser, bodies *[]byte) error {
	e, err := parseEncoder(recipe.Byte(), recipe.Byte())
	if err != nil {
		return err
	}
	contents := recipe.Bytes(recipe.Count(uint64(len(recipe.Rest))))
	n := recipe.Count(uint64(len(*bodies)))
	piece := 0
	if e.wrap == imageData {
		piece = recipe.Count(MaxInflated)
	}
	if recipe.Bad || n > len(*bodies) || e.wrap == imageData && piece == 0 {
		return corrupt.Errorf("malformed recipe")
	}
	body := (*bodies)[:n:n]
	*bodies = (*bodies)[n:]
	if len(contents) == 0 {
		contents = body
	} else if n > 0 {
		contents = slices.Concat(contents, body)
	}
	at := len(out.b)
	if err := e.deflate(out, contents, anyWork); err != nil {
		return corrupt.Errorf("recipe for more than %d bytes", out.max)
	}
	if e.wrap != imageData {
		return nil
	}
	data := slices.Clone(out.b[at:])
	out.b = out.b[:at]
	if !writeImageData(out, data, piece) {
		return corrupt.Errorf("recipe for more than %d bytes", out.max)
	}
	return nil
}

// imageChunk is the length and type before the data of an IDAT chunk of n bytes.
func imageChunk(n int) [8]byte {
	h := [8]byte{4: 'I', 'D', 'A', 'T'}
	binary.BigEndian.PutUint32(h[:], uint32(n))
	return h
}

// writeImageData writes data in IDAT chunks of piece bytes.
func writeImageData(out *limitedBuffer, data []byte, piece int) bool {
	for len(data) > 0 {
		p := data[:min(piece, len(data))]
		data = data[len(p):]
		h := imageChunk(len(p))
		sum := crc32.Update(crc32.ChecksumIEEE(h[4:]), crc32.IEEETable, p)
		for _, b := range [][]byte{h[:], p, binary.BigEndian.AppendUint32(nil, sum)} {
			if _, err := out.Write(b); err != nil {
				return false
			}
		}
	}
	return true
}
