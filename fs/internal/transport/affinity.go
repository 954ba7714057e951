package transport

import (
	"strconv"

	"golang.org/x/sys/unix"

	"snapfs/internal/processes"
)

const (
	// rebindEach is after how many requests a leader checks where the program runs that it serves.
	rebindEach = 64
	// rebindSoon is after how many it checks if the last ones did not come at once, as they do while both share a
	// processor.
	rebindSoon = 2
	// rebindShare is how many of these must be the same program's for the leader to follow it.
	rebindShare = 56
)

// affinity binds the thread of a leader to the processor of the program whose requests it handles, as long as it is one
// program. They take turns, so that one processor is enough; to wake the other across processors costs up to ten times
// what most requests take, and the scheduler, which does not know that the one waits for the other, keeps them apart.
// With idle priority (schedIdle) the program stays there, too. Only the leader's goroutine uses it.
type affinity struct {
	allowed unix.CPUSet // where the thread may run
	known   bool        // mine is filled in
	pid     uint32      // of the first request since the last check
	seen    int         // requests since the last check
	same    int         // of these, of pid
	slow    int         // requests since the last one that came at once, or the last check
	cpu     int         // bound to this one, minus one
}

// observe notes a request of a program, before it is handled, and reports whether the thread is bound to the program's
// processor. waited says that the request did not come at once. pid is 0 for a program of another process namespace.
func (f *affinity) observe(pid uint32, waited bool) bool {
	if f.seen == 0 {
		f.pid, f.same = pid, 0
	}
	if f.seen++; pid == f.pid {
		f.same++
	}
	if f.slow++; !waited {
		f.slow = 0
	}
	ran := f.cpu > 0 && f.slow == rebindSoon && pid == f.pid
	if f.seen < rebindEach && !ran {
		return f.cpu > 0
	}
	cpu := -1
	if ran || f.same >= rebindShare && f.pid != 0 {
		cpu = processorOf(f.pid)
	}
	if f.seen >= rebindEach {
		f.seen, f.slow = 0, 0
	}
	if cpu+1 != f.cpu {
		f.bind(cpu)
		f.slow = 0
	}
	return f.cpu > 0
}

// unbind lets the thread run where it could at first.
func (f *affinity) unbind() {
	f.seen = 0
	if f.cpu > 0 {
		f.bind(-1)
	}
}

// bind moves the thread to a processor or, if that is -1, lets it run where it could at first.
func (f *affinity) bind(cpu int) {
	if !f.known {
		f.known = unix.SchedGetaffinity(0, &f.allowed) == nil
	}
	set := f.allowed
	if cpu >= 0 {
		if !f.allowed.IsSet(cpu) {
			cpu = -1 // the program may run where this process may not
		} else {
			set.Zero()
			set.Set(cpu)
		}
	}
	if f.known && unix.SchedSetaffinity(0, &set) == nil {
		f.cpu = cpu + 1
	}
}

// processorOf gives the processor on which a thread runs, or ran last; -1 if it is unknown.
func processorOf(pid uint32) int {
	s, ok := processes.StatOfProcess(int(pid))
	if !ok {
		return -1
	}
	return s.Processor
}

// runnable reports whether a thread of this process runs or could; true if that is unknown.
func runnable(tid int) bool {
	state := stateOf(tid)
	return state == 0 || state == 'R'
}

// uninterruptible reports whether a thread of this process waits where no signal reaches it.
func uninterruptible(tid int) bool { return stateOf(tid) == 'D' }

// stateOf is the state of a thread of this process, 0 if it is unknown.
func stateOf(tid int) byte {
	s, _ := processes.StatOf("/proc/self/task/" + strconv.Itoa(tid))
	return s.State
}
