package prefix

import (
	"container/heap"
	"encoding/binary"
	"slices"
)

const (
	anchorLen  = 16 // bytes that an anchor's hash is of
	anchorMask = 15 // one position of 16 is an anchor
	pieceLen   = 1 << 10
	// Some 64 anchors lie in a piece. One of zeros, or of what somebody has thought out, has no more than twice as many.
	anchorsMost = 2 * pieceLen / (anchorMask + 1)
	windowLen   = 256 << 10
	leastWorth  = 12       // of a piece
	maxInput    = 64 << 20 // bytes; what is behind them is not looked at
)

// piece is a candidate, with the anchors in it.
type piece struct {
	data    []byte
	anchors [2]uint32 // first, and behind the last
	window  uint32
	worth   int // as it was last counted
}

// chooser picks the pieces that are worth most together.
type chooser struct {
	pieces []piece
	ids    []uint32 // per anchor, which are equal; 0: it is worth nothing
	worth  []uint8  // by id; 0 once a chosen piece has it
	seen   []uint32 // by id: number + 1 of the piece that was last counted
	heap   []uint32 // of pieces; those that are worth most, as they were last counted, come first
}

// Choose returns at most limit bytes of the parts: pieces that occur in several windows, in their order. It returns the
// same for the same parts. It takes about as much memory as the parts.
func Choose(parts [][]byte, limit int) []byte {
	c := &chooser{}
	c.weigh(c.cut(parts))
	c.seen = make([]uint32, len(c.worth))
	for no := range c.pieces {
		if c.pieces[no].worth = c.count(uint32(no)); c.pieces[no].worth >= leastWorth {
			c.heap = append(c.heap, uint32(no))
		}
	}
	heap.Init(c)
	var chosen []uint32
	for size := 0; len(c.heap) > 0; {
		no := c.heap[0]
		p := &c.pieces[no]
		now := c.count(no)
		switch {
		case now < leastWorth || size+len(p.data) > limit:
			heap.Pop(c)
		case now < p.worth:
			p.worth = now
			heap.Fix(c, 0)
		default:
			heap.Pop(c)
			c.cover(p)
			chosen = append(chosen, no)
			size += len(p.data)
		}
	}
	slices.Sort(chosen)
	var out []byte
	for _, no := range chosen {
		out = append(out, c.pieces[no].data...)
	}
	return out
}

// cut cuts the parts into pieces, and returns their anchors: the hash, then the number of the anchor.
func (c *chooser) cut(parts [][]byte) []uint64 {
	var anchors []uint64
	at := 0
	for _, part := range parts {
		if at+len(part) > maxInput {
			break
		}
		for off := 0; off < len(part); off += pieceLen {
			p := piece{
				data: part[off:min(off+pieceLen, len(part))], window: uint32((at + off) / windowLen),
				anchors: [2]uint32{uint32(len(anchors)), 0},
			}
			first := len(anchors)
			for i := off; i < off+len(p.data) && i+anchorLen <= len(part); i++ {
				h := hash(part[i:])
				if h&anchorMask == 0 && len(anchors)-first < anchorsMost {
					anchors = append(anchors, h&^(1<<32-1)|uint64(len(anchors)))
				}
			}
			p.anchors[1] = uint32(len(anchors))
			c.pieces = append(c.pieces, p)
		}
		at += len(part)
	}
	return anchors
}

func hash(b []byte) uint64 {
	h := binary.LittleEndian.Uint64(b) * 0x9E3779B97F4A7C15
	h = (h ^ h>>29 ^ binary.LittleEndian.Uint64(b[8:])) * 0xBF58476D1CE4E5B9
	return h ^ h>>31
}

// weigh finds equal anchors and in how many windows they occur.
func (c *chooser) weigh(anchors []uint64) {
	windows := make([]uint32, len(anchors))
	for i := range c.pieces {
		for k := c.pieces[i].anchors[0]; k < c.pieces[i].anchors[1]; k++ {
			windows[k] = c.pieces[i].window
		}
	}
	c.ids = make([]uint32, len(anchors))
	c.worth = []uint8{0}
	slices.Sort(anchors)
	for len(anchors) > 0 {
		n, others := 1, 0
		for ; n < len(anchors) && anchors[n]>>32 == anchors[0]>>32; n++ {
			if windows[uint32(anchors[n])] != windows[uint32(anchors[n-1])] {
				others++
			}
		}
		if others > 0 {
			for _, a := range anchors[:n] {
				c.ids[uint32(a)] = uint32(len(c.worth))
			}
			c.worth = append(c.worth, uint8(min(others, 255)))
		}
		anchors = anchors[n:]
	}
}

// count returns what a piece is worth beside those that were chosen.
func (c *chooser) count(no uint32) int {
	n := 0
	p := &c.pieces[no]
	for _, id := range c.ids[p.anchors[0]:p.anchors[1]] {
		if c.worth[id] > 0 && c.seen[id] != no+1 {
			n += int(c.worth[id])
		}
		c.seen[id] = no + 1
	}
	return n
}

// cover takes the worth of a chosen piece from those that have the same.
func (c *chooser) cover(p *piece) {
	for _, id := range c.ids[p.anchors[0]:p.anchors[1]] {
		c.worth[id] = 0
	}
}

// Len implements heap.Interface, like the methods below.
func (c *chooser) Len() int { return len(c.heap) }

func (c *chooser) Less(i, j int) bool {
	a, b := &c.pieces[c.heap[i]], &c.pieces[c.heap[j]]
	if a.worth != b.worth {
		return a.worth > b.worth
	}
	return c.heap[i] < c.heap[j]
}

func (c *chooser) Swap(i, j int) { c.heap[i], c.heap[j] = c.heap[j], c.heap[i] }

// Push implements heap.Interface.
func (c *chooser) Push(x any) { c.heap = append(c.heap, x.(uint32)) }

// Pop implements heap.Interface.
func (c *chooser) Pop() any {
	last := len(c.heap) - 1
	no := c.heap[last]
	c.heap = c.heap[:last]
	return no
}
