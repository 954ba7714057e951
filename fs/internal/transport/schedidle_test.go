package transport

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// onThread runs f on a thread of its own, which ends with it.
func onThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		f()
	}()
	<-done
}

// TestAffinity: a leader runs where its program does, as far as it may, checks in time, and does not check each time.
func TestAffinity(t *testing.T) {
	onThread(func() {
		var mine, now unix.CPUSet
		if err := unix.SchedGetaffinity(0, &mine); err != nil {
			t.Error(err)
			return
		}
		var f affinity
		me := uint32(unix.Gettid())
		rounds := func(n int, pid uint32, waited bool) (near bool) {
			for range n {
				near = f.observe(pid, waited)
			}
			return near
		}
		if rounds(rebindEach, 0, true) || rounds(rebindEach, 1<<30, true) {
			t.Error("bound to an unknown program")
		}
		if rounds(rebindEach-1, me, true) {
			t.Error("it checked too early")
		}
		if !rounds(1, me, true) {
			t.Error("it does not follow")
		}
		err := unix.SchedGetaffinity(0, &now)
		if err != nil || now.Count() != 1 || !now.IsSet(f.cpu-1) || !mine.IsSet(f.cpu-1) {
			t.Errorf("bound to %d, may run on %d processors, %v", f.cpu-1, now.Count(), err)
		}
		if !rounds(rebindSoon-1, me, true) || !rounds(1, 1<<30, false) || !rounds(rebindSoon-1, 1<<30, true) {
			t.Error("a single request of another program, or one that came late, unbinds it")
		}
		if rounds(2*rebindEach, 1<<30, false) {
			t.Error("it stays after the program has gone")
		}
		rounds(2*rebindEach, me, false)
		for range 2 * rebindEach {
			f.observe(me, false)
			f.observe(1, false)
		}
		if f.observe(me, false) {
			t.Error("it follows one of two programs")
		}
		rounds(2*rebindEach, me, false)
		f.unbind()
		if err := unix.SchedGetaffinity(0, &now); err != nil || now != mine || f.cpu != 0 {
			t.Errorf("after unbinding it may run on %d processors instead of %d, %v", now.Count(), mine.Count(), err)
		}
	})
}

// policy is the calling thread's.
func policy(t *testing.T) uintptr {
	p, _, errno := unix.RawSyscall(unix.SYS_SCHED_GETSCHEDULER, 0, 0, 0)
	if errno != 0 {
		t.Error(errno)
	}
	return p
}

// TestSchedIdle: a thread has idle priority between answer and request, for as long as it is watched, and for a limited
// number of requests.
func TestSchedIdle(t *testing.T) {
	onThread(func() {
		if !maySchedIdle() {
			return // one processor, or no CAP_SYS_NICE: there is no idle priority
		}
		var watched atomic.Bool
		watched.Store(true)
		c := newSchedIdle(&watched)
		expect := func(what string, want uintptr) {
			t.Helper()
			if got := policy(t); got != want {
				t.Errorf("%s: policy %d, want %d", what, got, want)
			}
		}
		c.enter()
		expect("without a reason", unix.SCHED_NORMAL)
		c.enable()
		c.enter()
		expect("waiting", unix.SCHED_IDLE)
		c.enter()
		c.exit()
		expect("with a request", unix.SCHED_NORMAL)
		c.exit()

		watched.Store(false)
		c.enter()
		expect("unwatched", unix.SCHED_NORMAL)
		watched.Store(true)
		c.enter()
		c.unwatch()
		expect("left alone", unix.SCHED_NORMAL)
		c.exit()

		// This thread is runnable, and has idle priority for longer than it may be kept waiting.
		for i := 1; !c.suspended(); i++ { // the more the slower the machine, for old ones are forgiven
			c.enter()
			expect("waiting again", unix.SCHED_IDLE)
			for policy(t) == unix.SCHED_IDLE {
				c.check()
			}
			c.boosted.Store(time.Now().Add(time.Hour).UnixNano()) // not too long ago, whatever happens meanwhile
			c.exit()
			if c.suspended() && i <= maxLate || i == 1000 {
				t.Errorf("late %d times: pauses %v", i, c.suspended())
				return
			}
		}
		c.resume = time.Now().Add(time.Hour)
		c.enter()
		expect("in a pause", unix.SCHED_NORMAL)
		c.resume = time.Now()
		c.enter()
		expect("after the pause", unix.SCHED_IDLE)
		c.close()
		expect("at the end", unix.SCHED_NORMAL)
		c.check()
	})
	var none *schedIdle
	none.enable()
	none.noteSender(1, 1)
	none.enter()
	none.exit()
	none.check()
	none.unwatch()
	none.close()
	if !none.suspended() {
		t.Error("no idle priority, and not suspended")
	}
}

// TestNoteSender: a program that comes from another processor enables idle priority; two programs on two processors do
// not.
func TestNoteSender(t *testing.T) {
	lastSender.Store(0)
	var a, b schedIdle
	a.noteSender(7, 0)
	b.noteSender(8, 1)
	a.noteSender(7, 0)
	if a.remaining != 0 || b.remaining != 0 {
		t.Errorf("two programs that stay: %d and %d turns", a.remaining, b.remaining)
	}
	b.noteSender(7, 1)
	if a.remaining != 0 || b.remaining != idleRequests {
		t.Errorf("one that came: %d and %d turns", a.remaining, b.remaining)
	}
}
