package transform

import (
	"encoding/binary"
	"hash/crc32"

	"snapfs/internal/zdeflate"
)

// pngMagic begins a PNG image.
const pngMagic = "\x89PNG\r\n\x1a\n"

// pngFormat is that of PNG images: the rows of an image are one zlib stream in consecutive IDAT chunks.
type pngFormat struct {
	begun bool
	pays  func(inner []byte, raw int) bool // whether contents are worth storing in place of a stream of raw bytes
}

const (
	pngHead = 8 // length and type of a chunk
	pngFoot = 4 // its checksum

	// maxImage bounds the rows of an image. Large images gain little, and are read as a whole.
	maxImage = 2 << 20
)

func (f *pngFormat) next(b []byte, _ bool, g *guesser) (piece, verdict) {
	if !f.begun {
		f.begun = true
		return piece{skip: int64(len(pngMagic))}, found
	}
	if len(b) < pngHead {
		return piece{}, more
	}
	if string(b[4:8]) != "IDAT" {
		n := binary.BigEndian.Uint32(b)
		if n > maxHeld || string(b[4:8]) == "IEND" {
			return piece{}, stop
		}
		return piece{skip: pngHead + int64(n) + pngFoot}, found
	}
	data, chunk, used, v := imageChunks(b)
	if v != found {
		return piece{}, v
	}
	inner, n, list, windowBits, err := inflateZlib(data, -1)
	if err != nil || n != len(data) || len(inner) > maxImage || !f.pays(inner, used) {
		return piece{}, stop
	}
	e, _, ok := g.find(filteredToo(list), imageData, windowBits, data, inner)
	if !ok {
		return piece{}, stop
	}
	return piece{raw: used, enc: e, inner: inner, chunk: chunk}, found
}

// imageChunks joins the data of the IDAT chunks at the start of b. Their lengths must be equal, but for the last, which
// may be shorter, and the checksums right. It gives the length of their data, and that of the chunks.
func imageChunks(b []byte) (data []byte, chunk, used int, v verdict) {
	for ended := false; ; {
		h := b[used:]
		if len(h) < pngHead {
			return nil, 0, 0, more
		}
		if string(h[4:8]) != "IDAT" {
			return data, chunk, used, found
		}
		n := int(binary.BigEndian.Uint32(h))
		if used == 0 {
			chunk = n
		}
		if ended || n == 0 || n > chunk || n > maxHeld {
			return nil, 0, 0, stop
		}
		end := pngHead + n + pngFoot
		if len(h) < end {
			return nil, 0, 0, more
		}
		if crc32.ChecksumIEEE(h[4:end-pngFoot]) != binary.BigEndian.Uint32(h[end-pngFoot:]) {
			return nil, 0, 0, stop
		}
		data = append(data, h[pngHead:pngHead+n]...)
		ended = n < chunk
		used += end
	}
}

// filteredToo adds the strategy that most writers of PNG images use.
func filteredToo(list hint) hint {
	var all hint
	for _, e := range list {
		if e.golang {
			all = append(all, e)
			continue
		}
		f := e
		f.Strategy = zdeflate.Filtered
		all = append(all, f, e)
	}
	return all
}
