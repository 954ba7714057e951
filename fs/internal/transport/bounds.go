package transport

import (
	"sync"
	"sync/atomic"

	"snapfs/internal/limits"
	"snapfs/internal/lockorder"
)

const (
	// maxBusy bounds the requests of one mount and kind that are handled at a time.
	maxBusy = 64
	// maxInlineStuck is with how many of its kind stuck or waiting a request is still handled by the thread that read
	// it.
	maxInlineStuck = 2
	// maxThreads bounds the requests of one kind, of all mounts, that goroutines of work queues handle at a time; each
	// may hold a thread. Where the host allows the process few threads, it is the threadShare-th part of what it
	// allows, and minThreads at least.
	maxThreads  = 1536
	minThreads  = 24
	threadShare = 12
	// lentShare is which part of these is lent; the others are kept for mounts that have none. A mount may borrow the
	// borrowShare-th part of what is left at the time.
	lentShare   = 3
	borrowShare = 8
	// maxMemory bounds the memory of requests that wait, in bytes, of all mounts: the memoryShare-th part of the
	// machine's. A mount may have a quarter (memoryBorrow) of what is left, and minMemory in any case.
	maxMemory    = 4 << 30
	memoryShare  = 16
	memoryBorrow = 4
	minMemory    = 2 << 20
)

// pool is a number of threads that all mounts of the process share, for one kind of requests.
type pool struct {
	size      int
	contended atomic.Bool // half of it is in use: what may wait goes to its work queue

	mu      lockorder.Mutex[lockorder.Pool] // guards the rest
	used    int
	lent    int          // of these, what mounts have beyond one
	starved []*workQueue // have no thread, and got none
}

func newPool(size int) *pool { return &pool{size: size} }

// pools are the process's, by kind.
var pools = sync.OnceValue(func() (p [waitingKinds]*pool) {
	size := max(min(maxThreads, limits.Threads()/threadShare), minThreads)
	for i := range p {
		p[i] = newPool(size)
	}
	return p
})

// acquire gives a work queue another thread, if that is fair. mine is how many it has. With n.mu held.
func (p *pool) acquire(n *workQueue, mine int) bool {
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

// acquireForced counts a thread that a request holds already.
func (p *pool) acquireForced(mine int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count(1, mine)
}

// count adds n threads to a mount that has others beside. With mu held.
func (p *pool) count(n, others int) {
	p.used += n
	if others > 0 {
		p.lent += n
	}
	if pressed := p.used >= p.size/2; pressed != p.contended.Load() {
		p.contended.Store(pressed)
	}
}

// release takes a thread back from a mount that has mine left, and returns the work queues that got none before.
// Callers must call their advance, without a lock.
func (p *pool) release(mine int) (next []*workQueue) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count(-1, mine)
	next, p.starved = p.starved, nil
	for _, n := range next {
		n.starving = false
	}
	return next
}

// memoryLimit is how much memory requests that wait may have, of all mounts, in bytes.
var memoryLimit = sync.OnceValue(func() int64 { return max(min(maxMemory, limits.Memory()/memoryShare), minMemory) })
