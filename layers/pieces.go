package layers

import "time"

// pace sizes the pieces of a change that may be long. Each is made inside the gate by itself, so that a seal waits for
// one piece and not for all: what it freezes then is a prefix, as of a program that writes. Pieces that take next to no
// time, as where the host shares blocks instead of copying them, become longer. The zero value is ready.
//
// Truncating is one piece however much it frees, and a seal waits for it: on a busy machine with ext4 0.1 s for 20 GiB
// in few extents that are not in memory, 1 s for 2 GiB that are, and a millisecond for each extent of a file in many.
// In pieces, a crash or a snapshot between two of them would show a size that the file never had, and programs commit
// by truncating: of a rollback journal of SQLite (journal_mode=TRUNCATE) that is cut off half-way, the half that is
// left would be undone.
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
