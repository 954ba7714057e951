package transport

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/fs/internal/fakefs"
	"snapfs/internal/iouring"
)

// descriptorsOpen counts the process's descriptors of FUSE connections and, with lanes, of rings and what belongs to
// them.
func descriptorsOpen(t *testing.T, lanes bool) (n int) {
	t.Helper()
	links, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		if to, err := os.Readlink(l); err == nil && (to == "/dev/fuse" || lanes && strings.HasPrefix(to, "anon_inode:[")) {
			n++
		}
	}
	return n
}

// TestFallback has each step fail that a mount over io_uring needs: a caller that asked for io_uring gets the reason,
// others get a mount over the device, and nothing is left behind.
func TestFallback(t *testing.T) {
	if transportOfTest() != "uring" {
		return
	}
	_, idle, _ := serveFake(t, fakefs.New()) // over io_uring; makes what stays
	if err := fakefs.Stat(t, filepath.Join(idle, "before")); err != nil {
		t.Error(err)
	}
	ring, event, memory, lanes := newRing, eventfd, mmap, theLanes
	restore := func() { newRing, eventfd, mmap, theLanes = ring, event, memory, lanes }
	defer restore()
	all, err := lanes()
	if err != nil {
		t.Fatal(err)
	}
	failRing := func(errno unix.Errno, after int) func(*testing.T) {
		return func(*testing.T) {
			theLanes = makeLanes
			newRing = func(n uint32, limit time.Duration) (*iouring.Ring, error) {
				if after--; after < 0 {
					return nil, fmt.Errorf("io_uring_setup: %w", errno)
				}
				return ring(n, limit)
			}
		}
	}
	failMemory := func(after int) {
		mmap = func(fd int, offset int64, length, prot, flags int) ([]byte, error) {
			if after--; after < 0 {
				return nil, unix.ENOMEM
			}
			return memory(fd, offset, length, prot, flags)
		}
	}
	for _, c := range []struct {
		name  string
		says  string
		begin func(t *testing.T)
	}{
		{"forbidden", "not permitted", failRing(unix.EPERM, 0)},
		{"not built in", "not implemented", failRing(unix.ENOSYS, 0)},
		{"locked memory", "cannot allocate", failRing(unix.ENOMEM, 0)},
		{"descriptors", "too many", failRing(unix.EMFILE, len(all.all)-1)}, // of the last lane
		{"eventfd", "too many", func(*testing.T) {
			theLanes = makeLanes
			eventfd = func(uint, int) (int, error) { return -1, unix.EMFILE }
		}},
		{"address space of a lane", "cannot allocate", func(*testing.T) {
			theLanes = makeLanes
			failMemory(len(all.all) - 1)
		}},
		{"address space of entries", "cannot allocate", func(t *testing.T) {
			failMemory(0)
			slots.mu.Lock()
			free := slots.free
			slots.free = free[:1:1]
			slots.mu.Unlock()
			t.Cleanup(func() {
				slots.mu.Lock()
				slots.free = append(slots.free, free[1:]...)
				slots.mu.Unlock()
			})
		}},
		{"registration", "refuses", func(*testing.T) { // there is no such queue
			theLanes = func() (*laneSet, error) { return &laneSet{all.all, all.cpus, all.queues + 1}, nil }
		}},
		{"ring", "io_uring failed", func(t *testing.T) { theLanes = brokenLanes(t) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			made := c.name == "ring" // lanes are, for good
			before := descriptorsOpen(t, !made)
			for _, want := range []string{"uring", "auto"} {
				t.Run(want, func(t *testing.T) {
					c.begin(t)
					defer restore()
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					dir := t.TempDir()
					m, err := serve(ctx, fakefs.New(), dir, want, slog.New(slog.DiscardHandler))
					if want == "uring" {
						if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), c.says) {
							t.Errorf("got %v, want %q", err, c.says)
						}
						var st unix.Statx_t
						err := unix.Statx(unix.AT_FDCWD, dir, unix.AT_STATX_DONT_SYNC, 0, &st)
						if err != nil || st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0 {
							t.Errorf("it stays mounted, %v", err)
						}
						return
					}
					if err != nil {
						t.Fatal(err)
					}
					if m.Transport() != "dev" {
						t.Errorf("transport %s", m.Transport())
					}
					if err := fakefs.Stat(t, filepath.Join(dir, "x")); err != nil {
						t.Error(err)
					}
					if err := m.Unmount(false); err != nil {
						t.Error(err)
					}
					fakefs.WaitDone(t, m.done)
				})
			}
			for since := time.Now(); descriptorsOpen(t, !made) != before; time.Sleep(5 * time.Millisecond) {
				if time.Since(since) > time.Minute {
					t.Fatalf("%d descriptors are open, %d were", descriptorsOpen(t, !made), before)
				}
			}
		})
	}
	_, reopened, _ := serveFake(t, fakefs.New())
	for _, dir := range []string{idle, reopened} {
		if err := fakefs.Stat(t, filepath.Join(dir, "after")); err != nil {
			t.Error(err)
		}
	}
}

// brokenLanes makes lanes whose rings take nothing; they work again when the test ends, and what was queued is settled.
func brokenLanes(t *testing.T) func() (*laneSet, error) {
	t.Helper()
	before := rings(t)
	s, err := makeLanes()
	if err != nil {
		t.Fatal(err)
	}
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	kept := map[int]int{}
	for fd := range rings(t) {
		if !before[fd] {
			if kept[fd], err = unix.Dup(fd); err != nil {
				t.Fatal(err)
			}
			if err := unix.Dup3(null, fd, unix.O_CLOEXEC); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, l := range s.all {
		l.mu.Lock()
		l.failures = maxFailures - 1 // the next one is enough
		l.mu.Unlock()
	}
	offered := false
	t.Cleanup(func() {
		for fd, ring := range kept {
			if err := errors.Join(unix.Dup3(ring, fd, unix.O_CLOEXEC), unix.Close(ring)); err != nil {
				t.Error(err)
			}
		}
		_ = unix.Close(null) // nothing was written
		for _, l := range s.all {
			l.mu.Lock()
			settled := l.barrier()
			l.mu.Unlock()
			<-settled
		}
	})
	return func() (*laneSet, error) {
		if offered { // a mount made again must not ask
			t.Error("io_uring is tried twice")
		}
		offered = true
		return s, nil
	}
}

// TestPoor has a mount's queues get no memory for more entries: it goes on with those it has.
func TestNoMemoryForEntries(t *testing.T) {
	if transportOfTest() != "uring" {
		return
	}
	f := fakefs.New()
	_, dir, said := serveFake(t, f)
	memory := mmap
	slots.mu.Lock()
	free := slots.free
	slots.free = nil
	mmap = func(int, int64, int, int, int) ([]byte, error) { return nil, unix.ENOMEM }
	slots.mu.Unlock()
	defer func() {
		slots.mu.Lock()
		defer slots.mu.Unlock()
		mmap, slots.free = memory, append(slots.free, free...)
	}()
	cmd := fakefs.Program(t, "stat", filepath.Join(dir, "wait"))
	f.AwaitOne(t)
	for i := range 10 {
		if err := fakefs.Stat(t, filepath.Join(dir, fmt.Sprint("x", i))); err != nil {
			t.Error(err)
		}
	}
	f.AnswerAll()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if n := strings.Count(said.String(), "no memory for more ring entries"); n != 1 {
		t.Errorf("the log speaks of it %d times: %s", n, said)
	}
}
