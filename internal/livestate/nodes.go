package livestate

import (
	"encoding/binary"
	"fmt"
	"iter"
	"math"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The region of nodes, little endian:
//
//	0       magic and version of the region, 8 bytes; 0: empty
//	8       end: slots from here on were never used, u64
//	16      which of the two places counts, u64: 0 or 1
//	4 KiB   place 0: u16 length, bytes of a path
//	8 KiB   place 1
//	12 KiB  slots of 48 bytes; the first one is not used
//
// A slot:
//
//	0   id       u64, 0: free
//	8   lookups  u64; in a free slot the next free one, which only its process goes by
//	16  parent   u64, the id of a directory, or what the owner's flags say
//	24  name     u64, a hash of the name there, or what the owner's flags say
//	32  inode    u64, the inode number
//	40  gen      u32
//	44  flags    u32, the owner's
//
// The id is written last and taken away first, so that a slot with an id is whole. A change of more than one word is a
// new slot, and then the end of the old one: of two slots of one id both are true.
const (
	nodesMagic  = "snfsno\x00\x01"
	endAt       = 8
	placeAt     = 16
	placesAt    = 4 << 10
	placeSize   = 4 << 10
	slotsAt     = 12 << 10
	slotSize    = 48
	firstGrowth = 256 << 10
	mostGrowth  = 64 << 20
)

// MaxPlace is the longest path of a place, in bytes.
const MaxPlace = placeSize - 2

// Node is what is recorded of a node.
type Node struct {
	ID, Lookups         uint64
	Parent, Name, Inode uint64
	Gen, Flags          uint32
}

// Nodes is the table of nodes of a state. Callers guard it. A slot is known by its number, which is never 0.
type Nodes struct {
	s    *State
	b    []byte
	end  uint32 // as in the region
	free uint32 // the first free slot; 0: none
	used int
}

// OpenNodes opens the table that the state has, or makes an empty one. ErrFormat for what is none. What the table says is
// the word of whoever wrote it: any number may be in any field.
func (s *State) OpenNodes() (*Nodes, error) {
	b, err := s.Nodes(firstGrowth)
	if err != nil {
		return nil, err
	}
	t := &Nodes{s: s, b: b}
	if binary.LittleEndian.Uint64(b) == 0 {
		binary.LittleEndian.PutUint64(b[endAt:], 1)
		t.end = 1
		t.store(0, binary.LittleEndian.Uint64([]byte(nodesMagic)))
		return t, nil
	}
	end := binary.LittleEndian.Uint64(b[endAt:])
	if string(b[:len(nodesMagic)]) != nodesMagic || end < 1 || end > uint64(t.room()) {
		return nil, fmt.Errorf("%w: no table of nodes", ErrFormat)
	}
	t.end = uint32(end)
	for i := t.end - 1; i > 0; i-- {
		if t.word(i, 0) == 0 {
			t.release(i)
		} else {
			t.used++
		}
	}
	return t, nil
}

// room is how many slots the mapping has, the unused first one included.
func (t *Nodes) room() int { return min((len(t.b)-slotsAt)/slotSize, math.MaxUint32) }

// store writes a word in one step, after all that was written before. Where the machine has the other byte order, nobody
// else reads it.
func (t *Nodes) store(at int, v uint64) {
	var le [8]byte
	binary.LittleEndian.PutUint64(le[:], v)
	atomic.StoreUint64((*uint64)(unsafe.Pointer(&t.b[at])), binary.NativeEndian.Uint64(le[:]))
}

func slotAt(slot uint32) int { return slotsAt + int(slot)*slotSize }

func (t *Nodes) word(slot uint32, at int) uint64 {
	return binary.LittleEndian.Uint64(t.b[slotAt(slot)+at:])
}

// Len is how many slots are used.
func (t *Nodes) Len() int { return t.used }

// Add records a node in a slot of its own. ENOSPC, or what the host says, if there is no room for it.
func (t *Nodes) Add(n Node) (slot uint32, err error) {
	if slot = t.free; slot != 0 {
		t.free = uint32(t.word(slot, 8))
	} else if slot, err = t.extend(); err != nil {
		return 0, err
	}
	t.used++
	b := t.b[slotAt(slot):][:slotSize]
	le := binary.LittleEndian
	le.PutUint64(b[8:], n.Lookups)
	le.PutUint64(b[16:], n.Parent)
	le.PutUint64(b[24:], n.Name)
	le.PutUint64(b[32:], n.Inode)
	le.PutUint32(b[40:], n.Gen)
	le.PutUint32(b[44:], n.Flags)
	t.store(slotAt(slot), n.ID)
	return slot, nil
}

// extend gives a slot that was never used.
func (t *Nodes) extend() (uint32, error) {
	if int(t.end) >= t.room() {
		if t.end == math.MaxUint32 {
			return 0, unix.ENOSPC
		}
		was := t.b
		b, err := t.s.Nodes(len(was) + min(len(was), mostGrowth))
		if err != nil {
			return 0, err
		}
		t.b = b
		if err := t.s.Unmap(was); err != nil {
			return 0, err
		}
	}
	slot := t.end
	t.end++
	t.store(endAt, uint64(t.end)) // the slot is zeros until it has an id
	return slot, nil
}

// Get gives what a slot says; its ID is 0 if it is free, or no slot.
func (t *Nodes) Get(slot uint32) Node {
	if slot == 0 || slot >= t.end {
		return Node{}
	}
	gen := t.word(slot, 40)
	return Node{
		ID: t.word(slot, 0), Lookups: t.word(slot, 8), Parent: t.word(slot, 16), Name: t.word(slot, 24),
		Inode: t.word(slot, 32), Gen: uint32(gen), Flags: uint32(gen >> 32),
	}
}

// Change makes a slot say something else of the same node, and gives the slot that says it then.
func (t *Nodes) Change(slot uint32, n Node) (uint32, error) {
	old := t.Get(slot)
	t.SetLookups(slot, n.Lookups)
	old.Lookups = n.Lookups
	flagged := old
	flagged.Gen, flagged.Flags = n.Gen, n.Flags
	switch {
	case old == n:
		return slot, nil
	case flagged == n:
		t.store(slotAt(slot)+40, uint64(n.Gen)|uint64(n.Flags)<<32)
		return slot, nil
	}
	next, err := t.Add(n)
	if err == nil {
		t.Remove(slot)
		slot = next
	}
	return slot, err
}

// SetLookups changes how many references the kernel has.
func (t *Nodes) SetLookups(slot uint32, lookups uint64) {
	binary.LittleEndian.PutUint64(t.b[slotAt(slot)+8:], lookups)
}

// Remove makes a slot free.
func (t *Nodes) Remove(slot uint32) {
	t.store(slotAt(slot), 0)
	t.release(slot)
	t.used--
}

func (t *Nodes) release(slot uint32) {
	binary.LittleEndian.PutUint64(t.b[slotAt(slot)+8:], uint64(t.free))
	t.free = slot
}

// All gives the used slots. The caller may change those that it has been given.
func (t *Nodes) All() iter.Seq2[uint32, Node] {
	return func(yield func(uint32, Node) bool) {
		for slot := uint32(1); slot < t.end; slot++ {
			if n := t.Get(slot); n.ID != 0 && !yield(slot, n) {
				return
			}
		}
	}
}

// Place gives the path that counts, and the one that did before or is to.
func (t *Nodes) Place() (now, other string) {
	which := int(binary.LittleEndian.Uint64(t.b[placeAt:]) & 1)
	return t.path(which), t.path(1 - which)
}

func (t *Nodes) path(which int) string {
	b := t.b[placesAt+which*placeSize:][:placeSize]
	n := int(binary.LittleEndian.Uint16(b))
	if n > MaxPlace {
		return ""
	}
	return string(b[2 : 2+n])
}

// SetPlace notes a path beside the one that counts. From settled on it counts.
func (t *Nodes) SetPlace(path string) (settled func(), err error) {
	if len(path) > MaxPlace {
		return nil, unix.ENAMETOOLONG
	}
	which := 1 - int(binary.LittleEndian.Uint64(t.b[placeAt:])&1)
	b := t.b[placesAt+which*placeSize:][:placeSize]
	binary.LittleEndian.PutUint16(b, 0)
	copy(b[2:], path)
	binary.LittleEndian.PutUint16(b, uint16(len(path)))
	return func() { t.store(placeAt, uint64(which)) }, nil
}
