package sandbox

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/internal/lockorder"
)

// Bounds of what calls share that describe workspaces: while so many want the table of mounts at a time, they take one that
// was begun to be read so long ago.
const (
	manyReaders = 8
	tableAge    = 10 * time.Millisecond
)

// mountReader reads the table of mounts for calls that only describe what they find there. To read it takes the time of
// several such calls, and more with each mount: those that come at the same time share a table. A call alone has one that
// was read after it came. While there are many, what a table does not tell is where mounts have moved in the last
// moment, as the directories above them are renamed; the kernel tells of new mounts and of ended ones. The zero value is
// ready.
type mountReader struct {
	wanted atomic.Int32 // calls in read

	mu    lockorder.Mutex[lockorder.MountReader]
	open  bool       // guarded by mu: fd is
	fd    int        // guarded by mu: of the table, to be told of changes; Go's own poller would take that news
	table mountTable // guarded by mu: nil before it was read; shared, and not changed
	begun time.Time  // guarded by mu: when it was begun to be read
}

// read gives a table that the caller must not change.
func (r *mountReader) read() (mountTable, error) {
	came := time.Now()
	r.wanted.Add(1)
	defer r.wanted.Add(-1)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.changedLocked() {
		r.table = nil
	}
	many := r.wanted.Load() >= manyReaders
	if r.table != nil && (r.begun.After(came) || many && came.Sub(r.begun) < tableAge) {
		return r.table, nil
	}
	r.begun = time.Now()
	table, err := readMounts()
	if err != nil {
		return nil, err
	}
	r.table = table
	return table, nil
}

// changedLocked reports whether the kernel tells of changes since it was asked last, or cannot be asked. The caller holds
// mu.
func (r *mountReader) changedLocked() bool {
	if !r.open {
		fd, err := unix.Open("/proc/self/mountinfo", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return true
		}
		r.fd, r.open = fd, true
	}
	poll := []unix.PollFd{{Fd: int32(r.fd), Events: unix.POLLPRI}}
	n, err := unix.Poll(poll, 0)
	return err != nil || n > 0
}

// close gives the file up.
func (r *mountReader) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.open {
		return nil
	}
	r.open, r.table = false, nil
	return unix.Close(r.fd)
}
