package transform

import (
	"bytes"
	"slices"
	"strconv"
)

// looseWalker looks into a loose object of git: a zlib stream of the object's type, the length of its contents in
// decimal digits, a zero byte, and the contents. They alone are stored, so that those of a blob are found where they
// are a file.
type looseWalker struct {
	out   sinks
	turn  turn
	guess *guesser
	held  []byte
}

// mayBeLoose reports whether a file that starts like this may be a loose object.
func mayBeLoose(start []byte) bool {
	_, windowBits, ok := zlibHeader(start)
	return ok && windowBits == 15
}

func (w *looseWalker) write(p []byte) error {
	w.held = append(w.held, p...)
	return nil
}

func (w *looseWalker) flush() error {
	if len(w.held) > manyHeld {
		if err := w.turn.take(); err != nil {
			return err
		}
		defer w.turn.give()
	}
	run, contents, ok := looseObject(w.held, w.guess)
	if !ok {
		return w.out.plain(w.held)
	}
	return w.out.run(run, [][]byte{contents})
}

// looseObject gives the run and the contents of a loose object.
func looseObject(raw []byte, g *guesser) (Run, []byte, bool) {
	inner, used, list, windowBits, err := inflateZlib(raw, -1)
	if err != nil || used != len(raw) {
		return Run{}, nil, false
	}
	const longestHead = 32
	end := bytes.IndexByte(inner[:min(len(inner), longestHead)], 0) + 1
	kind := slices.IndexFunc(looseKinds[:], func(k string) bool { return bytes.HasPrefix(inner, []byte(k)) })
	if end == 0 || kind < 0 {
		return Run{}, nil, false
	}
	contents := inner[end:]
	n, err := strconv.Atoi(string(inner[len(looseKinds[kind]) : end-1]))
	if err != nil || n != len(contents) {
		return Run{}, nil, false
	}
	t := looseCodec(kind, 1)
	if !bytes.Equal(inner[:end], t.looseHead(n)) || !t.Fits(int64(len(raw)), int64(n)) {
		return Run{}, nil, false
	}
	e, pieces, ok := g.find(list, zlibFrame, windowBits, raw, inner)
	if t = looseCodec(kind, e.Level); !ok || e != t.looseEncoder() {
		return Run{}, nil, false
	}
	run := Run{Codec: t, Len: int64(len(raw))}
	if p := pieces.within(nil, inner[:end]); p != nil {
		run.Codec, run.Pieces = Deflate, p
	}
	return run, contents, true
}
