package sketch

import (
	"encoding/binary"
	"errors"

	"snapfs/chunkstore/internal/corrupt"
	"snapfs/internal/lockorder"
)

// Parameters of sketches. Sketches are stored: changing one of these needs a new version of the format.
const (
	features   = 12
	minVotes   = 3       // equal features that make a chunk similar
	minSize    = 1 << 10 // shorter chunks have no sketch
	sampleMask = 0x3F    // one position of 64 counts
	warmUp     = 31      // bytes until the gear hash is a function of 32 and more bytes
	fewest     = 4       // counted positions below which a sketch says nothing
	Slots      = 1 << 16 // values of a feature
)

// Sketch describes a chunk so that similar chunks share features: a min-hash (Broder 1997) of the gear
// hashes at sampled positions, reduced to 16 bits a feature. Of two chunks that share a
// fraction s of their content, each feature is equal with probability s.
type Sketch [features]uint16

// tables are the constants of the gear hash and of the features' permutations, from a fixed generator.
var tables = func() (t struct {
	gear [256]uint64
	mul  [features]uint64
	add  [features]uint64
},
) {
	state := uint64(0x736E617066732D31)
	next := func() uint64 { // splitmix64 (Steele, Lea, Flood 2014)
		state += 0x9E3779B97F4A7C15
		z := state
		z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
		z = (z ^ z>>27) * 0x94D049BB133111EB
		return z ^ z>>31
	}
	for i := range t.gear {
		t.gear[i] = next()
	}
	for i := range t.mul {
		t.mul[i], t.add[i] = next()|1, next()
	}
	return t
}()

// Of computes a chunk's sketch; false if the chunk is too short or too uniform to have one.
func Of(data []byte) (Sketch, bool) {
	if len(data) < minSize {
		return Sketch{}, false
	}
	t := &tables
	var least [features]uint32
	for k := range least {
		least[k] = ^uint32(0)
	}
	var h, last uint64
	n := 0
	for i, b := range data {
		h = h<<1 + t.gear[b]
		if (h>>40)&sampleMask != 0 || i < warmUp || h == last {
			continue
		}
		last = h
		n++
		for k := range least {
			if v := uint32((h*t.mul[k] + t.add[k]) >> 32); v < least[k] {
				least[k] = v
			}
		}
	}
	if n < fewest {
		return Sketch{}, false
	}
	var s Sketch
	for k, v := range least {
		// The least of many values starts with zeros: mix before cutting to 16 bits.
		s[k] = uint16((v * 0x9E3779B1) >> 16)
	}
	return s, true
}

// Index finds the stored chunk that is most like a new one. It is a hint: it may forget and may
// name chunks that are gone. Per feature it holds one table from value to the newest chunk that has it,
// 3 MiB in all, however many chunks are stored; an old chunk fades as newer ones take its slots. Of a number it
// holds 32 bits, so one that is more than that behind the newest is taken for a newer one.
// Safe for concurrent use.
type Index struct {
	mu     lockorder.Mutex[lockorder.Sketches]
	slots  [features][]uint32 // low bits of chunk number + 1, 0 = none; made on first use; guarded by mu
	newest uint64             // the highest number + 1; guarded by mu
}

// Add makes chunk num findable.
func (x *Index) Add(num uint64, s Sketch) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.newest = max(x.newest, num+1)
	for k, v := range s {
		if x.slots[k] == nil {
			x.slots[k] = make([]uint32, Slots)
		}
		x.slots[k][v] = uint32(num) + 1
	}
}

// Find gives the chunk with the most features of s, at least minVotes, among those that usable (nil:
// all) accepts; the newest of equals. It calls usable with no lock held, for few numbers, best first.
func (x *Index) Find(s Sketch, usable func(num uint64) bool) (uint64, bool) {
	var nums [features]uint64 // numbers + 1
	var votes [features]int
	n := 0
	x.mu.Lock()
	for k, v := range s {
		if x.slots[k] == nil || x.slots[k][v] == 0 {
			continue
		}
		num := x.newest - uint64(uint32(x.newest)-x.slots[k][v])
		i := 0
		for i < n && nums[i] != num {
			i++
		}
		if i == n {
			nums[i] = num
			n++
		}
		votes[i]++
	}
	x.mu.Unlock()
	for {
		best := -1
		for i := range n {
			if votes[i] >= minVotes &&
				(best < 0 || votes[i] > votes[best] || votes[i] == votes[best] && nums[i] > nums[best]) {
				best = i
			}
		}
		if best < 0 {
			return 0, false
		}
		if num := nums[best] - 1; usable == nil || usable(num) {
			return num, true
		}
		votes[best] = 0
	}
}

// Entry is a chunk's number with its sketch, as it is stored.
type Entry struct {
	Num    uint64
	Sketch Sketch
}

// An index is stored as segments, one per batch of new chunks, and refilled by reading the newest segments; no chunk is
// read. Only chunks that are not deltas are worth storing: a delta's base is found in its stead.
//
//	segment: version (1 byte = 1), then per chunk:
//	         uvarint number - number before it (first: number), 12 features of 2 bytes, little-endian
const segmentVersion = 1

var errSegment = errors.New("not a sketch segment")

// AppendSegment appends the segment of chunks, in ascending order of numbers, to dst.
func AppendSegment(dst []byte, chunks []Entry) []byte {
	dst = append(dst, segmentVersion)
	prev := uint64(0)
	for _, c := range chunks {
		dst = binary.AppendUvarint(dst, c.Num-prev)
		prev = c.Num
		for _, v := range c.Sketch {
			dst = binary.LittleEndian.AppendUint16(dst, v)
		}
	}
	return dst
}

// ParseSegment reads a segment; of a damaged one the chunks before the damage.
func ParseSegment(b []byte) ([]Entry, error) {
	if len(b) == 0 || b[0] != segmentVersion {
		return nil, corrupt.Errorf("%w", errSegment)
	}
	b = b[1:]
	var list []Entry
	num := uint64(0)
	for len(b) > 0 {
		d, n := binary.Uvarint(b)
		if n <= 0 || len(b)-n < 2*features {
			return list, corrupt.Errorf("%w", errSegment)
		}
		b = b[n:]
		num += d
		c := Entry{Num: num}
		for k := range c.Sketch {
			c.Sketch[k] = binary.LittleEndian.Uint16(b[2*k:])
		}
		list = append(list, c)
		b = b[2*features:]
	}
	return list, nil
}

// Load adds a segment's chunks to the index; of a damaged one those before the damage.
func (x *Index) Load(b []byte) error {
	list, err := ParseSegment(b)
	for _, c := range list {
		x.Add(c.Num, c.Sketch)
	}
	return err
}

// Count gives about how many chunks a segment has.
func Count(segment []byte) int { return len(segment) / (2*features + 1) }
