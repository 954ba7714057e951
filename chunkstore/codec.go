package chunkstore

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/klauspost/compress/zstd"

	"snapfs/chunkstore/internal/corrupt"
)

// level is a trade of time for bytes, chosen by the ingest policy; it is not recorded, every frame decodes alike.
type level uint8

const (
	levelQuick  level = iota // someone waits
	levelBetter              // in the background
	levelBest                // repacking of cold data
	levels
)

// maxFrameInput is the longest input of one frame, so that input and dictionary fit the window.
const (
	codecWindow   = 4 << 20 // reach back from the end of the input into the dictionary
	maxFrameInput = 1 << 20
)

// zstdMagic starts every zstd frame (RFC 8878, 3.1.1). Stored frames leave it out: a delta of a one-line
// edit is some hundred bytes, of which four that are always the same would be a noticeable part.
const zstdMagic = "\x28\xb5\x2f\xfd"

// codec compresses and decompresses frames: zstd without the magic number, without a content checksum
// (records of a pack carry one) and without a dictionary id (the record names the dictionary).
// Safe for concurrent use; at most one frame per CPU is encoded at a time, and one at levelBest, which bounds its memory.
type codec struct {
	turns chan struct{} // one token per encoder in use
	best  chan struct{} // one token for the encoder at levelBest
	lib   library
}

func newCodec() *codec {
	return &codec{turns: make(chan struct{}, runtime.GOMAXPROCS(0)), best: make(chan struct{}, 1)}
}

// encode appends to dst the frame of src, at most maxFrameInput bytes, or codecWindow without one, with dict (may be
// empty) as dictionary. The frame of incompressible bytes is a little longer than they are: the caller
// compares and stores them as they are.
func (c *codec) encode(dst, src, dict []byte, l level) []byte {
	if len(src) > maxFrameInput && (len(dict) > 0 || len(src) > codecWindow) {
		panic(fmt.Sprintf("frame of %d bytes", len(src)))
	}
	if l == levelBest {
		c.best <- struct{}{}
		defer func() { <-c.best }()
	}
	c.turns <- struct{}{}
	defer func() { <-c.turns }()
	at := len(dst)
	if len(src) == 0 {
		dict = nil
	}
	dst = c.lib.compress(dst, src, dict[max(0, len(dict)-l.dictMax()):], l)
	n := copy(dst[at:], dst[at+len(zstdMagic):])
	return dst[:at+n]
}

var errFrame = errors.New("not one zstd frame")

// decode appends to dst the contents of a frame, which was encoded with dict. Contents longer than
// maxLen, and frames that are not sound, are errors of class corrupt.Err. No more than maxLen bytes are
// allocated whatever the frame claims.
func (c *codec) decode(dst, frame, dict []byte, maxLen int) ([]byte, error) {
	full := make([]byte, 0, len(zstdMagic)+len(frame))
	full = append(append(full, zstdMagic...), frame...)
	return c.decodeWhole(dst, full, dict, maxLen)
}

// decodeWhole is decode for a frame with its magic number.
func (c *codec) decodeWhole(dst, full, dict []byte, maxLen int) ([]byte, error) {
	bad := func(err error) ([]byte, error) {
		return dst, corrupt.Errorf("zstd frame: %w", err)
	}
	var h zstd.Header
	if err := h.Decode(full); err != nil {
		return bad(err)
	}
	// Further frames behind this one would be decoded as well: a content size that is met exactly excludes them.
	if h.Skippable || !h.HasFCS || h.DictionaryID != 0 {
		return bad(errFrame)
	}
	if h.FrameContentSize > uint64(max(maxLen, 0)) {
		return bad(zstd.ErrDecoderSizeExceeded)
	}
	n := int(h.FrameContentSize)
	at := len(dst)
	if cap(dst)-at < n {
		dst = append(make([]byte, 0, at+n), dst...)
	}
	got, err := c.lib.decompress(dst[at:at+n], full, dict)
	if err != nil {
		return bad(err)
	}
	if got != n {
		return bad(errFrame)
	}
	return dst[:at+n], nil
}
