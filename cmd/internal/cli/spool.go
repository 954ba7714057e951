package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"
)

// spoolMemory is how many bytes a spool keeps in memory.
const spoolMemory = 4 << 20

// spool keeps an output until it is whole: in memory, and what does not fit there in a file without a name. The zero value
// is ready.
type spool struct {
	memory bytes.Buffer
	file   *os.File // nil: memory has all of it; else memory has what comes next
}

// Write implements io.Writer.
func (s *spool) Write(p []byte) (int, error) {
	n, _ := s.memory.Write(p) // it takes everything
	if s.memory.Len() <= spoolMemory {
		return n, nil
	}
	if s.file == nil {
		f, err := os.CreateTemp("", "snapfs-*")
		if err != nil {
			return 0, fmt.Errorf("a file for the output: %w: TMPDIR names another directory for it", err)
		}
		s.file = f
		if err := os.Remove(f.Name()); err != nil {
			return 0, err
		}
	}
	if _, err := s.memory.WriteTo(s.file); err != nil {
		return 0, fmt.Errorf("keeping the output: %w: TMPDIR names another directory for it", err)
	}
	return n, nil
}

// WriteTo implements io.WriterTo.
func (s *spool) WriteTo(w io.Writer) (n int64, err error) {
	if s.file != nil {
		if _, err = s.file.Seek(0, io.SeekStart); err == nil {
			n, err = io.Copy(w, s.file)
		}
	}
	if err != nil {
		return n, err
	}
	m, err := s.memory.WriteTo(w)
	return n + m, err
}

// close gives the file up.
func (s *spool) close() {
	if s.file != nil {
		_ = s.file.Close() // nothing is lost: it was read
	}
}
