package transform

import (
	"context"

	"snapfs/chunkstore/internal/cdc"
)

// Splitter finds, while a file streams through it, the parts that are worth a transform run. What goes in comes out, in
// order, as calls of plain and run. It holds back a part of a file, of up to maxHeld bytes, or one compressed section of
// an ELF file. Used by one goroutine.
type Splitter struct {
	out   sinks
	turn  turn
	guess guesser
	pack  func(b []byte) int // see NewSplitter

	size  int64 // of the file
	begun bool  // the file's kind is known
	head  []byte
	in    walker // what looks into the file; nil: nothing to look for
}

// sinks take what comes out of a Splitter.
type sinks struct {
	plain func(p []byte) error // bytes to be stored as they are

	// run takes bytes to be stored as the concatenated parts. A chunk starts with each part.
	run func(r Run, parts [][]byte) error
}

// turn is taken while much is inflated; tokens are shared by all ingests.
type turn struct {
	ctx    context.Context
	tokens chan struct{}
}

// take waits for a turn, or for the end of the ingest. After a success, give must be called.
func (t turn) take() error {
	if err := t.ctx.Err(); err != nil {
		return err
	}
	select {
	case t.tokens <- struct{}{}:
		return nil
	case <-t.ctx.Done():
		return t.ctx.Err()
	}
}

func (t turn) give() { <-t.tokens }

// walker looks into a file of one kind.
type walker interface {
	write(p []byte) error
	flush() error // the file has ended
}

const (
	magicLen = 8  // bytes that tell what a file is
	minFile  = 64 // shorter files are not looked into
	maxHeld  = 8 << 20
	// maxStream bounds the contents of a stream other than an ELF section. Reading any of it makes all of it again.
	maxStream = 8 << 20
	// maxFile bounds files of many streams: to find the encoders takes a second for some 10 MB.
	maxFile = 128 << 20
	// manyHeld is how many bytes are not inflated without taking a turn.
	manyHeld = 256 << 10
)

// NewSplitter makes a splitter for any number of files, one after the other. turns bounds how many large parts are
// inflated at a time; who waits for one gives up when ctx ends. pack gives the size of up to 1 MiB when they are
// compressed.
func NewSplitter(
	ctx context.Context, turns chan struct{}, pack func([]byte) int, plain func([]byte) error,
	run func(r Run, parts [][]byte) error,
) *Splitter {
	return &Splitter{out: sinks{plain, run}, turn: turn{ctx, turns}, pack: pack}
}

// pays reports whether contents compress to at most 95 % of the raw bytes of their stream, judged by the first of them.
func (r *Splitter) pays(inner []byte, raw int) bool {
	const most, percent = 1 << 20, 95
	first := inner[:min(len(inner), most)]
	return r.pack(first)*len(inner)*100 <= raw*percent*len(first)
}

// Begin starts a file of size bytes; -1 (unknown) is never looked into. The file before must be flushed.
func (r *Splitter) Begin(size int64) {
	r.size, r.begun, r.head, r.in = size, size < minFile, r.head[:0], nil
}

// Write takes the next bytes of the file.
func (r *Splitter) Write(p []byte) (int, error) {
	n := len(p)
	if !r.begun {
		if len(r.head)+n < magicLen {
			r.head = append(r.head, p...)
			return n, nil
		}
		if len(r.head) == 0 {
			r.begin(p)
		} else {
			r.begin(append(r.head, p[:magicLen-len(r.head)]...))
			if err := r.pass(r.head); err != nil {
				return 0, err
			}
			r.head = r.head[:0]
		}
	}
	if err := r.pass(p); err != nil {
		return 0, err
	}
	return n, nil
}

func (r *Splitter) pass(p []byte) error {
	if r.in != nil {
		return r.in.write(p)
	}
	return r.out.plain(p)
}

// begin chooses what looks into the file by its first bytes.
func (r *Splitter) begin(start []byte) {
	r.begun = true
	r.guess.beginFile()
	if r.size >= cdc.WholePart && string(start[:4]) == "\x7fELF" {
		r.in = &elfWalker{out: r.out, turn: r.turn, size: r.size}
		return
	}
	if r.size <= maxHeld && mayBeLoose(start) {
		r.in = &looseWalker{out: r.out, turn: r.turn, guess: &r.guess}
		return
	}
	if f := formatOf(start[:magicLen], r.pays); f != nil && r.size <= maxFile {
		r.in = &streamWalker{out: r.out, turn: r.turn, guess: &r.guess, format: f}
	}
}

// Flush ends the file: what was held back goes out.
func (r *Splitter) Flush() error {
	r.begun = true
	if head := r.head; len(head) > 0 {
		r.head = r.head[:0]
		return r.out.plain(head)
	}
	if in := r.in; in != nil {
		r.in = nil
		return in.flush()
	}
	return nil
}
