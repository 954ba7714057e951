package transport

import (
	"strconv"

	"golang.org/x/sys/unix"
)

const (
	// followEach is after how many requests a leader looks again where the program runs that it serves.
	followEach = 64
	// followSoon is after how many it looks if the last ones did not come at once, as they do while both are near.
	followSoon = 2
	// followShare is how many of these must be the same program's, for the leader to follow it.
	followShare = 56
)

// follower binds the thread of a leader to the processor of the program whose requests it handles, as long as it is one
// program. They take turns, so that one processor is enough; to wake the other across processors costs up to ten times what most
// requests take, and the scheduler, which does not know that the one waits for the other, keeps them apart. With courtesy the
// program stays there, too. It is used by the leader's goroutine alone.
type follower struct {
	mine  unix.CPUSet // where the thread may run
	known bool        // mine is filled in
	pid   uint32      // of the first request since the last look
	seen  int         // requests since the last look
	same  int         // of these, of pid
	slow  int         // requests since the last one that came at once, or the last look
	cpu   int         // bound to this one, minus one
}

// see takes note of a request of a program, before it is handled, and says whether the thread is near it. waited says that the request did
// not come at once. 0 is a program that is not to be seen from here.
func (f *follower) see(pid uint32, waited bool) bool {
	if f.seen == 0 {
		f.pid, f.same = pid, 0
	}
	if f.seen++; pid == f.pid {
		f.same++
	}
	if f.slow++; !waited {
		f.slow = 0
	}
	ran := f.cpu > 0 && f.slow == followSoon && pid == f.pid
	if f.seen < followEach && !ran {
		return f.cpu > 0
	}
	cpu := -1
	if ran || f.same >= followShare && f.pid != 0 {
		cpu = processorOf(f.pid)
	}
	if f.seen >= followEach {
		f.seen, f.slow = 0, 0
	}
	if cpu+1 != f.cpu {
		f.bind(cpu)
		f.slow = 0
	}
	return f.cpu > 0
}

// part lets the thread run anywhere again.
func (f *follower) part() {
	f.seen = 0
	if f.cpu > 0 {
		f.bind(-1)
	}
}

// bind moves the thread to a processor, or, if that is -1, lets it run anywhere again.
func (f *follower) bind(cpu int) {
	if !f.known {
		f.known = unix.SchedGetaffinity(0, &f.mine) == nil
	}
	set := f.mine
	if cpu >= 0 {
		if !f.mine.IsSet(cpu) {
			cpu = -1 // the program may run where we may not
		} else {
			set.Zero()
			set.Set(cpu)
		}
	}
	if f.known && unix.SchedSetaffinity(0, &set) == nil {
		f.cpu = cpu + 1
	}
}

// processorOf tells on which processor a thread runs, or ran last; -1 if that is not to be known. See proc_pid_stat(5).
func processorOf(pid uint32) int {
	const field = 39 // "processor"
	var buf [1024]byte
	value := statField(readStat("/proc/"+strconv.FormatUint(uint64(pid), 10)+"/stat", buf[:]), field)
	cpu, err := strconv.Atoi(value)
	if err != nil || cpu < 0 {
		return -1
	}
	return cpu
}

// runnable says whether a thread of this process runs or could; true, too, if that is not to be known.
func runnable(tid int) bool {
	state := stateOf(tid)
	return state == "" || state == "R"
}

// uninterruptible says whether a thread of this process waits where no signal reaches it.
func uninterruptible(tid int) bool { return stateOf(tid) == "D" }

// stateOf is the state of a thread of this process, "" if it is not to be known. See proc_pid_stat(5).
func stateOf(tid int) string {
	const field = 3 // "state"
	var buf [1024]byte
	return statField(readStat("/proc/self/task/"+strconv.Itoa(tid)+"/stat", buf[:]), field)
}

// readStat reads a file of /proc at once; nothing, if it cannot.
func readStat(path string, buf []byte) []byte {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	n, err := unix.Read(fd, buf)
	_ = unix.Close(fd) // read only
	if err != nil {
		return nil
	}
	return buf[:n]
}

// statField takes a field out of what /proc/PID/stat says, counted from 1; the second one, in brackets, may hold anything and is not to
// be had. "" if it is not there whole.
func statField(stat []byte, field int) string {
	i := len(stat) - 1
	for i >= 0 && stat[i] != ')' {
		i--
	}
	if i < 0 {
		return ""
	}
	at, begin := 2, 0
	for j := i + 1; j < len(stat); j++ {
		if stat[j] != ' ' {
			continue
		}
		if at == field {
			return string(stat[begin:j])
		}
		at, begin = at+1, j+1
	}
	return ""
}
