//go:build !cgo

package frame

import (
	"sync"

	"github.com/klauspost/compress/zstd"
)

// An encoder finds matches in a dictionary only as far as its hash tables hold it; beyond, it silently finds none
// (measured with klauspost/compress v1.20.3: fastest reaches 192 KiB of noise, default a little less than 1 MiB, better
// and best 4 MiB). The tail of a longer dictionary is used: offsets count from the end, so a decoder needs not know.
const (
	quickDictMax  = 192 << 10
	betterDictMax = 3 << 20
)

// dictMax is how many bytes of dictionary an encoder of this level makes use of.
func (l Level) dictMax() int {
	if l == Quick {
		return quickDictMax
	}
	return betterDictMax
}

// plain is the library's level for frames without a dictionary.
func (l Level) plain() zstd.EncoderLevel {
	switch l {
	case Quick:
		return zstd.SpeedDefault
	case Better:
		return zstd.SpeedBetterCompression
	default:
		return zstd.SpeedBestCompression
	}
}

// delta is the library's level for frames with a dictionary. Setting up the tables for a dictionary costs more
// than encoding a small file, and least by far at the fastest level, for 1 % more bytes.
func (l Level) delta() zstd.EncoderLevel {
	if l == Quick {
		return zstd.SpeedFastest
	}
	return l.plain()
}

// library is klauspost/compress. An encoder with a dictionary holds up to 5 (quick), 17 (better) or 80 MB (best) and
// its last dictionary, given back by the garbage collector when idle.
type library struct {
	plain  [zstd.SpeedBestCompression + 1]sync.Pool // of encoders, by level
	deltas [zstd.SpeedBestCompression + 1]sync.Pool // of encoders with a dictionary, by level
	dec    sync.Pool
}

func encoder(pool *sync.Pool, l zstd.EncoderLevel, opts ...zstd.EOption) *zstd.Encoder {
	if e, ok := pool.Get().(*zstd.Encoder); ok {
		return e
	}
	e, err := zstd.NewWriter(nil, append([]zstd.EOption{
		zstd.WithEncoderLevel(l), zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false),
		zstd.WithWindowSize(window), zstd.WithSingleSegment(true), zstd.WithZeroFrames(true),
	}, opts...)...)
	if err != nil {
		panic(err) // constant options
	}
	return e
}

func (c *library) decoder() *zstd.Decoder {
	if d, ok := c.dec.Get().(*zstd.Decoder); ok {
		return d
	}
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		panic(err) // constant options
	}
	return d
}

// compress appends to dst the frame of src, with its magic number.
func (c *library) compress(dst, src, dict []byte, l Level, _ use) []byte {
	if len(dict) > 0 {
		return c.delta(dst, src, dict, l)
	}
	pool := &c.plain[l.plain()]
	e := encoder(pool, l.plain())
	defer pool.Put(e)
	return e.EncodeAll(src, dst)
}

// decompress decodes a frame into dst, which has the announced length.
func (c *library) decompress(dst, frame, dict []byte) (int, error) {
	d := c.decoder()
	defer c.dec.Put(d)
	if len(dict) > 0 {
		if err := d.ResetWithOptions(nil, zstd.WithDecoderDictRaw(0, dict)); err != nil {
			return 0, err
		}
		defer func() {
			// Only deletes; it cannot fail.
			_ = d.ResetWithOptions(nil, zstd.WithDecoderDictDelete())
		}()
	}
	out, err := d.DecodeAll(frame, dst[:0:len(dst)])
	return len(out), err
}

// streamedMax is the longest input that an encoder at any level takes as one block.
const streamedMax = 64<<10 - 1

// delta appends to dst the frame of src, with its magic number. The library keeps one set of tables for streams
// and one for EncodeAll, and sets up the former at each change of the dictionary. So what fits one block is
// written as a stream, which gives the same frame for half the work.
func (c *library) delta(dst, src, dict []byte, l Level) []byte {
	zl := l.delta()
	pool := &c.deltas[zl]
	e := encoder(pool, zl, zstd.WithEncoderDictRaw(0, []byte(Magic)))
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
