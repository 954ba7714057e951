package chunkstore

import (
	"encoding/binary"
	"errors"
	"sync"

	"snapfs/chunkstore/internal/corrupt"
)

// Parameters of sketches. They are persisted: changing one needs a new schema version.
const (
	sketchFeatures = 12
	sketchVotes    = 3       // equal features that make a chunk similar
	sketchMin      = 1 << 10 // shorter chunks have no sketch
	sketchSample   = 0x3F    // one position of 64 counts
	sketchWarmUp   = 31      // bytes until the gear hash is a function of 32 and more bytes
	sketchFewest   = 4       // counted positions below which a sketch says nothing
	sketchSlots    = 1 << 16 // values of a feature
)

// sketch describes a chunk so that similar chunks share features: a min-hash (Broder 1997) of the gear
// hashes at sampled positions, reduced to 16 bits a feature. Of two chunks that share a
// fraction s of their content, each feature is equal with probability s.
type sketch [sketchFeatures]uint16

// sketchTables are the constants of the gear hash and of the features' permutations, from a fixed generator.
var sketchTables = func() (t struct {
	gear [256]uint64
	mul  [sketchFeatures]uint64
	add  [sketchFeatures]uint64
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

// sketchOf computes a chunk's sketch; false if the chunk is too short or too uniform to have one.
func sketchOf(data []byte) (sketch, bool) {
	if len(data) < sketchMin {
		return sketch{}, false
	}
	t := &sketchTables
	var least [sketchFeatures]uint32
	for k := range least {
		least[k] = ^uint32(0)
	}
	var h, last uint64
	n := 0
	for i, b := range data {
		h = h<<1 + t.gear[b]
		if (h>>40)&sketchSample != 0 || i < sketchWarmUp || h == last {
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
	if n < sketchFewest {
		return sketch{}, false
	}
	var s sketch
	for k, v := range least {
		// The least of many values starts with zeros: mix before cutting to 16 bits.
		s[k] = uint16((v * 0x9E3779B1) >> 16)
	}
	return s, true
}

// sketchIndex finds the stored chunk that is most like a new one. It is a hint: it may forget and may
// name chunks that are gone. Per feature it holds one table from value to the newest chunk that has it,
// 3 MiB in all, however many chunks are stored; an old chunk fades as newer ones take its slots.
// Safe for concurrent use.
type sketchIndex struct {
	mu    sync.Mutex
	slots [sketchFeatures][]uint32 // chunk number + 1, 0 = none; made on first use; guarded by mu
}

// add makes chunk num findable. Numbers beyond 32 bits are not indexed.
func (x *sketchIndex) add(num uint64, s sketch) {
	if num >= 1<<32-1 {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for k, v := range s {
		if x.slots[k] == nil {
			x.slots[k] = make([]uint32, sketchSlots)
		}
		x.slots[k][v] = uint32(num) + 1
	}
}

// find gives the chunk with the most features of s, at least sketchVotes, among those that usable (nil:
// all) accepts; the newest of equals. It calls usable with no lock held, for few numbers, best first.
func (x *sketchIndex) find(s sketch, usable func(num uint64) bool) (uint64, bool) {
	var nums [sketchFeatures]uint32
	var votes [sketchFeatures]int
	n := 0
	x.mu.Lock()
	for k, v := range s {
		if x.slots[k] == nil || x.slots[k][v] == 0 {
			continue
		}
		num := x.slots[k][v]
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
			if votes[i] >= sketchVotes &&
				(best < 0 || votes[i] > votes[best] || votes[i] == votes[best] && nums[i] > nums[best]) {
				best = i
			}
		}
		if best < 0 {
			return 0, false
		}
		if num := uint64(nums[best] - 1); usable == nil || usable(num) {
			return num, true
		}
		votes[best] = 0
	}
}

// sketched is a chunk's number with its sketch, as it is persisted.
type sketched struct {
	num uint64
	s   sketch
}

// The index is persisted as one segment per ingest, written with its records, and refilled by reading
// the newest segments; no chunk is read. Only chunks that are not deltas are worth persisting: a
// delta's base is found in its stead.
//
//	segment: version (1 byte = 1), then per chunk:
//	         uvarint number - number before it (first: number), 12 features of 2 bytes, little-endian
const segmentVersion = 1

var errSegment = errors.New("not a sketch segment")

// appendSegment appends the segment of chunks, in ascending order of numbers, to dst.
func appendSegment(dst []byte, chunks []sketched) []byte {
	dst = append(dst, segmentVersion)
	prev := uint64(0)
	for _, c := range chunks {
		dst = binary.AppendUvarint(dst, c.num-prev)
		prev = c.num
		for _, v := range c.s {
			dst = binary.LittleEndian.AppendUint16(dst, v)
		}
	}
	return dst
}

// parseSegment reads a segment; of a damaged one the chunks before the damage.
func parseSegment(b []byte) ([]sketched, error) {
	if len(b) == 0 || b[0] != segmentVersion {
		return nil, corrupt.Errorf("%w", errSegment)
	}
	b = b[1:]
	var list []sketched
	num := uint64(0)
	for len(b) > 0 {
		d, n := binary.Uvarint(b)
		if n <= 0 || len(b)-n < 2*sketchFeatures {
			return list, corrupt.Errorf("%w", errSegment)
		}
		b = b[n:]
		num += d
		c := sketched{num: num}
		for k := range c.s {
			c.s[k] = binary.LittleEndian.Uint16(b[2*k:])
		}
		list = append(list, c)
		b = b[2*sketchFeatures:]
	}
	return list, nil
}

// loadSegment adds a segment's chunks to the index; of a damaged one those before the damage.
func (x *sketchIndex) loadSegment(b []byte) error {
	list, err := parseSegment(b)
	for _, c := range list {
		x.add(c.num, c.s)
	}
	return err
}

// sketchCount tells about how many chunks a segment has.
func sketchCount(segment []byte) int { return len(segment) / (2*sketchFeatures + 1) }
