package varint

import "encoding/binary"

// Parser takes values off the start of a byte string. Once a value was malformed, all that follow are zero.
type Parser struct {
	Rest []byte // what is not parsed yet
	Bad  bool   // a value was malformed
}

// Uint reads an unsigned varint.
func (p *Parser) Uint() uint64 {
	v, n := binary.Uvarint(p.Rest)
	if n <= 0 {
		p.Rest, p.Bad = nil, true
		return 0
	}
	p.Rest = p.Rest[n:]
	return v
}

// Int reads a signed (zigzag) varint.
func (p *Parser) Int() int64 {
	u := p.Uint()
	return int64(u>>1) ^ -int64(u&1)
}

// Count reads an unsigned varint that is malformed above limit: the size of what is to be allocated.
func (p *Parser) Count(limit uint64) int {
	v := p.Uint()
	if v > limit {
		p.Rest, p.Bad = nil, true
		return 0
	}
	return int(v)
}

// Byte reads one byte.
func (p *Parser) Byte() byte {
	if len(p.Rest) == 0 {
		p.Bad = true
		return 0
	}
	c := p.Rest[0]
	p.Rest = p.Rest[1:]
	return c
}

// Bytes reads n bytes, which share memory with Rest.
func (p *Parser) Bytes(n int) []byte {
	if n < 0 || n > len(p.Rest) {
		p.Rest, p.Bad = nil, true
		return nil
	}
	v := p.Rest[:n:n]
	p.Rest = p.Rest[n:]
	return v
}
