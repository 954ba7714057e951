package transport

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"snapfs/internal/lockorder"
)

const (
	// moved is for how many requests a thread makes way after a program came from another processor.
	moved = 256
	// helpAfter is for how long a thread that makes way may be kept waiting.
	helpAfter = time.Millisecond
	// lateAfter is how soon a thread that the watchdog helped must come back for its request to have waited for it.
	lateAfter = time.Millisecond
	// lateEach is how often a thread may come late, and lateMost how many times in a row, before it makes no way for a while.
	lateEach = 200 * time.Millisecond
	lateMost = 3
	// pauseLeast and pauseMost are for how long; it doubles each time.
	pauseLeast = 250 * time.Millisecond
	pauseMost  = 8 * time.Second
)

// courtesy has a thread that serves a processor's programs make way for them there while it answers and waits.
//
// When a program is woken, the scheduler looks for an idle processor for it, as it does not know that the thread that wakes it is about
// to sleep. So program and server chase each other over the processors, and each time the one that sleeps has to be woken by
// an interrupt, which costs ten times what the request does. A processor on which nothing runs but threads of the policy
// SCHED_IDLE counts as idle (sched_idle_cpu, kernel/sched/fair.c): there the program stays.
//
// Such a thread gets next to nothing of a processor that others want. Hence, first, it is one only between the
// system call that hands in an answer and the one that returns the next request, never while it holds a lock or memory of the
// runtime. Second, while it is one the watchdog looks after it: if it could run and does not, it gets its policy
// back, and if a request did wait for it, there is no courtesy for a while.
//
// Third, as it takes a microsecond, it is one only for some time after a program came from another processor.
//
// A nil courtesy does nothing.
type courtesy struct {
	watched *atomic.Bool // the watchdog looks; nil: it always does

	turn   atomic.Uint64 // odd while the thread makes way
	helped atomic.Int64  // when the watchdog gave it its policy back in this turn; 0: it did not

	// The thread's own.
	turns  int           // for how many requests to make way
	late   time.Time     // pays for its last comings late; in the past if it need not
	resume time.Time     // no courtesy before
	pause  time.Duration // the last one

	mu    lockorder.Mutex[lockorder.Courtesy] // guards the rest
	tid   int                                 // 0: the thread has gone
	seen  uint64                              // at the last look
	since time.Time                           // it could have run since then, and did not; zero: it could not, or did
}

// mayMakeWay says whether threads of this process may leave SCHED_OTHER and, for which CAP_SYS_NICE is needed, come back;
// and whether there is more than one processor to chase each other on.
var mayMakeWay = sync.OnceValue(func() bool {
	if runtime.NumCPU() < 2 {
		return false
	}
	may := make(chan bool)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with its policy
		was, _, errno := unix.RawSyscall(unix.SYS_SCHED_GETSCHEDULER, 0, 0, 0)
		may <- errno == 0 && was == unix.SCHED_NORMAL && setPolicy(0, unix.SCHED_IDLE) == 0 && setPolicy(0, unix.SCHED_NORMAL) == 0
	}()
	return <-may
})

// newCourtesy is for the calling thread, to which its goroutine must be bound.
func newCourtesy(watched *atomic.Bool) *courtesy {
	if !mayMakeWay() {
		return nil
	}
	return &courtesy{watched: watched, tid: unix.Gettid()}
}

// lastSender is the program of the last request over io_uring, and the processor where it was sent.
var lastSender atomic.Uint64

// greet notes who sent a request, on which processor.
func (c *courtesy) greet(pid uint32, cpu int) {
	if c == nil {
		return
	}
	now := uint64(pid)<<32 | uint64(cpu)
	last := lastSender.Load()
	if now == last {
		return
	}
	lastSender.Store(now)
	if last>>32 == uint64(pid) {
		c.forAWhile()
	}
}

// forAWhile has the thread make way for a while.
func (c *courtesy) forAWhile() {
	if c != nil {
		c.turns = moved
	}
}

// makeWay is called before an answer is handed in.
func (c *courtesy) makeWay() {
	if c == nil || c.turns == 0 || c.turn.Load()%2 == 1 || c.pauses() {
		return
	}
	c.turns--
	c.turn.Add(1)
	setPolicy(0, unix.SCHED_IDLE)
	if c.watched != nil && !c.watched.Load() { // whoever took it away just now saw an older turn
		c.comeBack()
	}
}

// pauses says that there is no courtesy now.
func (c *courtesy) pauses() bool {
	if c == nil {
		return true
	}
	if c.resume.IsZero() {
		return false
	}
	if time.Now().Before(c.resume) {
		return true
	}
	c.resume = time.Time{}
	return false
}

// comeBack is called when there is a request.
func (c *courtesy) comeBack() {
	if c == nil || c.turn.Load()%2 == 0 {
		return
	}
	setPolicy(0, unix.SCHED_NORMAL)
	c.turn.Add(1)
	helped := c.helped.Swap(0)
	if helped == 0 {
		return
	}
	now := time.Now()
	if now.UnixNano()-helped > int64(lateAfter) {
		return // nothing waited: a program woken by the answer ran on in the middle of the system call
	}
	if c.late.Before(now) {
		if now.Sub(c.late) > pauseMost {
			c.pause = 0
		}
		c.late = now
	}
	c.late = c.late.Add(lateEach)
	if c.late.Sub(now) > lateMost*lateEach {
		c.pause = min(max(2*c.pause, pauseLeast), pauseMost)
		c.resume = now.Add(c.pause)
	}
}

// look is the watchdog's.
func (c *courtesy) look() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	turn := c.turn.Load()
	now := time.Now()
	switch {
	case turn != c.seen || turn%2 == 0 || c.tid == 0 || c.helped.Load() != 0 || !runnable(c.tid):
		c.since = time.Time{}
	case c.since.IsZero():
		c.since = now
	case now.Sub(c.since) >= helpAfter: // looks may follow each other at once
		c.helped.Store(now.UnixNano())
		setPolicy(c.tid, unix.SCHED_NORMAL)
	}
	c.seen = turn
}

// leave gives the thread its policy back, because nobody looks after it from now on.
func (c *courtesy) leave() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.turn.Load()%2 == 1 && c.tid != 0 {
		setPolicy(c.tid, unix.SCHED_NORMAL)
	}
}

// end is called by the thread before it ends.
func (c *courtesy) end() {
	if c == nil {
		return
	}
	c.comeBack()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tid = 0
}

// setPolicy sets the policy of a thread; 0 is the calling one. See sched_setscheduler(2).
func setPolicy(tid int, policy uintptr) unix.Errno {
	var priority int32
	_, _, errno := unix.RawSyscall(unix.SYS_SCHED_SETSCHEDULER, uintptr(tid), policy, uintptr(unsafe.Pointer(&priority)))
	return errno
}
