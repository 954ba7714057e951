package transport

import (
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/fs/internal/proto"
)

// thread is one thread of a lane.
type thread struct {
	l      *lane
	seq    atomic.Uint64 // odd while it handles a request
	resume chan struct{} // ends its being parked

	sched atomic.Pointer[schedIdle] // main's; nil for others

	// Guarded by lane.mu.
	tid        int    // 0: not known yet
	seen       uint64 // what the watchdog saw last
	same       int    // at how many looks
	writtenOff bool   // its entries are written off
	e          *entry // what it handles now
	reclaim    bool   // must reclaim memory of its entries
}

// setOwner notes which thread submits the queued entries. With mu held.
func (l *lane) setOwner(h *thread) {
	for _, e := range l.unsent {
		e.owner = h
	}
	l.unsent = l.unsent[:0]
}

// submit submits what is queued. With mu held.
func (l *lane) submit(h *thread) {
	l.setOwner(h)
	for n := l.ring.Queued(); n > 0; n = l.ring.Queued() {
		if errno := l.ring.Submit(n); errno != 0 && errno != unix.EINTR {
			l.note(errno)
			return // it is retried before a thread waits
		}
	}
}

// run serves the lane, and is parked when it is not needed.
func (h *thread) run(bind bool) {
	runtime.LockOSThread()
	h.l.mu.Lock()
	h.tid = unix.Gettid()
	h.l.mu.Unlock()
	if bind && h.l.cpu >= 0 {
		var set unix.CPUSet
		set.Set(h.l.cpu)
		if unix.SchedSetaffinity(0, &set) == nil { // else the processor went away; it is served from any other
			h.sched.Store(newSchedIdle(&h.l.watched))
		}
	}
	for {
		e := h.fetch()
		if e == nil {
			<-h.resume
			continue
		}
		h.l.ensureWatched()
		h.sched.Load().noteSender(e.header().Pid, h.l.cpu)
		h.seq.Add(1)
		touched := e.handle()
		h.seq.Add(1)
		h.l.finish(h, e, touched)
	}
}

// fetch waits for a request that this thread must handle; nil: it is not needed any more, for now.
func (h *thread) fetch() *entry {
	l := h.l
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		if h.reclaim {
			h.reclaim = l.reclaim(h)
		}
		if h != l.main && l.main.seq.Load()%2 == 0 && !h.reclaim {
			l.drain(h)
			l.submit(h) // what it answered itself
			l.park(h)
			l.wakeUp() // to submit what was left over
			return nil
		}
		if e := l.take(h); e != nil {
			return e
		}
		l.drain(h)
		if len(l.serving) > 1 { // the owner of each entry must be known
			l.submit(h)
		}
		if h.reclaim || len(l.backlog) > 0 && l.ring.More() {
			continue
		}
		l.setOwner(h)
		n := l.ring.Queued()
		l.waiting++
		l.mu.Unlock()
		var errno unix.Errno
		if h == l.main {
			c := h.sched.Load()
			c.enter()
			errno = l.ring.Enter(n)
			c.exit()
		} else {
			errno = l.ring.EnterFor(n)
		}
		l.mu.Lock()
		l.waiting--
		if pause := l.note(errno); pause > 0 {
			l.mu.Unlock()
			time.Sleep(pause)
			l.mu.Lock()
		}
	}
}

// take finds a request among the completions that this thread must handle. With mu held.
func (l *lane) take(h *thread) *entry {
	for {
		c, ok := l.ring.Pop()
		if !ok {
			return nil
		}
		switch c.UserData {
		case tagWake:
			l.signaled = false
			l.backlog = append(l.backlog, submission{cmd: cmdListen})
			continue
		case tagBarrier:
			close(l.barriers[0])
			l.barriers = l.barriers[1:]
			continue
		}
		e := l.entries[c.UserData]
		e.armed = false
		l.regain(e)
		if c.Res != 0 {
			l.retire(e, unix.Errno(-c.Res))
			continue
		}
		e.q.busy++
		l.sawRequests = true
		weight := e.moves()
		op := e.header().Opcode
		e.kind = kindOf(op)
		if slow(op) || weight > heavyWeight && (op == proto.OpRead || l.ring.More()) || !l.mayInline(h, e) {
			l.pass(e)
			continue
		}
		if n := l.ring.Queued(); n >= batch || n > 0 && weight > lightWeight {
			l.submit(h)
		}
		h.e = e
		return e
	}
}

// mayInline reports whether a thread may handle a request itself. A substitute leaves changes to work queues: a thread
// that hangs in a frozen host takes the entries that it submitted along, and those of the last one are all there are.
// With mu held.
func (l *lane) mayInline(h *thread, e *entry) bool {
	if e.kind == prompt {
		return true
	}
	if h != l.main && (e.kind != reading || len(l.serving) > maxInlineStuck) {
		return false
	}
	return e.q.u.work[e.kind].mayInline()
}

// pass has a goroutine handle a request, in its turn. With mu held.
func (l *lane) pass(e *entry) {
	e.q.grow()
	e.q.u.work[e.kind%prompt].add(e)
}

// ensureWatched makes sure that the watchdog looks after the lane.
func (l *lane) ensureWatched() {
	if !l.watched.Load() && l.watched.CompareAndSwap(false, true) {
		theHub().watch(l)
	}
}

// finish queues the answer of a request. h is nil if it was not handled by one of the lane's threads; then one of them
// must submit it.
func (l *lane) finish(h *thread, e *entry, touched int) {
	l.mu.Lock()
	e.q.busy--
	if e.stuck {
		e.stuck = false
		go e.q.u.work[e.kind].removeStuck() // it may start a goroutine
	}
	e.used = max(e.used, touched)
	if !e.dirty && e.used > 0 {
		e.dirty = true
		l.dirty = append(l.dirty, e)
	}
	if h != nil {
		h.e = nil
		if s := l.ring.Next(); s != nil {
			l.arm(s, submission{e, cmdCommit})
			l.mu.Unlock()
			return
		}
	}
	l.push(submission{e, cmdCommit})
}
