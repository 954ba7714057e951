package transport

import (
	"errors"
	"log/slog"
	"math/bits"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// minRetryWait is how long a thread waits after the first failure of io_uring_enter(2) in a row; then it waits
	// twice as long each time, up to maxRetryWait.
	minRetryWait = time.Millisecond
	maxRetryWait = time.Second
	// maxFailures is after how many failures in a row new mounts do without the ring: after about three seconds.
	maxFailures = 12
)

// note takes the result of io_uring_enter(2), and returns how long to wait before the next call. Some errors are
// expected: the kernel wants completions taken first, is out of memory for the moment, a signal came, a substitute's
// time is over. Others are not known to occur; but the requests of live mounts can come no other way, so it is retried
// for as long as they live. With mu held.
func (l *lane) note(errno unix.Errno) (pause time.Duration) {
	switch errno {
	case 0, unix.ETIME:
		if l.failures > 0 {
			slog.Info("io_uring works again", slog.Int("processor", l.cpu))
		}
		l.failures = 0
		return 0
	case unix.EINTR, unix.EAGAIN, unix.EBUSY:
		return 0
	}
	l.failures++
	if bits.OnesCount(uint(l.failures)) == 1 { // the first, and ever more rarely
		slog.Error("io_uring fails", slog.Int("processor", l.cpu), slog.Int("times", l.failures),
			slog.String("error", errno.Error()))
	}
	return min(minRetryWait<<min(l.failures-1, maxFailures), maxRetryWait)
}

// errRing says that the process's rings do not work.
var errRing = errors.New("io_uring failed many times in a row")

// usable gives the reason why new mounts must do without the lanes.
func (s *laneSet) usable() error {
	for _, l := range s.all {
		l.mu.Lock()
		failures := l.failures
		l.mu.Unlock()
		if failures >= maxFailures {
			return errRing
		}
	}
	return nil
}
