package layers

import "snapfs/squashfs"

// A NodeID that is used for another inode has another generation, so that a handle of the first one
// (open_by_handle_at(2)) is stale.
//
// A generation comes from the time of birth, which tells apart the inodes that a host gives one number to, and which an
// image keeps. For those born in one tick of the host's clock the table remembers what has gone lately.

// generation is a node's first choice; never 0, which the kernel has for inodes without one.
func generation(birth squashfs.Time) uint32 {
	h := (uint64(birth.Sec)*1e9 + uint64(birth.Nsec)) * 0x9e3779b97f4a7c15
	return max(uint32(h>>32), 1)
}

// recentIDs is how many NodeIDs a table remembers: far more than are removed, forgotten and given out again in a tick
// of 10 ms.
const recentIDs = 256

// recently is what a table remembers of a NodeID.
type recently struct {
	id    NodeID
	birth uint32 // the inode's first choice
	gen   uint32 // what it got
	gone  bool   // it was removed
}

// generationLocked gives the generation of a node that comes into the table. mu is held.
func (t *table) generationLocked(id NodeID, birth squashfs.Time) uint32 {
	gen := generation(birth)
	if t.recent == nil {
		return gen
	}
	r := &t.recent[id%recentIDs]
	if r.id != id || r.birth != gen {
		return gen
	}
	if r.gone {
		r.gen, r.gone = max(r.gen+1, 1), false
	}
	return r.gen
}

// goneLocked notes that a node without a name leaves the table: its id may come again. mu is held.
func (t *table) goneLocked(n *node) {
	if t.recent == nil {
		t.recent = new([recentIDs]recently)
	}
	t.recent[n.id%recentIDs] = recently{n.id, n.birth, n.gen.Load(), true}
}
