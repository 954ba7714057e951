package transport

import (
	"container/list"
	"sync/atomic"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"snapfs/internal/lockorder"
)

// pending is a request that is not handled by the thread that read it.
type pending interface {
	// serve handles and answers it.
	serve()
	// refuse answers it with an error; nothing was done.
	refuse(st fuse.Status)
	// weight is how much memory it takes until then, in bytes.
	weight() int64
	// header is its header.
	header() *fuse.InHeader
}

// workQueue is where the requests of one kind and mount wait that would hold a thread each: behind a gate that is
// closed, or because the mount has as many under way as is fair. One that waits has no thread and no goroutine, only
// its memory.
type workQueue struct {
	d    *device
	kind kind
	pool *pool

	blocked atomic.Int32 // requests that wait here, and those in whose handling a leader or ring thread is stuck

	mu      lockorder.Mutex[lockorder.WorkQueue] // guards the next three
	waiting list.List                            // of *waiter, oldest first
	byID    map[uint64]*list.Element             // of waiting, by request number
	running int                                  // has this many threads of pool

	starving bool // in pool.starved; guarded by pool.mu
}

// waiter is a request in a work queue.
type waiter struct {
	r        pending
	weight   int64
	signaled bool // its program got a signal
}

func (n *workQueue) init(d *device, k kind) {
	n.d, n.kind, n.pool = d, k, pools()[k]
	n.byID = make(map[uint64]*list.Element)
}

// mayInline reports whether a request may be handled by the thread that read it.
func (n *workQueue) mayInline() bool {
	return n.blocked.Load() < maxInlineStuck && !n.pool.contended.Load() && !n.held()
}

// held reports whether the gate is closed for this kind of requests.
func (n *workQueue) held() bool { return n.kind == changing && n.d.gate != nil && n.d.gate.Held() }

// add has a request handled in its turn. It does not wait and may be called with lane.mu held.
func (n *workQueue) add(r pending) {
	w := &waiter{r: r, weight: r.weight()}
	n.mu.Lock()
	if n.d.dead.Load() {
		n.mu.Unlock()
		go r.refuse(fuse.Status(unix.ENOTCONN)) // it may take lane.mu
		return
	}
	n.d.charge(w.weight)
	if n.waiting.Len() == 0 && n.admit() {
		n.mu.Unlock()
		go n.run(w)
		return
	}
	n.blocked.Add(1)
	n.byID[r.header().Unique] = n.waiting.PushBack(w)
	if w.signaled = n.d.signals.has(r.header().Unique); w.signaled {
		n.d.checkLater()
	}
	w = n.next() // the gate may have opened meanwhile, and does not tell again
	n.mu.Unlock()
	if w != nil {
		go n.run(w)
	}
}

// admit counts one more that runs, if that is possible now. With mu held.
func (n *workQueue) admit() bool {
	if n.held() || !n.pool.acquire(n, n.running) {
		return false
	}
	n.running++
	return true
}

// next takes out the request whose turn it is; nil if it has to wait or there is none. With mu held.
func (n *workQueue) next() *waiter {
	first := n.waiting.Front()
	if first == nil || !n.admit() {
		return nil
	}
	return n.remove(first)
}

// remove takes out a request. With mu held.
func (n *workQueue) remove(e *list.Element) *waiter {
	w, _ := n.waiting.Remove(e).(*waiter)
	delete(n.byID, w.r.header().Unique)
	n.blocked.Add(-1)
	return w
}

// advance starts what waits, as far as possible.
func (n *workQueue) advance() {
	for {
		n.mu.Lock()
		w := n.next()
		n.mu.Unlock()
		if w == nil {
			return
		}
		go n.run(w)
	}
}

// run handles a request and then, in the same goroutine, those whose turn comes with its end.
func (n *workQueue) run(w *waiter) {
	for w != nil {
		w.r.serve()
		n.d.release(w.weight)
		w = n.finish()
	}
}

// finish notes that one that ran has ended, and returns the one that takes its place.
func (n *workQueue) finish() *waiter {
	n.mu.Lock()
	n.running--
	others := n.pool.release(n.running)
	w := n.next()
	n.mu.Unlock()
	for _, o := range others {
		o.advance()
	}
	return w
}

// addStuck counts a request in whose handling a leader or ring thread is stuck; removeStuck that it has returned.
func (n *workQueue) addStuck() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.blocked.Add(1)
	n.pool.acquireForced(n.running)
	n.running++
}

func (n *workQueue) removeStuck() {
	n.blocked.Add(-1)
	if w := n.finish(); w != nil {
		go n.run(w)
	}
}

// refuseAll refuses all that waits: the connection has ended.
func (n *workQueue) refuseAll() {
	for {
		n.mu.Lock()
		var w *waiter
		if first := n.waiting.Front(); first != nil {
			w = n.remove(first)
		}
		n.mu.Unlock()
		if w == nil {
			return
		}
		n.refuse(w, fuse.Status(unix.ENOTCONN))
	}
}

// refuse refuses one that was taken out.
func (n *workQueue) refuse(w *waiter, st fuse.Status) {
	w.r.refuse(st)
	n.d.release(w.weight)
}

// chargedTotal is the memory of all requests that are in work queues, of all mounts, in bytes.
var chargedTotal atomic.Int64

// charge counts the memory of a request.
func (d *device) charge(n int64) {
	d.charged.Add(n)
	chargedTotal.Add(n)
}

// release gives it back, and has the device read on if reading had stopped for lack of it.
func (d *device) release(n int64) {
	d.charged.Add(-n)
	chargedTotal.Add(-n)
	if d.halted.Load() && !d.full() && d.halted.CompareAndSwap(true, false) {
		d.lead()
	}
}

// full reports whether the mount's requests take as much memory as is fair: more stay with the kernel.
func (d *device) full() bool {
	return d.charged.Load() >= max(minMemory, (memoryLimit()-chargedTotal.Load())/memoryBorrow)
}
