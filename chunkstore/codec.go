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

// An encoder finds matches in a dictionary only as far as its hash tables hold it; beyond, it silently
// finds none (measured with klauspost/compress v1.20.3: fastest reaches 192 KiB of noise, default a little less than 1 MiB,
// better and best 4 MiB). The tail of a longer dictionary is used: offsets count from the end, so a decoder
// needs not know.
const (
	codecWindow   = 4 << 20 // reach back from the end of the input into the dictionary
	quickDictMax  = 192 << 10
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

// plain is the library's level for frames without a dictionary.
func (l level) plain() zstd.EncoderLevel {
	switch l {
	case levelQuick:
		return zstd.SpeedDefault
	case levelBetter:
		return zstd.SpeedBetterCompression
	default:
		return zstd.SpeedBestCompression
	}
}

// delta is the library's level for frames with a dictionary. Setting up the tables for a dictionary costs more
// than encoding a small file, and least by far at the fastest level, for 1 % more bytes.
func (l level) delta() zstd.EncoderLevel {
	if l == levelQuick {
		return zstd.SpeedFastest
	}
	return l.plain()
}

// zstdMagic starts every zstd frame (RFC 8878, 3.1.1). Stored frames leave it out: a delta of a one-line
// edit is some hundred bytes, of which four that are always the same would be a noticeable part.
const zstdMagic = "\x28\xb5\x2f\xfd"

// codec compresses and decompresses frames: zstd without the magic number, without a content checksum
// (records of a pack carry one) and without a dictionary id (the record names the dictionary).
// Safe for concurrent use; at most one frame per CPU is encoded at a time, which bounds its memory:
// an encoder with a dictionary holds up to 5 (quick), 17 (better) or 80 MB (best) and its last
// dictionary, given back by the garbage collector when idle.
type codec struct {
	turns  chan struct{}                            // one token per encoder in use
	plain  [zstd.SpeedBestCompression + 1]sync.Pool // of encoders, by level
	deltas [zstd.SpeedBestCompression + 1]sync.Pool // of encoders with a dictionary, by level
	dec    sync.Pool
}

func newCodec() *codec {
	return &codec{turns: make(chan struct{}, runtime.GOMAXPROCS(0))}
}

func encoder(pool *sync.Pool, l zstd.EncoderLevel, opts ...zstd.EOption) *zstd.Encoder {
	if e, ok := pool.Get().(*zstd.Encoder); ok {
		return e
	}
	e, err := zstd.NewWriter(nil, append([]zstd.EOption{
		zstd.WithEncoderLevel(l), zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false),
		zstd.WithWindowSize(codecWindow), zstd.WithSingleSegment(true), zstd.WithZeroFrames(true),
	}, opts...)...)
	if err != nil {
		panic(err) // constant options
	}
	return e
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

// encode appends to dst the frame of src, at most maxFrameInput bytes, with dict (may be empty) as
// dictionary. The frame of incompressible bytes is a little longer than they are: the caller
// compares and stores them as they are.
func (c *codec) encode(dst, src, dict []byte, l level) []byte {
	if len(src) > maxFrameInput {
		panic(fmt.Sprintf("frame of %d bytes", len(src)))
	}
	c.turns <- struct{}{}
	defer func() { <-c.turns }()
	at := len(dst)
	if len(dict) > 0 && len(src) > 0 {
		dst = c.delta(dst, src, dict[max(0, len(dict)-l.dictMax()):], l)
	} else {
		pool := &c.plain[l.plain()]
		e := encoder(pool, l.plain())
		dst = e.EncodeAll(src, dst)
		pool.Put(e)
	}
	n := copy(dst[at:], dst[at+len(zstdMagic):])
	return dst[:at+n]
}

// streamedMax is the longest input that an encoder at any level takes as one block.
const streamedMax = 64<<10 - 1

// delta appends to dst the frame of src, with its magic number. The library keeps one set of tables for streams
// and one for EncodeAll, and sets up the former at each change of the dictionary. So what fits one block is
// written as a stream, which gives the same frame for half the work.
func (c *codec) delta(dst, src, dict []byte, l level) []byte {
	zl := l.delta()
	pool := &c.deltas[zl]
	e := encoder(pool, zl, zstd.WithEncoderDictRaw(0, []byte(zstdMagic)))
	out := appender{dst}
	err := e.ResetWithOptions(&out, zstd.WithEncoderDictRaw(0, dict))
	if err == nil && len(src) <= streamedMax {
		if _, err = e.Write(src); err == nil {
			err = e.Close()
		}
	} else if err == nil {
		out.b = e.EncodeAll(src, out.b)
	}
	if err != nil {
		panic(err) // a raw dictionary of this size is accepted, and appending does not fail
	}
	pool.Put(e)
	return out.b
}

// appender is a writer into memory.
type appender struct{ b []byte }

func (a *appender) Write(p []byte) (int, error) {
	a.b = append(a.b, p...)
	return len(p), nil
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
