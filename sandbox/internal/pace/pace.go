// Package pace gives up a stream whose other end is too slow. What a call holds for it, such as a place, memory or a file,
// is not a slow peer's to keep, and one that sends or takes a byte now and then would keep it for ever if only single
// reads and writes were bounded.
//
// A pace is so many bytes within so long. A peer may be behind it by that long at most, and never gets further ahead than
// it was at the beginning: a fast beginning does not pay for standing still later. Only the time counts in which the peer
// is waited for, within reads and writes; what the process itself does in between does not.
package pace

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"snapfs/sandbox/api"
)

// Pace is how a peer keeps up. One goroutine at a time uses it.
type Pace struct {
	bytes  int64
	within time.Duration
	left   time.Duration // for how long the peer may still be waited for
}

// New makes the pace of so many bytes within so long, for a peer of which nothing was wanted yet.
func New(bytes int64, within time.Duration) Pace { return Pace{bytes, within, within} }

// Deadline is when the peer must have sent or taken something, if it is waited for from now on.
func (p *Pace) Deadline() time.Time { return time.Now().Add(p.left) }

// Wait runs fn, which waits for the peer and tells how many bytes came or went. An error that says that the peer is too slow
// is of the class api.ErrInvalid.
func (p *Pace) Wait(fn func() (int, error)) (int, error) {
	if p.left <= 0 {
		return 0, p.tooSlow()
	}
	begun := time.Now()
	n, err := fn()
	p.left -= time.Since(begun)
	late := p.left <= 0
	share := min(float64(n)/float64(p.bytes), 1)
	p.left = min(p.left+time.Duration(share*float64(p.within)), p.within)
	if late && errors.Is(err, os.ErrDeadlineExceeded) {
		p.left = 0
		err = p.tooSlow()
	}
	return n, err
}

func (p *Pace) tooSlow() error {
	return fmt.Errorf("%w: the other end of the stream is too slow: less than %d bytes within %v", api.ErrInvalid, p.bytes, p.within)
}

// Reader reads from a peer until that is too slow.
type Reader struct {
	from io.Reader
	pace Pace
}

// NewReader makes a Reader. A read that hangs is for from to end.
func NewReader(from io.Reader, p Pace) *Reader { return &Reader{from, p} }

// Read implements io.Reader.
func (r *Reader) Read(b []byte) (int, error) {
	return r.pace.Wait(func() (int, error) { return r.from.Read(b) })
}

// Writer writes to a peer until that is too slow.
type Writer struct {
	to   io.Writer
	pace Pace
}

// NewWriter makes a Writer. A write that hangs is for to to end.
func NewWriter(to io.Writer, p Pace) *Writer { return &Writer{to, p} }

// Write implements io.Writer.
func (w *Writer) Write(b []byte) (int, error) {
	return w.pace.Wait(func() (int, error) { return w.to.Write(b) })
}
