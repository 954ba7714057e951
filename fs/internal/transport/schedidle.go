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
	// idleRequests is for how many requests a thread uses idle priority after a program came from another processor.
	idleRequests = 256
	// boostAfter is for how long a thread with idle priority may be kept waiting.
	boostAfter = time.Millisecond
	// lateAfter is how soon a thread that the watchdog boosted must return for a request to have waited for it.
	lateAfter = time.Millisecond
	// lateEach is how often a thread may return late, maxLate how many times in a row, before idle priority is
	// suspended.
	lateEach = 200 * time.Millisecond
	maxLate  = 3
	// minPause and maxPause are for how long; it doubles each time.
	minPause = 250 * time.Millisecond
	maxPause = 8 * time.Second
)

// schedIdle gives a thread that serves a processor's programs idle priority, the policy SCHED_IDLE, while it answers
// and waits.
//
// When a program is woken, the scheduler looks for an idle processor for it, as it does not know that the thread that
// wakes it is about to sleep. So program and server chase each other over the processors, and each time the one that
// sleeps is woken by an interrupt, which costs ten times what the request does. A processor on which nothing runs but
// threads of the policy SCHED_IDLE counts as idle (sched_idle_cpu, kernel/sched/fair.c): there the program stays.
//
// Such a thread gets next to nothing of a processor that others want. Hence:
//
//   - It has the policy only between the system call that submits an answer and the one that returns the next request,
//     never while it holds a lock or memory of the runtime.
//   - Meanwhile the watchdog looks after it: if it could run and does not, it gets its policy back, and if a request
//     did wait for it, idle priority is suspended for a while.
//   - As a change of policy takes a microsecond, it is used only for some time after a program came from another
//     processor.
//
// A nil schedIdle does nothing.
type schedIdle struct {
	watched *atomic.Bool // the watchdog looks after the thread; nil: always

	turn    atomic.Uint64 // odd while the thread has idle priority
	boosted atomic.Int64  // when the watchdog gave the policy back in this turn; 0: it did not

	// The thread's own.
	remaining int           // for how many requests to use it
	late      time.Time     // grows by lateEach with each late return; in the past: none counts any more
	resume    time.Time     // suspended until then
	pause     time.Duration // the last suspension

	mu    lockorder.Mutex[lockorder.SchedIdle] // guards the rest
	tid   int                                  // 0: the thread has ended
	seen  uint64                               // at the last look
	since time.Time                            // it could have run since then, and did not; zero: it could not, or did
}

// maySchedIdle reports whether threads of this process may leave SCHED_OTHER and, for which CAP_SYS_NICE is needed,
// return to it; and whether there is more than one processor.
var maySchedIdle = sync.OnceValue(func() bool {
	if runtime.NumCPU() < 2 {
		return false
	}
	may := make(chan bool)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with its policy
		was, _, errno := unix.RawSyscall(unix.SYS_SCHED_GETSCHEDULER, 0, 0, 0)
		may <- errno == 0 && was == unix.SCHED_NORMAL &&
			setPolicy(0, unix.SCHED_IDLE) == 0 && setPolicy(0, unix.SCHED_NORMAL) == 0
	}()
	return <-may
})

// newSchedIdle is for the calling thread, to which its goroutine must be bound.
func newSchedIdle(watched *atomic.Bool) *schedIdle {
	if !maySchedIdle() {
		return nil
	}
	return &schedIdle{watched: watched, tid: unix.Gettid()}
}

// lastSender is the program of the last request over io_uring, and the processor where it was sent.
var lastSender atomic.Uint64

// noteSender notes which program sent a request, on which processor.
func (c *schedIdle) noteSender(pid uint32, cpu int) {
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
		c.enable()
	}
}

// enable has the thread use idle priority for a while.
func (c *schedIdle) enable() {
	if c != nil {
		c.remaining = idleRequests
	}
}

// enter is called before an answer is submitted.
func (c *schedIdle) enter() {
	if c == nil || c.remaining == 0 || c.turn.Load()%2 == 1 || c.suspended() {
		return
	}
	c.remaining--
	c.turn.Add(1)
	setPolicy(0, unix.SCHED_IDLE)
	if c.watched != nil && !c.watched.Load() { // the watchdog that has just left saw an older turn
		c.exit()
	}
}

// suspended reports whether idle priority is not used now.
func (c *schedIdle) suspended() bool {
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

// exit is called when there is a request.
func (c *schedIdle) exit() {
	if c == nil || c.turn.Load()%2 == 0 {
		return
	}
	setPolicy(0, unix.SCHED_NORMAL)
	c.turn.Add(1)
	helped := c.boosted.Swap(0)
	if helped == 0 {
		return
	}
	now := time.Now()
	if now.UnixNano()-helped > int64(lateAfter) {
		return // no request waited: a program woken by the answer ran on in the middle of the system call
	}
	if c.late.Before(now) {
		if now.Sub(c.late) > maxPause {
			c.pause = 0
		}
		c.late = now
	}
	c.late = c.late.Add(lateEach)
	if c.late.Sub(now) > maxLate*lateEach {
		c.pause = min(max(2*c.pause, minPause), maxPause)
		c.resume = now.Add(c.pause)
	}
}

// check is called by the watchdog.
func (c *schedIdle) check() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	turn := c.turn.Load()
	now := time.Now()
	switch {
	case turn != c.seen || turn%2 == 0 || c.tid == 0 || c.boosted.Load() != 0 || !runnable(c.tid):
		c.since = time.Time{}
	case c.since.IsZero():
		c.since = now
	case now.Sub(c.since) >= boostAfter: // checks may follow each other at once
		c.boosted.Store(now.UnixNano())
		setPolicy(c.tid, unix.SCHED_NORMAL)
	}
	c.seen = turn
}

// unwatch gives the thread its policy back, because the watchdog does not look after it from now on.
func (c *schedIdle) unwatch() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.turn.Load()%2 == 1 && c.tid != 0 {
		setPolicy(c.tid, unix.SCHED_NORMAL)
	}
}

// close is called by the thread before it ends.
func (c *schedIdle) close() {
	if c == nil {
		return
	}
	c.exit()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tid = 0
}

// setPolicy sets the policy of a thread; 0 is the calling one. See sched_setscheduler(2).
func setPolicy(tid int, policy uintptr) unix.Errno {
	var priority int32
	_, _, errno := unix.RawSyscall(unix.SYS_SCHED_SETSCHEDULER,
		uintptr(tid), policy, uintptr(unsafe.Pointer(&priority)))
	return errno
}
