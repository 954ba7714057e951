package transport

import (
	"runtime"
	"sync/atomic"
	"time"

	"snapfs/fs/internal/proto"

	"golang.org/x/sys/unix"
)

// hand is one thread of a lane.
type hand struct {
	l    *lane
	seq  atomic.Uint64 // odd while it handles a request
	call chan struct{} // ends its leisure

	courtesy atomic.Pointer[courtesy] // main's; nil for others

	// Guarded by lane.mu.
	tid     int    // 0: not known yet
	seen    uint64 // what the watchdog saw last
	same    int    // at how many looks
	away    bool   // its entries are written off
	e       *entry // what it handles
	reclaim bool   // shall give memory of its entries back
}

// sign notes whose the entries are that are submitted now. Under mu.
func (l *lane) sign(h *hand) {
	for _, e := range l.unsent {
		e.owner = h
	}
	l.unsent = l.unsent[:0]
}

// submit hands in what is queued. Under mu.
func (l *lane) submit(h *hand) {
	l.sign(h)
	for n := l.ring.Queued(); n > 0; n = l.ring.Queued() {
		if errno := l.ring.Submit(n); errno != 0 && errno != unix.EINTR {
			l.note(errno)
			return // it is tried again before anybody waits
		}
	}
}

// run is a thread's life.
func (h *hand) run(bind bool) {
	runtime.LockOSThread()
	h.l.mu.Lock()
	h.tid = unix.Gettid()
	h.l.mu.Unlock()
	if bind && h.l.cpu >= 0 {
		var set unix.CPUSet
		set.Set(h.l.cpu)
		if unix.SchedSetaffinity(0, &set) == nil { // else the processor went away; served from any other
			h.courtesy.Store(newCourtesy(&h.l.watched))
		}
	}
	for {
		e := h.fetch()
		if e == nil {
			<-h.call
			continue
		}
		h.l.mind()
		h.courtesy.Load().greet(e.header().Pid, h.l.cpu)
		h.seq.Add(1)
		touched := e.handle()
		h.seq.Add(1)
		h.l.finish(h, e, touched)
	}
}

// fetch waits for a request that this thread has to handle; nil: it is not needed any more, for now.
func (h *hand) fetch() *entry {
	l := h.l
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		if h.reclaim {
			h.reclaim = l.giveBack(h)
		}
		if h != l.main && l.main.seq.Load()%2 == 0 && !h.reclaim {
			l.drain(h)
			l.submit(h) // what it answered itself
			l.dismiss(h)
			l.rouse() // to hand in what was left over
			return nil
		}
		if e := l.take(h); e != nil {
			return e
		}
		l.drain(h)
		if len(l.duty) > 1 { // it must be known who submits what
			l.submit(h)
		}
		if h.reclaim || len(l.backlog) > 0 && l.ring.More() {
			continue
		}
		l.sign(h)
		n := l.ring.Queued()
		l.waiting++
		l.mu.Unlock()
		var errno unix.Errno
		if h == l.main {
			c := h.courtesy.Load()
			c.makeWay()
			errno = l.ring.Enter(n)
			c.comeBack()
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

// take finds a request among the completions that this thread has to handle. Under mu.
func (l *lane) take(h *hand) *entry {
	for {
		c, ok := l.ring.Pop()
		if !ok {
			return nil
		}
		switch c.UserData {
		case tagWake:
			l.poked = false
			l.backlog = append(l.backlog, todo{cmd: cmdListen})
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
		l.active = true
		weight := e.moves()
		op := e.header().Opcode
		e.kind = kindOf(op)
		if slow(op) || weight > heavyWeight && (op == proto.OpRead || l.ring.More()) || !l.inline(h, e) {
			l.give(e)
			continue
		}
		if n := l.ring.Queued(); n >= batch || n > 0 && weight > lightWeight {
			l.submit(h)
		}
		h.e = e
		return e
	}
}

// inline says whether a thread may handle a request where it stands. A substitute leaves changes to others: who hangs in a host that is
// frozen takes the entries that it submitted along, and those of the last one are all there are. Under mu.
func (l *lane) inline(h *hand, e *entry) bool {
	if e.kind == prompt {
		return true
	}
	if h != l.main && (e.kind != looking || len(l.duty) > inlineMost) {
		return false
	}
	return e.q.u.lines[e.kind].inline()
}

// give has others handle a request, in its turn. Under mu.
func (l *lane) give(e *entry) {
	e.q.grow()
	e.q.u.lines[e.kind%prompt].give(e)
}

// mind makes sure that the watchdog looks after the lane.
func (l *lane) mind() {
	if !l.watched.Load() && l.watched.CompareAndSwap(false, true) {
		theHub().watch(l)
	}
}

// finish queues the answer of a request. h is nil if it was not handled by one of the lane's threads; then somebody
// else has to hand it in.
func (l *lane) finish(h *hand, e *entry, touched int) {
	l.mu.Lock()
	e.q.busy--
	if e.stuck {
		e.stuck = false
		go e.q.u.lines[e.kind].unstuck() // it may give a request to others
	}
	e.used = max(e.used, touched)
	if !e.dirty && e.used > 0 {
		e.dirty = true
		l.dirty = append(l.dirty, e)
	}
	if h != nil {
		h.e = nil
		if s := l.ring.Next(); s != nil {
			l.arm(s, todo{e, cmdCommit})
			l.mu.Unlock()
			return
		}
	}
	l.push(todo{e, cmdCommit})
}
