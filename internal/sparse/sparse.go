// Package sparse writes files with holes.
package sparse

import (
	"bytes"
	"io"
)

// block is the least that is left out, in bytes.
const block = 4096

var zeros [block]byte

// Writer writes into an empty file, from its begin, and leaves out blocks of zeros. Callers must set the size of the file
// afterwards: zeros at the end are left out, too. Not safe for concurrent use.
type Writer struct {
	to  io.WriterAt
	off int64
}

// NewWriter gives a writer into to.
func NewWriter(to io.WriterAt) *Writer { return &Writer{to: to} }

// Write implements io.Writer.
func (w *Writer) Write(data []byte) (int, error) {
	done := 0
	for done < len(data) {
		n := written(data[done:])
		if n == 0 {
			n = min(block, len(data)-done)
		} else if wrote, err := w.to.WriteAt(data[done:done+n], w.off); err != nil {
			w.off += int64(wrote)
			return done + wrote, err
		}
		done, w.off = done+n, w.off+int64(n)
	}
	return done, nil
}

// written is how many bytes come before the first block of zeros.
func written(data []byte) int {
	n := 0
	for n < len(data) {
		end := min(n+block, len(data))
		if bytes.Equal(data[n:end], zeros[:end-n]) {
			break
		}
		n = end
	}
	return n
}
