package layers

import "time"

// pace sizes the pieces of a change that may be long. Each is made inside the gate by itself, so that a seal waits for one piece and not
// for all: what it freezes then is a prefix, as of a program that writes. Pieces that take next to no time, as where the host
// shares blocks instead of copying them, become longer. The zero value is ready.
type pace struct {
	size int64 // of the next piece, a power of two; 0: the first one
}

const (
	pieceFirst = 1 << 20
	pieceMost  = 64 << 20
	pieceTime  = time.Millisecond // a piece that takes less is followed by a longer one
)

// next is how much of what is left the next piece, at off, takes. All but the last end at multiples of their size.
func (p *pace) next(off, left int64) int64 {
	if p.size == 0 {
		p.size = pieceFirst
	}
	return min(left, p.size-off&(p.size-1))
}

// took notes how long a piece of n bytes took.
func (p *pace) took(n int64, d time.Duration) {
	switch {
	case d > 4*pieceTime:
		p.size = max(p.size/2, pieceFirst)
	case d < pieceTime && n == p.size:
		p.size = min(p.size*2, pieceMost)
	}
}
