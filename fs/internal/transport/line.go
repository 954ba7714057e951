package transport

import (
	"container/list"
	"sync/atomic"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"snapfs/internal/lockorder"
)

// pending is a request that is not handled by who met it.
type pending interface {
	// serve handles and answers it.
	serve()
	// refuse answers it with an error; nothing was done.
	refuse(st fuse.Status)
	// weight is how many bytes it keeps until then.
	weight() int64
	// from is its header.
	from() *fuse.InHeader
}

// line is where the requests of one kind and mount wait that would hold a thread each: behind a gate that is closed, or because
// the mount has as many under way as is fair. One that waits has no thread and no goroutine, only its memory.
type line struct {
	d    *device
	kind kind
	pool *pool

	blocked atomic.Int32 // requests that wait here, and those that are stuck where they were met

	mu      lockorder.Mutex[lockorder.Line]
	waiting list.List                // of *waiter, oldest first
	byID    map[uint64]*list.Element // of waiting, by the kernel's number
	running int                      // of pool

	starving bool // in pool.starved; guarded by pool.mu
}

// waiter is a request in a line.
type waiter struct {
	r        pending
	weight   int64
	signaled bool // the kernel says that a signal came
}

func (n *line) init(d *device, k kind) {
	n.d, n.kind, n.pool = d, k, pools()[k]
	n.byID = make(map[uint64]*list.Element)
}

// inline says whether a request may be handled where it was met.
func (n *line) inline() bool {
	return n.blocked.Load() < inlineMost && !n.pool.pressed.Load() && !n.held()
}

// held says whether the gate is closed for this kind of requests.
func (n *line) held() bool { return n.kind == changing && n.d.gate != nil && n.d.gate.Held() }

// give has a request handled in its turn. It does not wait and may be called with lane.mu.
func (n *line) give(r pending) {
	w := &waiter{r: r, weight: r.weight()}
	n.mu.Lock()
	if n.d.dead.Load() {
		n.mu.Unlock()
		go r.refuse(fuse.Status(unix.ENOTCONN)) // it may take lane.mu
		return
	}
	n.d.keep(w.weight)
	if n.waiting.Len() == 0 && n.admit() {
		n.mu.Unlock()
		go n.work(w)
		return
	}
	n.blocked.Add(1)
	n.byID[r.from().Unique] = n.waiting.PushBack(w)
	if w.signaled = n.d.early.has(r.from().Unique); w.signaled {
		n.d.lookLater()
	}
	w = n.next() // the gate may have opened meanwhile, and does not tell again
	n.mu.Unlock()
	if w != nil {
		go n.work(w)
	}
}

// admit counts one more that runs, if that is possible now. Under mu.
func (n *line) admit() bool {
	if n.held() || !n.pool.take(n, n.running) {
		return false
	}
	n.running++
	return true
}

// next takes out the request whose turn it is; nil if it has to wait or there is none. Under mu.
func (n *line) next() *waiter {
	first := n.waiting.Front()
	if first == nil || !n.admit() {
		return nil
	}
	return n.remove(first)
}

// remove takes out a request. Under mu.
func (n *line) remove(e *list.Element) *waiter {
	w, _ := n.waiting.Remove(e).(*waiter)
	delete(n.byID, w.r.from().Unique)
	n.blocked.Add(-1)
	return w
}

// advance starts what waits, as far as possible.
func (n *line) advance() {
	for {
		n.mu.Lock()
		w := n.next()
		n.mu.Unlock()
		if w == nil {
			return
		}
		go n.work(w)
	}
}

// work handles a request and then, in the same goroutine, those whose turn comes with its end.
func (n *line) work(w *waiter) {
	for w != nil {
		w.r.serve()
		n.d.letGo(w.weight)
		w = n.end()
	}
}

// end notes that one that ran has ended, and gives the one that takes its place.
func (n *line) end() *waiter {
	n.mu.Lock()
	n.running--
	others := n.pool.give(n.running)
	w := n.next()
	n.mu.Unlock()
	for _, o := range others {
		o.advance()
	}
	return w
}

// stuck notes that a request which is handled where it was met does not come back; unstuck that it did.
func (n *line) stuck() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.blocked.Add(1)
	n.pool.force(n.running)
	n.running++
}

func (n *line) unstuck() {
	n.blocked.Add(-1)
	if w := n.end(); w != nil {
		go n.work(w)
	}
}

// abandon refuses all that waits: the connection has ended.
func (n *line) abandon() {
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
		n.drop(w, fuse.Status(unix.ENOTCONN))
	}
}

// drop refuses one that was taken out.
func (n *line) drop(w *waiter, st fuse.Status) {
	w.r.refuse(st)
	n.d.letGo(w.weight)
}

// kept is the memory of all requests that wait or are handled by goroutines of their own, in bytes.
var kept atomic.Int64

// keep counts memory of a request.
func (d *device) keep(n int64) {
	d.kept.Add(n)
	kept.Add(n)
}

// letGo gives it back, and has somebody read the device again if nobody did for lack of it.
func (d *device) letGo(n int64) {
	d.kept.Add(-n)
	kept.Add(-n)
	if d.halted.Load() && !d.full() && d.halted.CompareAndSwap(true, false) {
		d.lead()
	}
}

// full says that the mount's requests keep as much memory as is fair: more stay with the kernel.
func (d *device) full() bool {
	return d.kept.Load() >= max(keptLeast, (keptLimit()-kept.Load())/keptBorrow)
}
