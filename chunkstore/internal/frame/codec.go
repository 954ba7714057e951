package frame

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/klauspost/compress/zstd"

	"snapfs/chunkstore/internal/corrupt"
)

// Level trades time for bytes. Frames do not say theirs: every frame decodes alike.
type Level uint8

const (
	Quick  Level = iota // for what a caller waits for
	Better              // for what is done in the background
	Best                // for cold data that is stored anew
	levels
)

const (
	window   = 4 << 20 // reach back from the end of the input into the dictionary
	MaxInput = 1 << 20 // of a frame with a dictionary, so that both fit the window
)

// use is what a frame is of.
type use uint8

const (
	forPlain use = iota
	forDelta     // it is expected to equal its dictionary, nearly
)

// Magic starts every zstd frame (RFC 8878, 3.1.1). Stored frames leave it out: a delta of a one-line
// edit is some hundred bytes, of which four that are always the same would be a noticeable part.
const Magic = "\x28\xb5\x2f\xfd"

// Codec compresses and decompresses frames. Safe for concurrent use; at most one frame per processor is encoded at a
// time, and one at Best, which bounds its memory.
type Codec struct {
	turns chan struct{} // one token per encoder in use
	best  chan struct{} // one token for the encoder at Best
	lib   library
}

// NewCodec makes a codec.
func NewCodec() *Codec {
	return &Codec{turns: make(chan struct{}, runtime.GOMAXPROCS(0)), best: make(chan struct{}, 1)}
}

// Encode appends to dst the frame of src with dict as dictionary, which may be empty. src has at most MaxInput bytes,
// or without a dictionary 4 MiB. The frame of incompressible bytes is a little longer than they are: callers compare,
// and store them as they are.
func (c *Codec) Encode(dst, src, dict []byte, l Level) []byte {
	use := forPlain
	if len(dict) > 0 {
		use = forDelta
	}
	return c.encode(dst, src, dict, l, use)
}

// EncodeBlock is Encode for what has only parts in common with the dictionary.
func (c *Codec) EncodeBlock(dst, src, dict []byte, l Level) []byte {
	return c.encode(dst, src, dict, l, forPlain)
}

func (c *Codec) encode(dst, src, dict []byte, l Level, u use) []byte {
	if len(src) > MaxInput && (len(dict) > 0 || len(src) > window) {
		panic(fmt.Sprintf("frame of %d bytes", len(src)))
	}
	if l == Best {
		c.best <- struct{}{}
		defer func() { <-c.best }()
	}
	c.turns <- struct{}{}
	defer func() { <-c.turns }()
	at := len(dst)
	if len(src) == 0 {
		dict = nil
	}
	dst = c.lib.compress(dst, src, dict[max(0, len(dict)-l.dictMax()):], l, u)
	n := copy(dst[at:], dst[at+len(Magic):])
	return dst[:at+n]
}

var errFrame = errors.New("not one zstd frame")

// Decode appends to dst the contents of a frame, which was encoded with dict. Contents longer than
// maxLen, and frames that are not sound, are errors of class corrupt.Err. No more than maxLen bytes are
// allocated, even if the frame claims more.
func (c *Codec) Decode(dst, frame, dict []byte, maxLen int) ([]byte, error) {
	full := make([]byte, 0, len(Magic)+len(frame))
	full = append(append(full, Magic...), frame...)
	return c.DecodeWithMagic(dst, full, dict, maxLen)
}

// DecodeWithMagic is Decode for a frame with its magic number.
func (c *Codec) DecodeWithMagic(dst, full, dict []byte, maxLen int) ([]byte, error) {
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
