package transform

import (
	"encoding/binary"
	"hash/crc32"
)

// format finds the streams of a kind of file.
type format interface {
	// next looks for a stream at the start of b, the bytes behind the piece before. With last, the file ends with b.
	next(b []byte, last bool, g *guesser) (piece, verdict)
}

// piece is a part of a file: bytes to be copied, and behind them a stream.
type piece struct {
	skip  int64 // bytes to be copied; if there is no stream they may be more than the format has seen
	raw   int   // bytes of the stream with its wrapper, 0 if there is none
	enc   encoder
	inner []byte  // contents of the stream
	file  bool    // the contents may be those of a file elsewhere
	chunk int     // length of the data of IDAT chunks
	parts *Pieces // of a long stream, if it can be divided
}

// verdict is what a format says of the bytes that it saw.
type verdict uint8

const (
	found verdict = iota // a piece
	more                 // too few to tell
	stop                 // the rest of the file has no streams
)

// formatOf tells by its first bytes what finds the streams of a file; nil if nothing does. pays tells whether the
// contents of a stream of raw bytes are worth storing in its place, where that is in doubt.
func formatOf(start []byte, pays func(inner []byte, raw int) bool) format {
	switch {
	case string(start[:3]) == gzipMagic:
		return gzipFormat{}
	case string(start[:4]) == packMagic:
		return &packFormat{}
	case string(start[:4]) == zipMagic:
		return &zipFormat{}
	case string(start) == pngMagic:
		return &pngFormat{pays: pays}
	default:
		return nil
	}
}

const (
	heldStep   = 1 << 20   // a file is looked at in steps of so many bytes
	maxCopied  = 1 << 10   // more bytes between streams are not put into a recipe
	minBody    = 256       // shorter contents are put into the recipe
	maxInline  = 16 << 10  // longer ones never are
	maxGroup   = 256 << 10 // contents of a run, unless a single stream has more
	maxStreams = 256       // of a run
	// groupMask ends runs after one stream in 32, chosen by their contents, so that inserted streams do not change the
	// runs behind.
	groupMask = 31
)

// streamWalker looks into a file of deflate streams. It gathers streams to runs.
type streamWalker struct {
	out    sinks
	turn   turn
	guess  *guesser
	format format // nil: the rest is plain

	held []byte // bytes that did not go out
	at   int    // how many of them the format has passed
	skip int64  // bytes still to come that the format wants to pass
	want int    // bytes held from which on the format is asked again

	// The run that is gathered. It has the first covered bytes of held.
	covered  int
	recipe   []byte
	bodies   [][]byte
	contents int // bytes of the streams
	streams  int
}

func (w *streamWalker) write(p []byte) error {
	if w.skip > 0 {
		n := int(min(w.skip, int64(len(p))))
		if err := w.out.plain(p[:n]); err != nil {
			return err
		}
		w.skip -= int64(n)
		p = p[n:]
	}
	if w.format == nil {
		return w.out.plain(p)
	}
	w.held = append(w.held, p...)
	if len(w.held) < max(w.want, heldStep) {
		return nil
	}
	return w.walk(false)
}

func (w *streamWalker) flush() error { return w.walk(true) }

// walk takes pieces off what is held. With last, nothing remains.
func (w *streamWalker) walk(last bool) error {
	if len(w.held) > manyHeld {
		if err := w.turn.take(); err != nil {
			return err
		}
		defer w.turn.give()
	}
	for w.format != nil {
		if w.at == len(w.held) && !last {
			break
		}
		p, v := w.format.next(w.held[w.at:], last, w.guess)
		if v == more && !last && len(w.held)-w.at < maxHeld {
			// Twice as much, so that a long stream is not inflated over and over.
			w.want = len(w.held) + len(w.held) - w.at
			break
		}
		if v != found || p.skip+int64(p.raw) == 0 || w.guess.hopeless() {
			w.format = nil
			break
		}
		if err := w.take(p); err != nil {
			return err
		}
	}
	if !last && w.format != nil {
		return nil
	}
	if err := w.emit(); err != nil {
		return err
	}
	held := w.held
	w.held, w.at = nil, 0
	return w.out.plain(held)
}

// take adds a piece to the run.
func (w *streamWalker) take(p piece) error {
	if p.raw == 0 {
		n := min(p.skip, int64(len(w.held)-w.at))
		w.at += int(n)
		if w.skip = p.skip - n; w.at-w.covered <= maxCopied && w.skip == 0 {
			return nil
		}
		return w.drain()
	}
	if w.at+int(p.skip)-w.covered > maxCopied {
		w.at += int(p.skip)
		p.skip = 0
		if err := w.drain(); err != nil {
			return err
		}
	}
	start := w.at + int(p.skip)
	if p.parts != nil {
		return w.takeDivided(p)
	}
	inline, body := p.inner, []byte(nil)
	if len(p.inner) > maxInline || p.file && len(p.inner) >= minBody {
		inline, body = nil, p.inner
		w.bodies = append(w.bodies, body)
	}
	w.recipe = appendStream(w.recipe, w.held[w.covered:start], p.enc, inline, len(body), p.chunk)
	w.contents += len(p.inner)
	w.streams++
	w.at = start + p.raw
	w.covered = w.at
	if w.contents >= maxGroup || w.streams >= maxStreams || crc32.ChecksumIEEE(p.inner)&groupMask == 0 {
		return w.emit()
	}
	return nil
}

// takeDivided sends out a stream that is a run of its own, with what is before it.
func (w *streamWalker) takeDivided(p piece) error {
	if err := w.emit(); err != nil {
		return err
	}
	start := w.at + int(p.skip)
	w.at = start + p.raw
	if parts := p.parts.within(w.held[:start], nil); parts != nil {
		run := Run{Codec: Deflate, Len: int64(w.at), Pieces: parts}
		if err := w.out.run(run, [][]byte{p.inner}); err != nil {
			return err
		}
		w.held, w.at = w.held[w.at:], 0
		return nil
	}
	return w.drain()
}

// emit sends the run out.
func (w *streamWalker) emit() error {
	if w.covered == 0 {
		return nil
	}
	parts := make([][]byte, 1, 1+len(w.bodies))
	parts[0] = append(binary.AppendUvarint(nil, uint64(len(w.recipe))), w.recipe...)
	parts = append(parts, w.bodies...)
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	var err error
	if Recipe.Fits(int64(w.covered), int64(n)) {
		err = w.out.run(Run{Codec: Recipe, Len: int64(w.covered)}, parts)
	} else {
		err = w.out.plain(w.held[:w.covered])
	}
	w.held = w.held[w.covered:]
	w.at -= w.covered
	w.covered, w.recipe, w.bodies, w.contents, w.streams = 0, w.recipe[:0], w.bodies[:0], 0, 0
	return err
}

// drain sends out the run and what the format has passed behind it.
func (w *streamWalker) drain() error {
	if err := w.emit(); err != nil {
		return err
	}
	p := w.held[:w.at]
	w.held, w.at = w.held[w.at:], 0
	return w.out.plain(p)
}
