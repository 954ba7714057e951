package processes

import (
	"bytes"
	"strconv"

	"golang.org/x/sys/unix"
)

// Stat is what the kernel says of a process or of a thread in a line of /proc, see proc_pid_stat(5).
type Stat struct {
	State     byte   // as 'R' for running, 'D' where no signal reaches it, 'T' and 't' for stopped, 'Z' for a zombie
	Parent    int    // the process that it comes from; 0 if that is in another process namespace
	Flags     uint64 // PF_… of linux/sched.h
	Started   uint64 // in ticks since the boot
	Pending   uint64 // the signals below 32 that wait for this thread, 1<<(number-1) each
	Processor int    // on which it runs, or ran last
	Exit      uint32 // of a zombie how it ended, as wait(2) tells; 0 also for who may not trace it
}

// Killed reports whether a thread has SIGKILL pending, as all threads of a process have that ends by a signal.
func (s Stat) Killed() bool { return s.Pending&(1<<(unix.SIGKILL-1)) != 0 }

// maxStat is more than a line of /proc can have: a name of at most 64 bytes, and 51 numbers of at most 20 digits.
const maxStat = 2048

// StatOf reads /proc/PID/stat, or that of a thread; dir is the directory, as /proc/PID. It reports false if there is no
// such process any more. It allocates little and is safe for concurrent use.
func StatOf(dir string) (Stat, bool) {
	fd, err := unix.Open(dir+"/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return Stat{}, false
	}
	var line [maxStat]byte
	n, err := unix.Read(fd, line[:]) // the kernel gives the whole line at once
	_ = unix.Close(fd)               // read only
	if err != nil {
		return Stat{}, false
	}
	return parseStat(line[:n])
}

// StatOfProcess is StatOf by number.
func StatOfProcess(pid int) (Stat, bool) { return StatOf("/proc/" + strconv.Itoa(pid)) }

// parseStat reports false if the line is not whole. The name of the program, in parentheses, may have anything in it.
func parseStat(line []byte) (s Stat, ok bool) {
	line, whole := bytes.CutSuffix(line, []byte("\n"))
	name := bytes.LastIndexByte(line, ')')
	if !whole || name < 0 {
		return Stat{}, false
	}
	_, rest, _ := bytes.Cut(line[name:], []byte(" "))
	const last = 52
	for field := 3; field <= last; field++ {
		var value []byte
		value, rest, whole = bytes.Cut(rest, []byte(" "))
		if len(value) == 0 || !whole && field < last {
			return Stat{}, false
		}
		var err error
		switch field {
		case 3:
			s.State = value[0]
		case 4:
			s.Parent, err = strconv.Atoi(string(value))
		case 9:
			s.Flags, err = strconv.ParseUint(string(value), 10, 64)
		case 22:
			s.Started, err = strconv.ParseUint(string(value), 10, 64)
		case 31:
			s.Pending, err = strconv.ParseUint(string(value), 10, 64)
		case 39:
			s.Processor, err = strconv.Atoi(string(value))
		case last:
			var exit uint64
			exit, err = strconv.ParseUint(string(value), 10, 32)
			s.Exit = uint32(exit)
		}
		if err != nil {
			return Stat{}, false
		}
	}
	return s, true
}
