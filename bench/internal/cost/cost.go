package cost

import (
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Cost is what an operation took.
type Cost struct {
	Wall time.Duration
	CPU  time.Duration // of this process and the children it waited for, user and system
}

func (c *Cost) Add(o Cost) { c.Wall += o.Wall; c.CPU += o.CPU }

// Measure runs fn and gives its cost. One operation at a time, or CPU time is counted double.
func Measure(fn func() error) (Cost, error) {
	cpu, start := cpuTime(), time.Now()
	err := fn()
	return Cost{Wall: time.Since(start), CPU: cpuTime() - cpu}, err
}

func cpuTime() time.Duration {
	var sum time.Duration
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		if err := syscall.Getrusage(who, &u); err == nil {
			sum += time.Duration(u.Utime.Nano() + u.Stime.Nano())
		}
	}
	return sum
}

// OfProcess is the user and system time of all threads of a process so far.
func OfProcess(pid int) (time.Duration, error) {
	if pid == 0 {
		return 0, nil
	}
	// The clock of another process, as clock_getcpuclockid(3) makes its number.
	const cpuClockSched = 2
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|cpuClockSched), &ts); err != nil {
		return 0, fmt.Errorf("time of the server: %w", err)
	}
	return time.Duration(ts.Nano()), nil
}
