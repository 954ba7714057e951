package testimage

import (
	"bytes"
	"io"
	"os"
)

// Reader reads an image that is in no store.
type Reader struct {
	io.ReaderAt
	io.Closer
	size int64
}

// Size is the length of the image in bytes.
func (r Reader) Size() int64 { return r.size }

// Open opens an image file.
func Open(path string) (Reader, error) {
	f, err := os.Open(path)
	if err != nil {
		return Reader{}, err
	}
	st, err := f.Stat()
	if err != nil {
		_ = f.Close() // the first error counts
		return Reader{}, err
	}
	return Reader{f, f, st.Size()}, nil
}

// Bytes reads an image in memory.
func Bytes(img []byte) Reader {
	return Reader{bytes.NewReader(img), io.NopCloser(nil), int64(len(img))}
}
