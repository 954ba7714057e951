package chunkstore

import (
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// level is a trade of time for bytes, chosen by the ingest policy; it is not recorded, every frame decodes alike.
type level uint8

const (
	levelQuick  level = iota // someone waits
	levelBetter              // in the background
	levelBest                // repacking of cold data
	levels
)

// encoderLevels maps to the library's levels, for frames without and with a dictionary.
var encoderLevels = [levels]struct{ plain, dict zstd.EncoderLevel }{
	levelQuick:  {zstd.SpeedDefault, zstd.SpeedDefault},
	levelBetter: {zstd.SpeedBetterCompression, zstd.SpeedBetterCompression},
	levelBest:   {zstd.SpeedBestCompression, zstd.SpeedBestCompression},
}

// An encoder finds matches in a dictionary only as far as its hash tables hold it; beyond, it silently
// finds none (measured with klauspost/compress v1.20.3: the default level reaches a little less than 1 MiB,
// better and best reach 4 and fail at 8). The tail of a longer dictionary is used: offsets count from
// the end, so a decoder needs not know.
const (
	codecWindow   = 4 << 20 // reach back from the end of the input into the dictionary
	quickDictMax  = 768 << 10
	betterDictMax = 3 << 20

	// maxFrameInput is the longest input of one frame, so that input and dictionary fit the window.
	maxFrameInput = 1 << 20
)

// dictMax is how many bytes of dictionary an encoder of this level makes use of.
func (l level) dictMax() int {
	if l == levelQuick {
		return quickDictMax
	}
	return betterDictMax
}

// zstdMagic starts every zstd frame (RFC 8878, 3.1.1). Stored frames leave it out: a delta of a one-line
// edit is some hundred bytes, of which four that are always the same would be a noticeable part.
const zstdMagic = "\x28\xb5\x2f\xfd"

// codec compresses and decompresses frames: zstd without the magic number, without a content checksum
// (records of a pack carry one) and without a dictionary id (the record names the dictionary).
// Safe for concurrent use; at most one frame per CPU is encoded at a time, which bounds its memory:
// an encoder with a dictionary holds up to 12 (quick), 17 (better) or 80 MB (best), given back by the
// garbage collector when idle.
type codec struct {
	turns    chan struct{} // one token per encoder in use
	plain    [levels]sync.Pool
	withDict [levels]sync.Pool
	dec      sync.Pool
}

func newCodec() *codec {
	return &codec{turns: make(chan struct{}, runtime.GOMAXPROCS(0))}
}

func (c *codec) encoder(l level, dict bool) *zstd.Encoder {
	if !dict {
		if e, ok := c.plain[l].Get().(*zstd.Encoder); ok {
			return e
		}
		return newEncoder(encoderLevels[l].plain)
	}
	if e, ok := c.withDict[l].Get().(*zstd.Encoder); ok {
		return e
	}
	return newEncoder(encoderLevels[l].dict, zstd.WithEncoderDictRaw(0, []byte(zstdMagic)))
}

func (c *codec) decoder() *zstd.Decoder {
	if d, ok := c.dec.Get().(*zstd.Decoder); ok {
		return d
	}
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		panic(err) // constant options
	}
	return d
}

func newEncoder(l zstd.EncoderLevel, opts ...zstd.EOption) *zstd.Encoder {
	opts = append([]zstd.EOption{
		zstd.WithEncoderLevel(l), zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false),
		zstd.WithWindowSize(codecWindow), zstd.WithSingleSegment(true), zstd.WithZeroFrames(true),
	}, opts...)
	e, err := zstd.NewWriter(nil, opts...)
	if err != nil {
		panic(err) // constant options
	}
	return e
}

// encode appends to dst the frame of src, at most maxFrameInput bytes, with dict (may be empty) as
// dictionary. The frame of incompressible bytes is a little longer than they are: the caller
// compares and stores them as they are.
func (c *codec) encode(dst, src, dict []byte, l level) []byte {
	if len(src) > maxFrameInput {
		panic(fmt.Sprintf("frame of %d bytes", len(src)))
	}
	c.turns <- struct{}{}
	defer func() { <-c.turns }()
	e, pool := c.encoder(l, len(dict) > 0), &c.plain[l]
	if len(dict) > 0 {
		pool = &c.withDict[l]
		dict = dict[max(0, len(dict)-l.dictMax()):]
		if err := e.ResetWithOptions(nil, zstd.WithEncoderDictRaw(0, dict)); err != nil {
			panic(err) // a raw dictionary of this size is always accepted
		}
	}
	at := len(dst)
	dst = e.EncodeAll(src, dst)
	if len(dict) > 0 {
		// An idle encoder must not hold the caller's dictionary.
		if err := e.ResetWithOptions(nil, zstd.WithEncoderDictRaw(0, []byte(zstdMagic))); err != nil {
			panic(err)
		}
	}
	pool.Put(e)
	n := copy(dst[at:], dst[at+len(zstdMagic):])
	return dst[:at+n]
}

var errFrame = errors.New("not one zstd frame")

// decode appends to dst the contents of a frame, which was encoded with dict. Contents longer than
// maxLen, and frames that are not sound, are errors of class ErrCorrupt. No more than maxLen bytes are
// allocated whatever the frame claims.
func (c *codec) decode(dst, frame, dict []byte, maxLen int) ([]byte, error) {
	bad := func(err error) ([]byte, error) {
		return dst, fmt.Errorf("%w: zstd frame: %w", ErrCorrupt, err)
	}
	full := make([]byte, 0, len(zstdMagic)+len(frame))
	full = append(append(full, zstdMagic...), frame...)
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
	d := c.decoder()
	defer c.dec.Put(d)
	if len(dict) > 0 {
		if err := d.ResetWithOptions(nil, zstd.WithDecoderDictRaw(0, dict)); err != nil {
			return bad(err)
		}
		defer func() {
			// Only deletes; it cannot fail.
			_ = d.ResetWithOptions(nil, zstd.WithDecoderDictDelete())
		}()
	}
	at := len(dst)
	if cap(dst)-at < n {
		dst = append(make([]byte, 0, at+n), dst...)
	}
	out, err := d.DecodeAll(full, dst[:at:at+n])
	if err != nil {
		return bad(err)
	}
	if len(out) != at+n {
		return bad(errFrame)
	}
	return out, nil
}
