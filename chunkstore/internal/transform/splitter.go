package transform

import (
	"fmt"

	"snapfs/chunkstore/internal/cdc"
)

// Splitter finds, while a file streams through it, the parts that are worth a transform run. What
// goes in comes out, in order, as calls of plain and inflated. It holds back at most a file's
// first elfHead bytes and one compressed section. Used by one goroutine.
type Splitter struct {
	plain    func(p []byte) error                            // bytes to be stored as they are
	inflated func(t Codec, outLen int64, inner []byte) error // outLen bytes, to be stored as inner
	turns    chan struct{}                                   // taken while inflated bytes are held; shared by all ingests

	size     int64     // of the file
	off      int64     // of the next byte to come, in the file
	head     []byte    // the file's start, while it is not known what it is
	sections []section // still to come, in order
	held     []byte    // bytes of sections[0] so far
}

// eligible reports whether a file of this size is looked at. Small files stay one chunk.
func eligible(size int64) bool { return size >= cdc.WholePart }

// NewSplitter makes a splitter for any number of files, one after the other. turns bounds how many
// sections are inflated at a time.
func NewSplitter(turns chan struct{}, plain func([]byte) error, inflated func(Codec, int64, []byte) error) *Splitter {
	return &Splitter{plain: plain, inflated: inflated, turns: turns}
}

// Begin starts a file of size bytes; -1 (unknown) is never looked into. The file before must be flushed.
func (r *Splitter) Begin(size int64) {
	r.size, r.off = size, 0
	r.head, r.held, r.sections = r.head[:0], nil, nil
}

// Write takes the next bytes of the file.
func (r *Splitter) Write(p []byte) (int, error) {
	n := len(p)
	if r.off < elfHead && eligible(r.size) {
		var err error
		if p, err = r.start(p); err != nil {
			return 0, err
		}
	}
	for len(p) > 0 {
		took, err := r.pass(p)
		if err != nil {
			return n - len(p), err
		}
		p = p[took:]
	}
	return n, nil
}

// start gathers the file's head and gives back what of p lies behind it.
func (r *Splitter) start(p []byte) ([]byte, error) {
	if r.off == 0 && len(p) >= 4 && string(p[:4]) != "\x7fELF" {
		r.size = -1 // nothing to look for
		return p, nil
	}
	n := min(len(p), elfHead-len(r.head))
	r.head = append(r.head, p[:n]...)
	r.off += int64(n)
	if len(r.head) < elfHead {
		return nil, nil
	}
	r.sections = elfSections(r.head, r.size)
	err := r.plain(r.head)
	r.head = r.head[:0]
	return p[n:], err
}

// pass consumes bytes up to the next border of a section.
func (r *Splitter) pass(p []byte) (int, error) {
	n := int64(len(p))
	if len(r.sections) == 0 {
		r.off += n
		return len(p), r.plain(p)
	}
	s := r.sections[0]
	if r.off < s.off {
		n = min(n, s.off-r.off)
		r.off += n
		return int(n), r.plain(p[:n])
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
func (r *Splitter) section(s section, b []byte) error {
	skip, inflated, ok := s.stream(b)
	if !ok {
		return r.plain(b)
	}
	r.turns <- struct{}{}
	defer func() { <-r.turns }()
	inner, ok := inflate(b[skip:], inflated)
	if !ok {
		return r.plain(b)
	}
	if err := r.plain(b[:skip]); err != nil {
		return err
	}
	if err := r.inflated(GoZlib, int64(len(b)-skip), inner); err != nil {
		return fmt.Errorf("store inflated section: %w", err)
	}
	return nil
}

// Flush ends the file: what was held back goes out as it is.
func (r *Splitter) Flush() error {
	if len(r.head) > 0 {
		head := r.head
		r.head = r.head[:0]
		if err := r.plain(head); err != nil {
			return err
		}
	}
	if held := r.held; len(held) > 0 {
		r.held = nil
		return r.plain(held)
	}
	return nil
}
