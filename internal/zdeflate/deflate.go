package zdeflate

import (
	"encoding/binary"
	"io"
	"math"
	"math/bits"
)

const (
	minMatch = 3
	maxMatch = 258

	// minAhead is how much zlib wants to see of the input before it goes on: a match and what decides the next.
	minAhead = maxMatch + minMatch + 1

	// tooFar is the distance beyond which a match of three bytes costs more than three literals.
	tooFar = 4096

	lastGreedy = 3 // the last level without lazy matching
)

// effort is how hard a level searches.
type effort struct {
	good  int // with a match this long the next search is four times shorter
	lazy  int // with a match this long no better one is looked for; greedy: longer ones are not hashed inside
	nice  int // a match this long ends a search
	chain int // candidates of a search
}

var efforts = [10]effort{
	1: {4, 4, 8, 4}, 2: {4, 5, 16, 8}, 3: {4, 6, 32, 32},
	4: {4, 4, 16, 16}, 5: {8, 16, 32, 32}, 6: {8, 16, 128, 128}, 7: {8, 32, 128, 256}, 8: {32, 128, 258, 1024},
	9: {32, 258, 258, 4096},
}

// compressor is the state of a stream.
type compressor struct {
	data []byte
	effort
	level     int
	filtered  bool
	window    int // bytes
	maxDist   int
	hashShift uint
	hashMask  uint32

	pos  int // what comes next of data
	base int // where zlib's window starts; a multiple of window from the stream's start on
	work int // how many candidates may still be looked at

	span

	// Positions are kept plus origin, which grows from stream to stream, so that entries of streams before are below
	// every position and need not be cleared.
	origin int
	end    int            // of the positions of this stream
	head   [1 << 16]int32 // by hash: the last position
	prev   [1 << 15]int32 // by position: the one before with the same hash

	blocks
}

// begin sets up for a stream.
func (c *compressor) begin(w io.Writer, data []byte, p Params) {
	c.data, c.level, c.effort, c.filtered = data, p.Level, efforts[p.Level], p.Strategy == Filtered
	c.window = 1 << p.WindowBits
	c.maxDist = c.window - minAhead
	hashBits := p.MemLevel + 7
	c.hashShift = uint(hashBits+minMatch-1) / minMatch
	c.hashMask = 1<<hashBits - 1
	c.pos, c.base = 0, 0
	c.span = span{from: begun, until: math.MaxInt, enough: math.MinInt}
	// A window lies between the streams, and the first position is not 0.
	const window = 1 << 15
	c.origin = (c.end + 2*window) &^ (window - 1)
	if c.origin+len(data) > 1<<30 {
		clear(c.head[:])
		clear(c.prev[:])
		c.origin = window
	}
	c.end = c.origin + len(data)
	c.blocks.begin(w, p.MemLevel)
}

// release drops what belongs to the caller.
func (c *compressor) release() {
	c.data = nil
	c.out.w = nil
}

// slide moves the window as zlib does when it wants to read and has little left.
func (c *compressor) slide() {
	for {
		filled := min(c.base+2*c.window, len(c.data))
		if filled-c.pos >= minAhead || c.pos-c.base < c.window+c.maxDist {
			return
		}
		c.base += c.window
	}
}

// insert enters the three bytes at pos into the hash chains, and gives the last position with the same hash; not
// more than base if there is none. There must be three bytes.
func (c *compressor) insert(pos int) int {
	d := c.data[pos : pos+3 : pos+3]
	h := ((uint32(d[0])<<c.hashShift^uint32(d[1]))<<c.hashShift ^ uint32(d[2])) & c.hashMask
	h &= uint32(len(c.head) - 1)
	last := c.head[h]
	at := pos + c.origin
	c.prev[at&(c.window-1)&(len(c.prev)-1)] = last
	c.head[h] = int32(at)
	return int(last) - c.origin
}

