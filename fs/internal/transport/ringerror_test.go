package transport

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestRingErrors(t *testing.T) {
	l := &lane{}
	s := &laneSet{all: []*lane{l}}
	for _, errno := range []unix.Errno{0, unix.EINTR, unix.EAGAIN, unix.EBUSY, unix.ETIME} {
		if pause := l.note(errno); pause != 0 || l.failures != 0 {
			t.Errorf("%v is taken for a failure", errno)
		}
	}
	last := time.Duration(0)
	for range maxFailures {
		if err := s.usable(); err != nil {
			t.Errorf("given up after %d failures", l.failures)
		}
		pause := l.note(unix.EBADFD)
		if pause < last || pause > maxRetryWait || pause == 0 {
			t.Errorf("failure %d: waits %v after %v", l.failures, pause, last)
		}
		last = pause
		_ = l.note(unix.EINTR) // changes nothing
	}
	if err := s.usable(); err == nil {
		t.Errorf("still offered after %d failures", l.failures)
	}
	if pause := l.note(0); pause != 0 || s.usable() != nil {
		t.Error("a success does not count")
	}
}

// rings are the descriptors of the process that are io_uring's.
func rings(t *testing.T) map[int]bool {
	t.Helper()
	links, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	found := map[int]bool{}
	for _, l := range links {
		if to, err := os.Readlink(l); err == nil && to == "anon_inode:[io_uring]" {
			fd, err := strconv.Atoi(filepath.Base(l))
			if err != nil {
				t.Fatal(err)
			}
			found[fd] = true
		}
	}
	return found
}

// TestRingFails takes a lane's ring away while a thread works at it, and gives it back: the thread goes on.
func TestRingFails(t *testing.T) {
	before := rings(t)
	l, err := newLane(-1)
	if err != nil {
		t.Logf("the kernel gives no ring, nothing is tested: %v", err)
		t.SkipNow()
	}
	fd := -1
	for r := range rings(t) {
		if !before[r] {
			fd = r
		}
	}
	kept, err := unix.Dup(fd)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(kept) //nolint:errcheck // the lane has its own
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(null) //nolint:errcheck // nothing is written
	barrier := func() <-chan struct{} {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.barrier()
	}
	l.begin()
	<-barrier()
	if err := unix.Dup3(null, fd, unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	passed := barrier()
	for failures := 0; failures < 3; time.Sleep(time.Millisecond) {
		l.mu.Lock()
		failures = l.failures
		l.mu.Unlock()
	}
	select {
	case <-passed:
		t.Error("something was submitted to no ring")
	default:
	}
	if err := unix.Dup3(kept, fd, unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	<-passed
	if l.mu.Lock(); l.failures != 0 {
		t.Errorf("%d failures after a success", l.failures)
	}
	l.mu.Unlock()
}
