package squashfs

import (
	"fmt"
	"io"
	"os"
	"sync/atomic"
)

// spoolMemory is how many bytes all spools of one writer keep in memory before they use temporary files.
const spoolMemory = 16 << 20

const (
	spoolChunk  = 64 << 10
	spoolBuffer = 256 << 10
)

// spooler creates spools that share one bound of memory. It is for one goroutine; each spool may have another one.
type spooler struct {
	dir    string       // of temporary files, "" for the system's
	left   atomic.Int64 // bytes of memory
	spools []*spool
}

// spool is a byte queue: written first, then read from its start. For one goroutine.
type spool struct {
	owner  *spooler
	chunks [][]byte // the first bytes; all are full except the last
	file   *os.File // the rest, if any; already unlinked
	buf    []byte   // of what goes into file
	size   int64
}

func (s *spooler) spool() *spool {
	p := &spool{owner: s}
	s.spools = append(s.spools, p)
	return p
}

// close frees all temporary files.
func (s *spooler) close() {
	for _, p := range s.spools {
		if p.file != nil {
			_ = p.file.Close() // it is unlinked, and its contents are not needed any more
		}
	}
	s.spools = nil
}

// Write does not retain p.
func (p *spool) Write(b []byte) (int, error) {
	n := len(b)
	p.size += int64(n)
	for len(b) > 0 && p.file == nil {
		last := len(p.chunks) - 1
		if last < 0 || len(p.chunks[last]) == spoolChunk {
			if p.owner.left.Add(-spoolChunk) < 0 {
				p.owner.left.Add(spoolChunk)
				if err := p.spill(); err != nil {
					return 0, err
				}
				break
			}
			// The first chunk grows as needed: most trees are small.
			p.chunks = append(p.chunks, nil)
			last++
		}
		m := min(len(b), spoolChunk-len(p.chunks[last]))
		p.chunks[last] = append(p.chunks[last], b[:m]...)
		b = b[m:]
	}
	if len(b) == 0 {
		return n, nil
	}
	p.buf = append(p.buf, b...)
	if len(p.buf) >= spoolBuffer {
		return n, p.flush()
	}
	return n, nil
}

func (p *spool) spill() error {
	f, err := os.CreateTemp(p.owner.dir, "snapfs-squashfs-*")
	if err != nil {
		return fmt.Errorf("make a spool file: %w", err)
	}
	p.file = f
	if err := os.Remove(f.Name()); err != nil {
		return fmt.Errorf("unlink a spool file: %w", err)
	}
	return nil
}

func (p *spool) flush() error {
	if _, err := p.file.Write(p.buf); err != nil {
		return fmt.Errorf("write a spool file: %w", err)
	}
	p.buf = p.buf[:0]
	return nil
}

// reader reads what was written so far. Callers must not write while they read.
func (p *spool) reader() (io.Reader, error) {
	readers := make([]io.Reader, 0, 2)
	readers = append(readers, &chunkReader{chunks: p.chunks})
	if p.file != nil {
		if err := p.flush(); err != nil {
			return nil, err
		}
		readers = append(readers, io.NewSectionReader(p.file, 0, maxFileSize))
	}
	return io.MultiReader(readers...), nil
}

// WriteTo writes everything to w, once, and frees the memory.
func (p *spool) WriteTo(w io.Writer) (int64, error) {
	r, err := p.reader()
	if err != nil {
		return 0, err
	}
	// Without the wrappers io.Copy would not use a buffer of this size.
	buf := takeScratch(spoolBuffer)
	defer putScratch(buf)
	n, err := io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{r}, *buf)
	p.owner.left.Add(int64(len(p.chunks)) * spoolChunk)
	p.chunks = nil
	return n, err
}

// chunkReader reads a list of byte slices.
type chunkReader struct {
	chunks [][]byte
	off    int // in the first
}

func (r *chunkReader) Read(b []byte) (int, error) {
	for len(r.chunks) > 0 && r.off == len(r.chunks[0]) {
		r.chunks, r.off = r.chunks[1:], 0
	}
	if len(r.chunks) == 0 {
		return 0, io.EOF
	}
	n := copy(b, r.chunks[0][r.off:])
	r.off += n
	return n, nil
}
