package transport

import (
	"sync"
	"sync/atomic"

	"snapfs/fs/internal/limits"
	"snapfs/internal/lockorder"
)

const (
	// maxBusy bounds the requests of one mount and kind that are handled at a time.
	maxBusy = 64
	// inlineMost is with how many of its kind stuck or given away a request is still handled where it was met.
	inlineMost = 2
	// threadsMost bounds the requests of one kind that are handled at a time beside those who meet them, of all mounts; each may hold a
	// thread. Where the host allows the process few threads, it is the threadShare-th part of what it allows, and threadsLeast at least.
	threadsMost  = 1536
	threadsLeast = 24
	threadShare  = 12
	// lentShare is which part of these is lent; the others are kept for mounts that have none. A mount may borrow the borrowShare-th part
	// of what is left at the time.
	lentShare   = 3
	borrowShare = 8
	// keptMost bounds the memory of requests that wait, in bytes, of all mounts: keptShare-th of the machine's. A mount may have a
	// quarter (keptBorrow) of what is left, and keptLeast in any case.
	keptMost   = 4 << 30
	keptShare  = 16
	keptBorrow = 4
	keptLeast  = 2 << 20
)

// pool is a number of threads that all mounts of the process share, for one kind of requests.
type pool struct {
	size    int
	pressed atomic.Bool // half of it is in use: nobody handles what may wait where it was met

	mu      lockorder.Mutex[lockorder.Pool]
	used    int
	lent    int     // of these, what mounts have beyond one
	starved []*line // have none, and got none
}

func newPool(size int) *pool { return &pool{size: size} }

// pools are the process's, by kind.
var pools = sync.OnceValue(func() (p [lines]*pool) {
	size := max(min(threadsMost, limits.Threads()/threadShare), threadsLeast)
	for i := range p {
		p[i] = newPool(size)
	}
	return p
})

// take gives a line another thread, if that is fair. Under n.mu; mine is how many it has.
func (p *pool) take(n *line, mine int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.used >= p.size && mine == 0 && !n.starving {
		n.starving = true
		p.starved = append(p.starved, n)
	}
	lend := (p.size/lentShare - p.lent + borrowShare - 1) / borrowShare
	if p.used >= p.size || mine > 0 && (mine >= maxBusy || mine > lend) {
		return false
	}
	p.count(1, mine)
	return true
}

// force takes one for somebody who has a thread already.
func (p *pool) force(mine int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count(1, mine)
}

// count adds n threads to a mount that has others beside. Under mu.
func (p *pool) count(n, others int) {
	p.used += n
	if others > 0 {
		p.lent += n
	}
	if pressed := p.used >= p.size/2; pressed != p.pressed.Load() {
		p.pressed.Store(pressed)
	}
}

// give takes one back of a mount that has mine left, and gives the lines that got none before. Who calls has them go on, without a lock.
func (p *pool) give(mine int) (next []*line) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count(-1, mine)
	next, p.starved = p.starved, nil
	for _, n := range next {
		n.starving = false
	}
	return next
}

// keptLimit is for how much memory of requests that wait there is room, in bytes.
var keptLimit = sync.OnceValue(func() int64 { return max(min(keptMost, limits.Memory()/keptShare), keptLeast) })
