package readset

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

const (
	magic   = "snapfs reads 1\n"
	maxGap  = 1 << 10
	maxName = 255
	isWhole = 0x80 // beside kinds
)

// ErrDamaged says that what is to be decoded is not what Encode has made.
var ErrDamaged = errors.New("the record of what was read is damaged")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Encode gives the set as bytes.
func (s *Set) Encode() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := []byte(magic)
	b = appendName(b, s.gap)
	b = append(b, s.root.mark())
	b = binary.AppendUvarint(b, uint64(len(s.all)))
	number := make(map[*Entity]uint64, len(s.all)+1)
	number[s.root] = 0
	for i, e := range s.all {
		number[e] = uint64(i + 1)
		b = binary.AppendUvarint(b, number[e.parent])
		b = append(b, e.mark())
		b = appendName(b, e.name)
	}
	var holders []*Entity
	var gather func(dir *Entity)
	gather = func(dir *Entity) {
		for _, c := range dir.names {
			if _, met := number[c]; c.made && c != made && !met {
				number[c] = uint64(len(number))
				holders = append(holders, c)
				gather(c)
			}
		}
	}
	dirs := append([]*Entity{s.root}, s.all...)
	for _, e := range dirs {
		gather(e)
	}
	dirs = append(dirs, holders...)
	b = binary.AppendUvarint(b, uint64(len(holders)))
	number[made] = uint64(len(number))
	count := 0
	var places []byte
	for _, dir := range dirs {
		for name, c := range dir.names {
			if c.parent == dir && c.name == name && !c.made {
				continue
			}
			at, ok := number[c]
			if !ok {
				continue // it was moved, and became a part of something whole
			}
			count++
			places = binary.AppendUvarint(places, number[dir])
			places = appendName(places, name)
			places = binary.AppendUvarint(places, at)
		}
	}
	b = binary.AppendUvarint(b, uint64(count))
	b = append(b, places...)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

func (e *Entity) mark() byte {
	m := byte(e.kinds)
	if e.whole {
		m |= isWhole
	}
	return m
}

func appendName(b []byte, name string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(name))), name...)
}

// Decode makes a set of what Encode has made, that keeps at most so many entities apart; ErrDamaged.
func Decode(b []byte, most int) (*Set, error) {
	if len(b) < len(magic)+4 || string(b[:len(magic)]) != magic {
		return nil, fmt.Errorf("%w: it does not begin as one", ErrDamaged)
	}
	body, sum := b[:len(b)-4], binary.LittleEndian.Uint32(b[len(b)-4:])
	if crc32.Checksum(body, castagnoli) != sum {
		return nil, fmt.Errorf("%w: its checksum is another", ErrDamaged)
	}
	s := New(most)
	d := decoder{b: body[len(magic):]}
	s.gap = d.name(maxGap)
	s.root.setMark(d.byte())
	known := []*Entity{s.root}
	for range d.count() {
		parent := d.one(known)
		e := &Entity{parent: parent}
		e.setMark(d.byte())
		if e.name = d.name(maxName); d.err != nil {
			return nil, fmt.Errorf("%w: entity %d", ErrDamaged, len(known))
		}
		if !parent.whole {
			parent.put(e.name, e)
		}
		known = append(known, e)
		s.all = append(s.all, e)
	}
	for range d.count() {
		known = append(known, &Entity{made: true})
	}
	known = append(known, made)
	for range d.count() {
		dir, name, at := d.one(known), d.name(maxName), d.one(known)
		if d.err != nil || dir.whole || dir == made || at == s.root {
			return nil, fmt.Errorf("%w: a place", ErrDamaged)
		}
		dir.put(name, at)
	}
	if d.err != nil || len(d.b) > 0 {
		return nil, fmt.Errorf("%w: its length is wrong", ErrDamaged)
	}
	s.limit()
	return s, nil
}

func (e *Entity) setMark(m byte) {
	e.kinds, e.whole = Kind(m)&(All|replaced), m&isWhole != 0
}

// decoder takes values off b. After the first error all are zero.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) byte() byte {
	if d.err != nil || len(d.b) == 0 {
		d.err = ErrDamaged
		return 0
	}
	v := d.b[0]
	d.b = d.b[1:]
	return v
}

func (d *decoder) number() uint64 {
	v, n := binary.Uvarint(d.b)
	if d.err != nil || n <= 0 {
		d.err = ErrDamaged
		return 0
	}
	d.b = d.b[n:]
	return v
}

// count is a number of things of which each takes a byte or more, but for directories that programs made.
func (d *decoder) count() uint64 {
	v := d.number()
	if v > uint64(len(d.b)) {
		d.err = ErrDamaged
		return 0
	}
	return v
}

func (d *decoder) name(most int) string {
	n := d.number()
	if d.err != nil || n > uint64(min(most, len(d.b))) {
		d.err = ErrDamaged
		return ""
	}
	v := string(d.b[:n])
	d.b = d.b[n:]
	return v
}

// one gives the entity of a number; the first one after an error.
func (d *decoder) one(known []*Entity) *Entity {
	n := d.number()
	if n >= uint64(len(known)) {
		d.err = ErrDamaged
		return known[0]
	}
	return known[n]
}
