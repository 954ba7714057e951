package transport

import (
	"errors"
	"log/slog"
	"math/bits"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// retryFirst is how long a thread waits after the first failure of io_uring_enter(2) in a row; then it waits twice as long
	// each time, up to retryMost.
	retryFirst = time.Millisecond
	retryMost  = time.Second
	// failuresMost is after how many failures in a row new mounts do without the ring: after about three seconds.
	failuresMost = 12
)

// note takes what io_uring_enter(2) gave, and says how long to wait before it is tried again. Some errors are in order: the kernel wants
// completions taken first, has no memory for the moment, a signal came, a substitute looks around. What else it may say, nobody
// knows of; the requests of live mounts can come no other way, so it is tried again for as long as they live. Under mu.
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
		slog.Error("io_uring fails", slog.Int("processor", l.cpu), slog.Int("times", l.failures), slog.String("error", errno.Error()))
	}
	return min(retryFirst<<min(l.failures-1, failuresMost), retryMost)
}

// errRing says that the process's rings do not work.
var errRing = errors.New("io_uring failed many times in a row")

// usable tells whether new mounts should have their requests come over the lanes.
func (s *laneSet) usable() error {
	for _, l := range s.all {
		l.mu.Lock()
		failures := l.failures
		l.mu.Unlock()
		if failures >= failuresMost {
			return errRing
		}
	}
	return nil
}
