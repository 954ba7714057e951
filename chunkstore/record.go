package chunkstore

import (
	"encoding/binary"
	"hash/crc32"

	"snapfs/chunkstore/internal/corrupt"
	"snapfs/chunkstore/internal/frame"
	"snapfs/chunkstore/internal/varint"
)

// A record of a pack says by itself which chunks it holds, so that the index can be rebuilt from packs alone:
//
//	crc     4 bytes, little-endian CRC-32C of everything behind it
//	kind    1 byte: recStored, recBlock, recDelta, recJournal
//	body    uvarint length of what follows
//	members uvarint count, then per chunk: varint number - number before it (first: number), uvarint length
//	chain   of a delta only: uvarint generation, uvarint count of bases, per base: varint number - base
//	frame   the chunks one behind the other, as they are or as one zstd frame
//
// A recJournal has no members; journal.go says what its frame is.
type recordKind byte

const (
	recStored  recordKind = iota + 1 // chunks as they are
	recBlock                         // chunks in one frame
	recDelta                         // one chunk in a frame whose dictionary is its bases, one behind the other
	recJournal                       // an entry of the journal
)

const (
	recordFixed = 5        // crc and kind
	maxRecord   = 16 << 20 // bytes of a record, a bound for readers
	maxRaw      = 4 << 20  // decoded bytes of a record
	maxMembers  = 1 << 16  // chunks of a record
	maxBases    = 64       // bases of a delta
	maxBehind   = 8 << 20  // decoded bytes behind one delta
)

var crcTable = crc32.MakeTable(crc32.Castagnoli)

// member is a chunk in a record.
type member struct {
	num uint64
	len int // bytes
}

// record is a parsed or a new record.
type record struct {
	kind    recordKind
	members []member
	gen     int      // of a delta: greater than that of its bases, so that chains end; 0 if it is none
	bases   []uint64 // of a delta
	frame   []byte
	size    int64  // of a parsed record, as it lies in the pack
	whole   []byte // of a parsed record: all of it
}

// magicFrame gives the frame of a parsed record with its magic number, which is written over what lies before the frame.
func (r *record) magicFrame() []byte {
	b := r.whole[len(r.whole)-len(r.frame)-len(frame.Magic):]
	copy(b, frame.Magic)
	return b
}

// raw is the length of the decoded record.
func (r *record) raw() int {
	n := 0
	for _, m := range r.members {
		n += m.len
	}
	return n
}

// appendRecord appends the encoded record to dst.
func appendRecord(dst []byte, r *record) []byte {
	body := binary.AppendUvarint(nil, uint64(len(r.members)))
	prev := uint64(0)
	for _, m := range r.members {
		body = binary.AppendVarint(body, int64(m.num-prev))
		body = binary.AppendUvarint(body, uint64(m.len))
		prev = m.num
	}
	if r.kind == recDelta {
		body = binary.AppendUvarint(body, uint64(r.gen))
		body = binary.AppendUvarint(body, uint64(len(r.bases)))
		for _, b := range r.bases {
			body = binary.AppendVarint(body, int64(r.members[0].num-b))
		}
	}
	at := len(dst)
	dst = append(dst, 0, 0, 0, 0, byte(r.kind))
	dst = binary.AppendUvarint(dst, uint64(len(body)+len(r.frame)))
	dst = append(append(dst, body...), r.frame...)
	binary.LittleEndian.PutUint32(dst[at:], crc32.Checksum(dst[at+4:], crcTable))
	return dst
}

// recordSize reads the whole length of the record that begins with b, of which 16 bytes, or all there are, suffice.
func recordSize(b []byte) (int64, error) {
	if len(b) < recordFixed+1 {
		return 0, corrupt.Errorf("record is cut short")
	}
	n, w := binary.Uvarint(b[recordFixed:])
	if w <= 0 || n > maxRecord {
		return 0, corrupt.Errorf("record of a false length")
	}
	return int64(recordFixed+w) + int64(n), nil
}

// parseRecord checks and parses the record that fills b.
func parseRecord(b []byte) (*record, error) {
	size, err := recordSize(b)
	if err != nil {
		return nil, err
	}
	if size != int64(len(b)) {
		return nil, corrupt.Errorf("record of %d bytes where %d are expected", size, len(b))
	}
	if binary.LittleEndian.Uint32(b) != crc32.Checksum(b[4:], crcTable) {
		return nil, corrupt.Errorf("record checksum")
	}
	r := &record{kind: recordKind(b[4]), size: size, whole: b}
	p := varint.Parser{Rest: b[recordFixed:]}
	p.Uint()
	var raw uint64
	if r.members, raw, err = parseMembers(&p); err != nil {
		return nil, err
	}
	n, num := len(r.members), uint64(0)
	if n > 0 {
		num = r.members[n-1].num
	}
	switch r.kind {
	case recStored, recBlock:
	case recJournal:
		if n != 0 {
			return nil, corrupt.Errorf("journal record with chunks")
		}
	case recDelta:
		r.gen = p.Count(1 << 30)
		for range p.Count(maxBases) {
			r.bases = append(r.bases, num-uint64(p.Int()))
		}
		if n != 1 || len(r.bases) == 0 {
			return nil, corrupt.Errorf("delta without a base")
		}
	default:
		return nil, corrupt.Errorf("record of unknown kind %d", r.kind)
	}
	if p.Bad {
		return nil, corrupt.Errorf("record is malformed")
	}
	r.frame = p.Rest
	if r.kind == recStored && uint64(len(r.frame)) != raw {
		return nil, corrupt.Errorf("stored record of a false length")
	}
	return r, nil
}

// parseMembers reads which chunks a record has; raw is how many bytes they have together.
func parseMembers(p *varint.Parser) (list []member, raw uint64, err error) {
	n := p.Count(maxMembers)
	list = make([]member, 0, min(n, len(p.Rest)))
	num := uint64(0)
	for range n {
		num += uint64(p.Int())
		m := member{num, p.Count(maxRaw)}
		if raw += uint64(m.len); p.Bad || raw > maxRaw {
			return nil, 0, corrupt.Errorf("record of false members")
		}
		list = append(list, m)
	}
	return list, raw, nil
}
