package squashfs

import (
	"errors"
	"fmt"
	"io"
	"strings"
)

// CorruptError is an ErrCorrupt with the location of the damage.
type CorruptError struct {
	Off    int64 // in the image, of the structure or block that is wrong; -1 if none
	Reason string
	cause  error // of a decompressor or a reader, may be nil
}

func (e *CorruptError) Error() string {
	s := ErrCorrupt.Error()
	if e.Off >= 0 {
		s = fmt.Sprintf("%s at byte %d", s, e.Off)
	}
	s += ": " + e.Reason
	if e.cause != nil {
		s += ": " + e.cause.Error()
	}
	return s
}

// Unwrap lets errors.Is find both the class and the cause.
func (e *CorruptError) Unwrap() []error {
	if e.cause == nil {
		return []error{ErrCorrupt}
	}
	return []error{ErrCorrupt, e.cause}
}

func corrupt(off int64, format string, args ...any) error {
	return &CorruptError{Off: off, Reason: fmt.Sprintf(format, args...)}
}

// locate adds a location to the error of a decoder, which does not know it.
func locate(off int64, err error) error {
	var placed *CorruptError
	if err == nil || errors.As(err, &placed) || !errors.Is(err, ErrCorrupt) {
		return err
	}
	return corrupt(off, "%s", strings.TrimPrefix(err.Error(), ErrCorrupt.Error()+": "))
}

// readFull reads all of p at off. If the image ends before its stated size, that is damage; other errors are the
// reader's.
func readFull(r io.ReaderAt, p []byte, off int64) error {
	n, err := r.ReadAt(p, off)
	switch {
	case n == len(p):
		return nil
	case err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return &CorruptError{
			Off: off + int64(n), Reason: fmt.Sprintf("%d bytes end after %d", len(p), n),
			cause: io.ErrUnexpectedEOF,
		}
	default:
		return fmt.Errorf("read %d bytes at %d: %w", len(p), off, err)
	}
}

// ErrNoExports is the error of an image without an export table.
var ErrNoExports = errors.New("image has no export table")