// longest finds the longest match for pos that is longer than best, among the candidates from cand on. It returns best
// and no position if there is none.
func (c *compressor) longest(pos, cand, best int) (length, start int) {
	ahead := len(c.data) - pos
	if best >= ahead {
		return ahead, 0
	}
	chain := c.chain
	if best >= c.good {
		chain >>= 2
	}
	most := chain
	nice := min(c.nice, ahead)
	limit := max(c.base, pos-c.maxDist)
	data := c.data
	scan := data[pos:min(pos+maxMatch, len(data))]
	mask := c.window - 1
	origin := c.origin
	first := binary.LittleEndian.Uint16(scan)
	last := binary.LittleEndian.Uint16(scan[best-1:])
	for {
		if binary.LittleEndian.Uint16(data[cand+best-1:]) == last && binary.LittleEndian.Uint16(data[cand:]) == first {
			n := common(scan, data[cand:])
			if n > best {
				start, best = cand, n
				if n >= nice {
					break
				}
				last = binary.LittleEndian.Uint16(scan[best-1:])
			}
		}
		cand = int(c.prev[(cand+origin)&mask&(len(c.prev)-1)]) - origin
		if chain--; cand <= limit || chain == 0 {
			break
		}
	}
	if c.work -= most - chain; c.work < 0 && c.out.err == nil {
		c.out.err = ErrWork
	}
	return best, start
}

// common is the length of the prefix that scan shares with other, which is not shorter.
func common(scan, other []byte) int {
	n := 0
	other = other[:len(scan)]
	for ; n+8 <= len(scan); n += 8 {
		if x := binary.LittleEndian.Uint64(scan[n:]) ^ binary.LittleEndian.Uint64(other[n:]); x != 0 {
			return n + bits.TrailingZeros64(x)>>3
		}
	}
	for ; n < len(scan) && scan[n] == other[n]; n++ {
	}
	return n
}

// run makes the stream, or its span.
func (c *compressor) run() {
	if c.level <= lastGreedy {
		c.greedy()
	} else {
		c.lazy()
	}
}

// greedy takes every match that it finds.
func (c *compressor) greedy() {
	for c.pos < len(c.data) && c.out.err == nil {
		c.slide()
		ahead := len(c.data) - c.pos
		n, start := 0, 0
		if ahead >= minMatch {
			if cand := c.insert(c.pos); cand > c.base && c.pos-cand <= c.maxDist {
				n, start = c.longest(c.pos, cand, minMatch-1)
			}
		}
		full := false
		if n >= minMatch {
			full = c.match(n, c.pos-start)
			if n <= c.effort.lazy && ahead-n >= minMatch {
				for i := 1; i < n; i++ {
					c.insert(c.pos + i)
				}
			}
			c.pos += n
		} else {
			full = c.literal(c.data[c.pos])
			c.pos++
		}
		if (full || c.pos >= c.from) && c.endSpan() {
			return
		}
	}
	c.finish()
}

// lazy takes a match only if the next position does not have a longer one.
func (c *compressor) lazy() {
	n, start := minMatch-1, 0 // of the match at the position
	held := false             // the byte before was not written yet
	for c.pos < len(c.data) && c.out.err == nil {
		c.slide()
		ahead := len(c.data) - c.pos
		before, beforeStart := n, start
		n = minMatch - 1
		if ahead >= minMatch {
			cand := c.insert(c.pos)
			if cand > c.base && before < c.effort.lazy && c.pos-cand <= c.maxDist {
				n, start = c.longest(c.pos, cand, before)
				if n <= 5 && (c.filtered || n == minMatch && c.pos-start > tooFar) {
					n = minMatch - 1
				}
			}
		}
		switch {
		case before >= minMatch && n <= before:
			full := c.match(before, c.pos-1-beforeStart)
			lastInsert := len(c.data) - minMatch
			for i := c.pos + 1; i < c.pos-1+before && i <= lastInsert; i++ {
				c.insert(i)
			}
			c.pos += before - 1
			held, n = false, minMatch-1
			if (full || c.pos >= c.from) && c.endSpan() {
				return
			}
		case held:
			if (c.literal(c.data[c.pos-1]) || c.pos >= c.from) && c.endSpan() {
				return
			}
			c.pos++
		default:
			held = true
			c.pos++
		}
	}
	if held {
		c.literal(c.data[c.pos-1])
	}
	c.finish()
}
