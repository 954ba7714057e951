package pack

import (
	"encoding/binary"
	"hash/crc32"
	"slices"

	"snapfs/chunkstore/internal/corrupt"
	"snapfs/chunkstore/internal/frame"
	"snapfs/internal/varint"
)

// Kind says what a record holds.
type Kind byte

const (
	Stored   Kind = iota + 1 // chunks as they are
	Block                    // chunks in one frame, whose dictionary is one base, or none
	Delta                    // one chunk in a frame whose dictionary is its bases, one behind the other
	Journal                  // no chunks: an entry of the journal
	prefixed                 // as it is written: a Block with a base
)

// Bounds of a record; readers refuse what is beyond them.
const (
	recordFixed = 5        // crc and kind
	digested    = 1 << 4   // flag of the kind: the record has a digest
	DigestSize  = 4        // bytes of a digest
	MaxRecord   = 16 << 20 // bytes of a record
	MaxRaw      = 4 << 20  // decoded bytes of a record
	MaxMembers  = 1 << 16  // chunks of a record
	MaxBases    = 64       // bases of a delta
	MaxBehind   = 8 << 20  // decoded bytes behind one delta
	maxGen      = 1 << 30  // of a delta
)

var crcTable = crc32.MakeTable(crc32.Castagnoli)

// Member is a chunk in a record.
type Member struct {
	Num uint64
	Len int // bytes
}

// Record is a parsed or a new record.
type Record struct {
	Kind    Kind
	Members []Member
	Gen     int      // of a delta: greater than that of its bases, so that chains end; 0 if it is none
	Bases   []uint64 // of a delta; of a block at most one
	Digest  []byte   // DigestSize bytes of what the chunks hash to; none in records of stores of version 1
	Frame   []byte
	Size    int64  // of a parsed record, as it lies in the pack
	whole   []byte // of a parsed record: all of it
}

// FrameWithMagic gives the frame of a parsed record with its magic number, which it writes over what lies before the
// frame.
func (r *Record) FrameWithMagic() []byte {
	b := r.whole[len(r.whole)-len(r.Frame)-len(frame.Magic):]
	copy(b, frame.Magic)
	return b
}

// RawSize is the length of the chunks together.
func (r *Record) RawSize() int {
	n := 0
	for _, m := range r.Members {
		n += m.Len
	}
	return n
}

// AppendRecord appends the encoded record to dst.
func AppendRecord(dst []byte, r *Record) []byte {
	kind := byte(r.Kind)
	if r.Kind == Block && len(r.Bases) > 0 {
		kind = byte(prefixed)
	}
	body := []byte(nil)
	if len(r.Digest) > 0 {
		kind |= digested
		body = append(body, r.Digest[:DigestSize]...)
	}
	short := len(r.Digest) > 0 && r.Kind == Delta
	if !short {
		body = binary.AppendUvarint(body, uint64(len(r.Members)))
	}
	prev := uint64(0)
	for _, m := range r.Members {
		body = binary.AppendVarint(body, int64(m.Num-prev))
		body = binary.AppendUvarint(body, uint64(m.Len))
		prev = m.Num
	}
	if r.Kind == Delta {
		gen := uint64(r.Gen)
		if short {
			gen <<= 1
			if len(r.Bases) != 1 {
				gen |= 1
			}
		}
		body = binary.AppendUvarint(body, gen)
		if !short || len(r.Bases) != 1 {
			body = binary.AppendUvarint(body, uint64(len(r.Bases)))
		}
		for _, b := range r.Bases {
			body = binary.AppendVarint(body, int64(r.Members[0].Num-b))
		}
	}
	if r.Kind == Block && len(r.Bases) > 0 {
		body = binary.AppendVarint(body, int64(r.Members[0].Num-r.Bases[0]))
	}
	at := len(dst)
	dst = append(dst, 0, 0, 0, 0, kind)
	dst = binary.AppendUvarint(dst, uint64(len(body)+len(r.Frame)))
	dst = append(append(dst, body...), r.Frame...)
	binary.LittleEndian.PutUint32(dst[at:], crc32.Checksum(dst[at+4:], crcTable))
	return dst
}

// recordSize reads the whole length of the record that begins with b, of which 16 bytes, or all there are, suffice.
func recordSize(b []byte) (int64, error) {
	if len(b) < recordFixed+1 {
		return 0, corrupt.Errorf("record is cut short")
	}
	n, w := binary.Uvarint(b[recordFixed:])
	if w <= 0 || n > MaxRecord {
		return 0, corrupt.Errorf("record of a false length")
	}
	return int64(recordFixed+w) + int64(n), nil
}

// ParseRecord checks and parses the record that fills b.
func ParseRecord(b []byte) (*Record, error) {
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
	r := &Record{Kind: Kind(b[4] &^ digested), Size: size, whole: b}
	p := varint.Parser{Rest: b[recordFixed:]}
	p.Uint()
	count := -1
	if b[4]&digested != 0 {
		r.Digest = slices.Clone(p.Bytes(DigestSize))
		if r.Kind == Delta {
			count = 1
		}
	}
	var raw uint64
	if r.Members, raw, err = parseMembers(&p, count); err != nil {
		return nil, err
	}
	n, num := len(r.Members), uint64(0)
	if n > 0 {
		num = r.Members[n-1].Num
	}
	switch r.Kind {
	case Stored, Block:
	case prefixed:
		if n == 0 || r.Digest == nil {
			return nil, corrupt.Errorf("block with a base and no chunks or digest")
		}
		r.Kind = Block
		r.Bases = []uint64{r.Members[0].Num - uint64(p.Int())}
	case Journal:
		if n != 0 || r.Digest != nil {
			return nil, corrupt.Errorf("journal record with chunks")
		}
	case Delta:
		bases := 1
		if r.Gen = p.Count(maxGen << 1); r.Digest == nil {
			bases = p.Count(MaxBases)
		} else {
			if r.Gen&1 != 0 {
				bases = p.Count(MaxBases)
			}
			r.Gen >>= 1
		}
		if r.Gen > maxGen {
			return nil, corrupt.Errorf("delta of a false generation")
		}
		for range bases {
			r.Bases = append(r.Bases, num-uint64(p.Int()))
		}
		if n != 1 || len(r.Bases) == 0 {
			return nil, corrupt.Errorf("delta without a base")
		}
	default:
		return nil, corrupt.Errorf("record of unknown kind %d", r.Kind)
	}
	if p.Bad {
		return nil, corrupt.Errorf("record is malformed")
	}
	r.Frame = p.Rest
	if r.Kind == Stored && uint64(len(r.Frame)) != raw {
		return nil, corrupt.Errorf("stored record of a false length")
	}
	return r, nil
}

// parseMembers reads which chunks a record has; raw is how many bytes they have together. Their number n is read first
// if it is negative.
func parseMembers(p *varint.Parser, n int) (list []Member, raw uint64, err error) {
	if n < 0 {
		n = p.Count(MaxMembers)
	}
	list = make([]Member, 0, min(n, len(p.Rest)))
	num := uint64(0)
	for range n {
		num += uint64(p.Int())
		m := Member{num, p.Count(MaxRaw)}
		if raw += uint64(m.Len); p.Bad || raw > MaxRaw {
			return nil, 0, corrupt.Errorf("record of false members")
		}
		list = append(list, m)
	}
	return list, raw, nil
}
