package layers

import (
	"sync/atomic"

	"golang.org/x/sys/unix"

	"snapfs/internal/hostspace"
)

// Reserve keeps room of a host's file system for others than the overlays that it is given to: for the store that takes
// what they have sealed. Where little more than that is free, the host is tight:
//
//	free   |··· calm ···|—— tight ——|#### reserve ####|
//	                    2 × least   least             0
//
// Then an overlay may grow only by as much as it leaves to the others, above the reserve. So one that writes without
// end gets a third of the tight zone, and the others can go on.
//
// While the host is calm, growth is only summed up, until the host is asked again.
//
// Of a host that is nearly full as it is, less is reserved: a quarter of what is free, as long as that suffices for what
// the store writes to put records away. It becomes more when more is free.
type Reserve struct {
	dir    string // immutable
	least  amount // what is reserved; no inodes: the host has no bound. It never becomes less.
	budget atomic.Int64
	tight  atomic.Bool
	epoch  atomic.Uint64 // counts the times that the host was calm again
}

// crowd is what an overlay has taken while the host is tight.
type crowd struct {
	epoch atomic.Uint64
	grown amount
}

// Of a file system, so much is reserved: a part, within a bound.
const (
	reserveShare  = 64
	reserveMost   = 1 << 30
	reserveInodes = 1 << 16
	// freeShare-th of what is free is reserved at most, but leastBytes and leastInodes in any case.
	freeShare   = 4
	leastBytes  = 64 << 20
	leastInodes = 1 << 12
	// reserveStep is by how much overlays may grow at most before the host is asked again.
	reserveStep = 64 << 20
)

// NewReserve keeps room on the file system that dir is on.
func NewReserve(dir string) (*Reserve, error) {
	r := &Reserve{dir: dir}
	st, err := r.ask()
	if err != nil {
		return nil, err
	}
	r.least.set(leastOf(&st))
	return r, nil
}

// leastOf is the reserve of a file system. Of what that does not tell, nothing is kept.
func leastOf(st *unix.Statfs_t) (u Usage) {
	free := freeOf(st)
	if tells(st.Bavail, st.Blocks) {
		u.Bytes = min(bytesOf(st.Blocks, st.Frsize)/reserveShare, reserveMost, max(free.Bytes/freeShare, leastBytes))
	}
	if tells(st.Ffree, st.Files) {
		u.Inodes = min(int64(min(st.Files/reserveShare, reserveInodes)), max(free.Inodes/freeShare, leastInodes))
	}
	return u
}

// freeOf is what is free of a file system. Of what that does not tell, there is no end: it refuses what it cannot take.
func freeOf(st *unix.Statfs_t) Usage {
	u := Usage{noEnd, noEnd / pageSize}
	if tells(st.Bavail, st.Blocks) {
		u.Bytes = bytesOf(st.Bavail, st.Frsize)
	}
	if tells(st.Ffree, st.Files) {
		u.Inodes = int64(min(st.Ffree, uint64(u.Inodes)))
	}
	return u
}

// noEnd is more than any file system has.
const noEnd = 1 << 62

// tells reports whether a file system tells how much it has, and what is free of that: some, of FUSE and of networks, give
// zeros or all ones.
func tells(free, all uint64) bool { return all > 0 && free <= all }

func bytesOf(blocks uint64, size int64) int64 {
	if size <= 0 || blocks > uint64(noEnd/size) {
		return noEnd
	}
	return int64(blocks) * size
}

func (r *Reserve) ask() (unix.Statfs_t, error) {
	return hostspace.Statfs(r.dir)
}

// asBytes is what an amount counts in a budget of bytes.
func (u Usage) asBytes() int64 { return u.Bytes + u.Inodes*pageSize }

// free gives what is free, and what of that is reserved.
func (r *Reserve) free() (u, least Usage, ok bool) {
	st, err := r.ask()
	if err != nil {
		return u, least, false
	}
	least = leastOf(&st)
	raise(&r.least.bytes, least.Bytes)
	raise(&r.least.inodes, least.Inodes)
	return freeOf(&st), r.least.get(), true
}

// raise makes a number larger.
func raise(n *atomic.Int64, to int64) {
	for old := n.Load(); to > old && !n.CompareAndSwap(old, to); old = n.Load() {
	}
}

// roomOver is how many bytes of what is free may be taken until the host is tight.
func roomOver(free, least Usage) int64 {
	rest := free.Bytes - 2*least.Bytes
	if least.Inodes > 0 {
		rest = min(rest, (free.Inodes-2*least.Inodes)*pageSize)
	}
	return rest
}

// calm reports whether so many bytes may be taken without further ado.
func (r *Reserve) calm(n int64) bool {
	if r.budget.Add(-n) >= 0 {
		return true
	}
	free, least, ok := r.free()
	if !ok {
		return true // the host will say
	}
	rest := roomOver(free, least)
	if rest <= 0 || n > rest {
		r.tight.Store(true)
		r.budget.Store(0)
		return false
	}
	if r.tight.Swap(false) {
		r.epoch.Add(1)
	}
	r.budget.Store(min(rest/4, reserveStep))
	return true
}

// grow reports whether an overlay may grow while the host is tight.
func (r *Reserve) grow(c *crowd, u Usage) bool {
	if !r.tight.Load() {
		return true
	}
	free, least, ok := r.free()
	if !ok {
		return true
	}
	if e := r.epoch.Load() + 1; c.epoch.Swap(e) != e {
		c.grown.set(Usage{})
	}
	tight := Usage{tightOf(u.Bytes, free.Bytes, least.Bytes), tightOf(u.Inodes, free.Inodes, least.Inodes)}
	has := c.grown.get().add(tight)
	if u.Bytes > 0 && has.Bytes > free.Bytes-least.Bytes-u.Bytes {
		return false
	}
	if u.Inodes > 0 && least.Inodes > 0 && has.Inodes > free.Inodes-least.Inodes-u.Inodes {
		return false
	}
	c.grown.add(tight)
	return true
}

// tightOf is what of a growth is taken while the host is tight: one that is large may begin before.
func tightOf(n, free, least int64) int64 { return max(0, n-max(0, free-2*least)) }

// has reports whether so many bytes are free beside the reserve.
func (r *Reserve) has(n int64) bool {
	if r == nil {
		return true
	}
	free, least, ok := r.free()
	return !ok || n <= free.Bytes-least.Bytes
}

// show takes the reserve from what is free.
func (r *Reserve) show(s *Statfs) {
	if r == nil || s.Frsize == 0 {
		return
	}
	least := uint64(r.least.bytes.Load()) / uint64(s.Frsize)
	s.Bavail -= min(s.Bavail, least)
}
