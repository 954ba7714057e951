package transport

import (
	"encoding/binary"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

const (
	// killedEach is how often it is looked at whether a waiting program that got a signal was killed, and killedMost how many are
	// looked at each time.
	killedEach = time.Second
	killedMost = 256
	// earlyMost is how many signals are remembered for requests that are still on their way to a line.
	earlyMost = 64
)

// early remembers for which requests the kernel has told of a signal of late. The word of it may come before the request, which takes another
// way (a ring, or another reader of the device). To have the kernel repeat it, by an answer of EAGAIN, is of no use: it does not find
// requests of a ring by that. It gives no number twice.
type early struct {
	count   atomic.Uint64
	numbers [earlyMost]atomic.Uint64
}

func (e *early) note(unique uint64) { e.numbers[(e.count.Add(1)-1)%earlyMost].Store(unique) }

func (e *early) has(unique uint64) bool {
	for i := range min(e.count.Load(), earlyMost) {
		if e.numbers[i].Load() == unique {
			return true
		}
	}
	return false
}

// interrupted is told by the kernel (INTERRUPT) that a program which waits for an answer got a signal. If it was killed and its request
// waits in a line, the request is given up: its memory is free and the program can end. What is not killed waits on, since an EINTR is
// more than programs expect of a file; it is looked at again, because the kernel tells of the first signal only.
func (d *device) interrupted(unique uint64) {
	d.early.note(unique) // before it is looked for: line.give looks here after it has put a request into its line
	for i := range d.lines {
		if d.lines[i].giveUp(unique) {
			return
		}
	}
}

// giveUp refuses a request whose program was killed, and says whether it waits here.
func (n *line) giveUp(unique uint64) (found bool) {
	n.mu.Lock()
	e := n.byID[unique]
	if e == nil {
		n.mu.Unlock()
		return false
	}
	w, _ := e.Value.(*waiter)
	w.signaled = true
	dead := killed(w.r.from().Pid)
	if dead {
		n.remove(e)
	}
	n.mu.Unlock()
	if dead {
		n.drop(w, fuse.Status(unix.EINTR))
	} else {
		n.d.lookLater()
	}
	return true
}

// lookLater sees to it that lookForKilled is called.
func (d *device) lookLater() {
	if d.looks.CompareAndSwap(false, true) {
		time.AfterFunc(killedEach, d.lookForKilled)
	}
}

// lookForKilled looks again at those that got a signal, as long as there are any.
func (d *device) lookForKilled() {
	d.looks.Store(false)
	for i := range d.lines {
		n := &d.lines[i]
		var signaled []uint64
		n.mu.Lock()
		for e := n.waiting.Front(); e != nil && len(signaled) < killedMost; e = e.Next() {
			if w, _ := e.Value.(*waiter); w.signaled {
				signaled = append(signaled, w.r.from().Unique)
			}
		}
		n.mu.Unlock()
		for _, unique := range signaled {
			n.giveUp(unique)
		}
	}
}

// killed says whether a thread has been told to end: it has a SIGKILL pending, as all threads of a process have that ends by a signal. See
// proc_pid_status(5). A thread of another process namespace, 0, is not to be seen.
func killed(tid uint32) bool {
	if tid == 0 {
		return false
	}
	var buf [4096]byte
	status := readStat("/proc/"+strconv.FormatUint(uint64(tid), 10)+"/status", buf[:])
	_, after, found := strings.Cut(string(status), "\nSigPnd:\t")
	if !found || len(after) < 16 {
		return false
	}
	mask, err := strconv.ParseUint(after[:16], 16, 64)
	return err == nil && mask&(1<<(unix.SIGKILL-1)) != 0
}

// interruptedOf takes the number out of an INTERRUPT, struct fuse_interrupt_in.
func interruptedOf(req []byte) (unique uint64, ok bool) {
	const at = int(unsafe.Sizeof(fuse.InHeader{}))
	if len(req) < at+8 {
		return 0, false
	}
	return binary.NativeEndian.Uint64(req[at:]), true
}
