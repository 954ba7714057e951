package transform

import "snapfs/internal/zdeflate"

// hint is what a file says about the encoder of a stream: a list of those that are tried, the likeliest first.
type hint []encoder

func zlibWith(level, mem int) encoder {
	return encoder{Params: zdeflate.Params{Level: level, MemLevel: mem, WindowBits: 15}}
}

func goWith(level int) encoder { return encoder{Params: goParams(level), golang: true} }

// Lists are short, because a stream by another encoder costs as many attempts. What is not in them is rare.
var (
	// By the class of levels in the header of RFC 1950.
	zlibHints = [4]hint{
		{zlibWith(1, 8), goWith(1)},
		{zlibWith(5, 8), zlibWith(4, 8), zlibWith(3, 8), zlibWith(2, 8)},
		{zlibWith(6, 8), goWith(6), zlibWith(6, 9)},
		{zlibWith(9, 8), zlibWith(9, 9), zlibWith(8, 8), zlibWith(7, 8)},
	}
	// By the extra flags of RFC 1952: unknown, most compression, fastest. Go's system of origin is always unknown.
	gzipHint   = hint{zlibWith(6, 8), zlibWith(9, 8)}
	gzipBest   = hint{zlibWith(9, 8)}
	gzipFast   = hint{zlibWith(1, 8)}
	goGzipHint = hint{zlibWith(6, 8), goWith(6), zlibWith(9, 8)}
	goGzipBest = hint{zlibWith(9, 8), goWith(9)}
	goGzipFast = hint{zlibWith(1, 8), goWith(1)}
	// By the flags of an entry of a zip file, which most writers leave alone.
	zipUsual = hint{zlibWith(6, 8), goWith(5), zlibWith(9, 8), zlibWith(1, 8)}
	zipBest  = hint{zlibWith(9, 8), zlibWith(8, 8)}
	zipFast  = hint{zlibWith(1, 8), zlibWith(2, 8), zlibWith(3, 8)}
)

// guesser finds the encoders of streams. It remembers which one was right.
type guesser struct {
	last     encoder // the zero value: none was
	misses   int     // streams in sequence for which none was
	contents int64   // bytes of all streams of the file
}

const (
	// maxMisses is how many streams in sequence that no encoder makes let the rest of a file be left alone.
	maxMisses = 8
	// maxContents is how long the contents of streams let the rest of a file be left alone: it bounds the time that a
	// file takes which was made to be slow.
	maxContents = 8 * maxFile
)

// find finds the encoder of a list that makes raw from inner, with a wrapper. Pieces are those of a long stream, if it
// can be divided.
func (g *guesser) find(
	list hint, wrap wrapper, windowBits int, raw, inner []byte,
) (e encoder, pieces *Pieces, ok bool) {
	try := func(e encoder) bool {
		e.wrap = wrap
		if e.golang && windowBits != 15 {
			return false
		}
		e.WindowBits = windowBits
		if pieces, ok = e.makes(raw, inner); !ok {
			return false
		}
		g.last, g.misses = e, 0
		return true
	}
	g.contents += int64(len(inner))
	last := g.last
	last.wrap, last.WindowBits = bare, 15
	tried := false
	for _, e := range list {
		if e == last {
			tried = true
			if try(e) {
				return g.last, pieces, true
			}
		}
	}
	for _, e := range list {
		if (!tried || e != last) && try(e) {
			return g.last, pieces, true
		}
	}
	g.misses++
	return encoder{}, nil, false
}

// hopeless reports whether so many streams were not made, or so much was, that the rest of the file is left alone.
func (g *guesser) hopeless() bool { return g.misses >= maxMisses || g.contents >= maxContents }

// beginFile forgets the file before, but for its encoder.
func (g *guesser) beginFile() { g.misses, g.contents = 0, 0 }
