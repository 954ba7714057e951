package chunkstore

import "encoding/binary"

// parser takes varints off a byte string. After the first malformed one bad is set and all results are zero.
type parser struct {
	b   []byte
	bad bool
}

func (p *parser) uint() uint64 {
	v, n := binary.Uvarint(p.b)
	if n <= 0 {
		p.b, p.bad = nil, true
		return 0
	}
	p.b = p.b[n:]
	return v
}

func (p *parser) int() int64 {
	u := p.uint()
	return int64(u>>1) ^ -int64(u&1)
}

// count reads a number that is at most limit: sizes of what is to be allocated.
func (p *parser) count(limit uint64) int {
	v := p.uint()
	if v > limit {
		p.b, p.bad = nil, true
		return 0
	}
	return int(v)
}

func (p *parser) byte() byte {
	if len(p.b) == 0 {
		p.bad = true
		return 0
	}
	c := p.b[0]
	p.b = p.b[1:]
	return c
}

func (p *parser) bytes(n int) []byte {
	if n < 0 || n > len(p.b) {
		p.b, p.bad = nil, true
		return nil
	}
	v := p.b[:n:n]
	p.b = p.b[n:]
	return v
}
