package transform

import (
	"bytes"
	"fmt"
	"io"

	"github.com/klauspost/compress/zlib"
)

// elfWalker looks into an ELF file.
type elfWalker struct {
	out  sinks
	turn turn

	size     int64     // of the file
	off      int64     // of the next byte to come, in the file
	head     []byte    // the file's start, while its sections are not known
	sections []section // still to come, in order
	held     []byte    // bytes of sections[0] so far
}

func (r *elfWalker) write(p []byte) error {
	if r.off < elfHead {
		n := min(len(p), elfHead-len(r.head))
		r.head = append(r.head, p[:n]...)
		r.off += int64(n)
		p = p[n:]
		if len(r.head) < elfHead {
			return nil
		}
		r.sections = elfSections(r.head, r.size)
		if err := r.out.plain(r.head); err != nil {
			return err
		}
		r.head = nil
	}
	for len(p) > 0 {
		took, err := r.pass(p)
		if err != nil {
			return err
		}
		p = p[took:]
	}
	return nil
}

// pass consumes bytes up to the next border of a section.
func (r *elfWalker) pass(p []byte) (int, error) {
	n := int64(len(p))
	if len(r.sections) == 0 {
		r.off += n
		return len(p), r.out.plain(p)
	}
	s := r.sections[0]
	if r.off < s.off {
		n = min(n, s.off-r.off)
		r.off += n
		return int(n), r.out.plain(p[:n])
	}
	n = min(n, s.off+s.size-r.off)
	r.off += n
	if len(r.held) == 0 && !s.promising(p[:n]) {
		r.sections = r.sections[1:]
		r.off -= n
		return 0, nil
	}
	if r.held == nil {
		r.held = make([]byte, 0, s.size)
	}
	r.held = append(r.held, p[:n]...)
	if int64(len(r.held)) < s.size {
		return int(n), nil
	}
	r.sections = r.sections[1:]
	held := r.held
	r.held = nil
	return int(n), r.section(s, held)
}

// section passes on a whole section.
func (r *elfWalker) section(s section, b []byte) error {
	skip, inflated, ok := s.stream(b)
	if !ok {
		return r.out.plain(b)
	}
	if err := r.turn.take(); err != nil {
		return err
	}
	defer r.turn.give()
	run, inner, ok := inflateSection(b[skip:], inflated)
	if !ok {
		return r.out.plain(b)
	}
	if err := r.out.plain(b[:skip]); err != nil {
		return err
	}
	if err := r.out.run(run, [][]byte{inner}); err != nil {
		return fmt.Errorf("store inflated section: %w", err)
	}
	return nil
}

func (r *elfWalker) flush() error {
	if len(r.head) > 0 {
		return r.out.plain(r.head)
	}
	if len(r.held) > 0 {
		return r.out.plain(r.held)
	}
	return nil
}

// inflateSection gives the inner bytes of a zlib stream that claims to hold claimed bytes, and the run that makes
// exactly raw from them. Memory is bounded by the claim, which is checked first.
func inflateSection(raw []byte, claimed uint64) (Run, []byte, bool) {
	run := Run{Codec: GoZlib, Len: int64(len(raw)), Debug: true}
	if claimed > MaxInflated || !GoZlib.Fits(run.Len, int64(claimed)) {
		return run, nil, false
	}
	r, err := zlib.NewReader(bytes.NewReader(raw))
	if err != nil {
		return run, nil, false
	}
	inner := make([]byte, claimed)
	if _, err := io.ReadFull(r, inner); err != nil {
		return run, nil, false
	}
	// Whatever raw holds besides this stream makes the comparison fail.
	e := goWith(1)
	e.wrap = zlibFrame
	pieces, ok := e.makes(raw, inner)
	if pieces != nil {
		run.Codec, run.Pieces = Deflate, pieces
	}
	return run, inner, ok
}
