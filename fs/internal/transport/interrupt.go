package transport

import (
	"encoding/binary"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"snapfs/internal/processes"
)

const (
	// signaledEach is how often programs that wait and got a signal are checked for whether they were killed, and
	// maxSignaled how many each time.
	signaledEach = time.Second
	maxSignaled  = 256
	// maxRecent is how many signals are remembered for requests that are still on their way to a work queue.
	maxRecent = 64
)

// recentSignals remembers for which requests INTERRUPT came lately. It may come before the request, which takes another
// way (a ring, or another reader of the device). An answer of EAGAIN, which has the kernel repeat it, is of no use: it
// does not find requests of a ring by that. The kernel uses no request number twice.
type recentSignals struct {
	count   atomic.Uint64
	numbers [maxRecent]atomic.Uint64
}

func (e *recentSignals) add(unique uint64) { e.numbers[(e.count.Add(1)-1)%maxRecent].Store(unique) }

func (e *recentSignals) has(unique uint64) bool {
	for i := range min(e.count.Load(), maxRecent) {
		if e.numbers[i].Load() == unique {
			return true
		}
	}
	return false
}

// interrupted handles INTERRUPT: a program which waits for an answer got a signal. If it was killed and its request
// waits in a work queue, the request is refused: its memory is free and the program can end. What is not killed waits
// on, since programs do not expect EINTR of a file; it is checked later, because the kernel tells of the first signal
// only.
func (d *device) interrupted(unique uint64) {
	d.signals.add(unique) // before the search: workQueue.add looks here after it has added a request
	for i := range d.work {
		if d.work[i].refuseKilled(unique) {
			return
		}
	}
}

// refuseKilled refuses a request if its program was killed, and reports whether the request waits here.
func (n *workQueue) refuseKilled(unique uint64) (found bool) {
	n.mu.Lock()
	e := n.byID[unique]
	if e == nil {
		n.mu.Unlock()
		return false
	}
	w, _ := e.Value.(*waiter)
	w.signaled = true
	dead := killed(w.r.header().Pid)
	if dead {
		n.remove(e)
	}
	n.mu.Unlock()
	if dead {
		n.refuse(w, fuse.Status(unix.EINTR))
	} else {
		n.d.checkLater()
	}
	return true
}

// checkLater has checkSignaled called.
func (d *device) checkLater() {
	if d.checkPending.CompareAndSwap(false, true) {
		time.AfterFunc(signaledEach, d.checkSignaled)
	}
}

// checkSignaled checks the programs that got a signal, as long as there are any.
func (d *device) checkSignaled() {
	d.checkPending.Store(false)
	for i := range d.work {
		n := &d.work[i]
		var signaled []uint64
		n.mu.Lock()
		for e := n.waiting.Front(); e != nil && len(signaled) < maxSignaled; e = e.Next() {
			if w, _ := e.Value.(*waiter); w.signaled {
				signaled = append(signaled, w.r.header().Unique)
			}
		}
		n.mu.Unlock()
		for _, unique := range signaled {
			n.refuseKilled(unique)
		}
	}
}

// killed reports whether a thread was killed. One of another process namespace, 0, is unknown.
func killed(tid uint32) bool {
	if tid == 0 {
		return false
	}
	s, _ := processes.StatOfProcess(int(tid))
	return s.Killed()
}

// interruptedOf takes the number out of an INTERRUPT, struct fuse_interrupt_in.
func interruptedOf(req []byte) (unique uint64, ok bool) {
	const at = int(unsafe.Sizeof(fuse.InHeader{}))
	if len(req) < at+8 {
		return 0, false
	}
	return binary.NativeEndian.Uint64(req[at:]), true
}
