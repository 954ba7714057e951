package goflate

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/adler32"
	"io"
	"sync"
)

// zlibHeader is CMF and FLG of RFC 1950 for a 32 KiB window, "fastest algorithm", no dictionary.
var zlibHeader = [2]byte{0x78, 0x01}

var writers = sync.Pool{New: func() any {
	w, err := NewWriter(io.Discard, BestSpeed)
	if err != nil {
		panic(err) // a valid level
	}
	return w
}}

// Zlib writes the zlib stream of data, at level 1, to w. Its errors are those of w. Safe for concurrent use.
func Zlib(w io.Writer, data []byte) error {
	if _, err := w.Write(zlibHeader[:]); err != nil {
		return fmt.Errorf("write zlib header: %w", err)
	}
	fw := writers.Get().(*Writer)
	defer func() {
		fw.Reset(io.Discard) // an idle compressor must not hold w
		writers.Put(fw)
	}()
	fw.Reset(w)
	if _, err := fw.Write(data); err != nil {
		return fmt.Errorf("deflate: %w", err)
	}
	if err := fw.Close(); err != nil {
		return fmt.Errorf("deflate: %w", err)
	}
	if _, err := w.Write(binary.BigEndian.AppendUint32(nil, adler32.Checksum(data))); err != nil {
		return fmt.Errorf("write zlib checksum: %w", err)
	}
	return nil
}

// idle are compressors of levels 2 to 9 by level; writers has those of level 1.
var idle [BestCompression + 1]sync.Pool

// ErrWork is the error of a stream that takes more work than was allowed.
var ErrWork = errors.New("deflate: too much work")

// DeflateWithin writes data as the deflate stream of a level, 1 to 9, to w. Its errors are those of w, and ErrWork when
// more than work candidates for matches, and some for a window, were looked at. Safe for concurrent use.
func DeflateWithin(w io.Writer, data []byte, level, work int) error {
	if level < BestSpeed || level > BestCompression {
		panic("goflate: level out of bounds")
	}
	fw := compressorOf(level)
	defer release(fw, level)
	fw.Reset(w)
	fw.d.work = 0
	if err := fw.writeWithin(data, work); err != nil {
		return err
	}
	if err := fw.Close(); err != nil {
		return fmt.Errorf("deflate: %w", err)
	}
	return nil
}

// compressorOf takes an idle compressor of a level.
func compressorOf(level int) *Writer {
	pool := &idle[level]
	if level == BestSpeed {
		pool = &writers
	}
	fw, ok := pool.Get().(*Writer)
	if !ok {
		var err error
		if fw, err = NewWriter(io.Discard, level); err != nil {
			panic(err) // a valid level
		}
	}
	return fw
}

// release returns a compressor.
func release(fw *Writer, level int) {
	fw.Reset(io.Discard) // an idle compressor must not hold its writer
	if level == BestSpeed {
		writers.Put(fw)
	} else {
		idle[level].Put(fw)
	}
}

// writeWithin writes data with a bounded amount of work.
func (w *Writer) writeWithin(data []byte, work int) error {
	// Pieces of a window fill the compressor's memory as the whole does.
	for len(data) > 0 {
		n := min(windowSize, len(data))
		if _, err := w.Write(data[:n]); err != nil {
			return fmt.Errorf("deflate: %w", err)
		}
		if data = data[n:]; w.d.work > work {
			return ErrWork
		}
	}
	return nil
}
