package transport

import (
	"encoding/binary"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"snapfs/internal/iouring"
	"snapfs/internal/lockorder"
)

const (
	// laneDepth is how many submissions a lane's ring holds.
	laneDepth = 128
	// batch is how many answers may wait for the next request to be handled before they are submitted.
	batch = 8
	// lightWeight is what a request may transfer, in bytes, without making answers wait, and heavyWeight what it may
	// transfer without being passed on when others wait. A READ that large is passed on in any case: the kernel asks
	// for the next one before the program has taken this one.
	lightWeight = 32 << 10
	heavyWeight = 128 << 10
	// substituteCheck is how long a substitute waits for a request before it checks whether it is still needed.
	substituteCheck = 10 * time.Millisecond
)

// Completions that are no entry's, and submissions that are none.
const (
	tagWake    = 1 << 32
	tagBarrier = 2 << 32

	cmdListen  = 100 // wait for the eventfd
	cmdBarrier = 101 // completes when the kernel has seen all before it
)

// lane serves the requests that are sent on one processor, of all mounts: a ring and its threads. As a rule that is one
// thread, bound to the processor, so that a program and its server take turns on one processor and no other one is
// woken. When a request keeps the thread for long, the watchdog unparks a substitute, which serves until the thread is
// back. Threads never end: the kernel would cancel the entries they submitted.
type lane struct {
	cpu     int // -1: not bound
	ring    *iouring.Ring
	wakeFD  int     // an eventfd that ends the wait of a thread
	wakeBuf [8]byte // what is read from it
	main    *thread

	watched atomic.Bool // the watchdog looks after the lane

	mu       lockorder.Mutex[lockorder.Lane] // guards the rest
	entries  []*entry                        // by id; nil: free
	freeIDs  []uint32
	backlog  []submission // submissions that found the queue full
	waiting  int          // threads in iouring.Ring.Enter
	signaled bool         // wakeFD is written, and not read yet
	serving  []*thread
	parked   []*thread
	barriers []chan struct{} // closed in order
	failures int             // of io_uring_enter(2), in a row

	sawRequests bool     // there were requests since the last look
	looks       uint32   // of the watchdog
	clock       uint32   // coarse time
	order       uint64   // counts what is queued of entries
	unsent      []*entry // queued, not submitted
	dirty       []*entry // with memory behind their payloads
	scratch     scratch  // empty
}

// submission is what is to be queued in the ring.
type submission struct {
	e   *entry // nil for cmdListen and cmdBarrier
	cmd uint64
}

// laneSet is the lanes of the process; immutable.
type laneSet struct {
	all    []*lane
	cpus   []int // processors that have a lane, in order of all
	queues int   // how many queues the kernel has: one per possible processor
}

// theLanes gives the process's lanes, which are made once and live as long as the process. If that fails, it is retried
// for the next mount.
var theLanes = func() func() (*laneSet, error) {
	var mu lockorder.Mutex[lockorder.Lanes]
	var made *laneSet
	return func() (_ *laneSet, err error) {
		mu.Lock()
		defer mu.Unlock()
		if made == nil {
			made, err = makeLanes()
		}
		return made, err
	}
}()

// What may fail for lack of memory, descriptors or permission; tests replace it.
var (
	newRing = iouring.New
	eventfd = unix.Eventfd
	mmap    = unix.Mmap
)

func makeLanes() (*laneSet, error) {
	possible, err := os.ReadFile("/sys/devices/system/cpu/possible")
	if err != nil {
		return nil, err
	}
	s := new(laneSet)
	if s.queues, err = countCPUs(strings.TrimSpace(string(possible))); err != nil {
		return nil, err
	}
	var mine unix.CPUSet
	if err := unix.SchedGetaffinity(0, &mine); err != nil {
		return nil, err
	}
	for cpu := range s.queues {
		if !mine.IsSet(cpu) {
			continue
		}
		l, err := newLane(cpu)
		if err != nil {
			s.close()
			return nil, err
		}
		s.all, s.cpus = append(s.all, l), append(s.cpus, cpu)
	}
	if len(s.all) == 0 {
		return nil, errors.New("no processor to serve on")
	}
	for _, l := range s.all {
		l.begin()
	}
	return s, nil
}

func (s *laneSet) close() {
	for _, l := range s.all {
		l.close()
	}
}

// laneOf gives the lane of a queue, and whether they share a processor.
func (s *laneSet) laneOf(queue int) (l *lane, own bool) {
	for i, cpu := range s.cpus {
		if cpu == queue {
			return s.all[i], true
		}
	}
	return s.all[queue%len(s.all)], false
}

// raceOrder tells the race detector what the kernel ensures: that a node is forgotten after all requests that used it
// were answered, on any lane.
func (s *laneSet) raceOrder() {
	for _, l := range s.all {
		l.mu.Lock()
		l.mu.Unlock() //nolint:staticcheck // for its effect on memory
	}
}

// countCPUs counts a list as the kernel writes it: "0-3,8".
func countCPUs(list string) (int, error) {
	n := 0
	for part := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(part, "-")
		a, err := strconv.Atoi(first)
		if err != nil {
			return 0, err
		}
		b := a
		if isRange {
			if b, err = strconv.Atoi(last); err != nil {
				return 0, err
			}
		}
		n += b - a + 1
	}
	return n, nil
}

func newLane(cpu int) (*lane, error) {
	ring, err := newRing(laneDepth, substituteCheck)
	if err != nil {
		return nil, err
	}
	l := &lane{cpu: cpu, ring: ring, wakeFD: -1}
	if l.wakeFD, err = eventfd(0, unix.EFD_CLOEXEC); err != nil {
		l.close()
		return nil, err
	}
	if l.scratch, err = newScratch(); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// close is for lanes that never began.
func (l *lane) close() {
	_ = l.ring.Close()
	if l.wakeFD >= 0 {
		_ = unix.Close(l.wakeFD) // never used
	}
	if l.scratch != nil {
		_ = unix.Munmap(l.scratch)
	}
}

func (l *lane) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.backlog = append(l.backlog, submission{cmd: cmdListen})
	l.main = l.startThread()
}

// startThread starts a thread that serves the lane.
func (l *lane) startThread() *thread {
	h := &thread{l: l, resume: make(chan struct{}, 1)}
	l.serving = append(l.serving, h)
	go h.run(len(l.serving) == 1)
	return h
}

// push queues a submission from any goroutine. It is called with mu held and releases it.
func (l *lane) push(t submission) {
	l.backlog = append(l.backlog, t)
	l.wakeUp()
	l.mu.Unlock()
}

// wakeUp has a thread look at the backlog. With mu held.
func (l *lane) wakeUp() {
	if l.waiting > 0 && !l.signaled {
		l.signaled = true
		l.signal()
	}
}

// barrier gives a channel that is closed when the kernel has seen all that was queued before. With mu held.
func (l *lane) barrier() <-chan struct{} {
	c := make(chan struct{})
	l.barriers = append(l.barriers, c)
	l.backlog = append(l.backlog, submission{cmd: cmdBarrier})
	l.wakeUp()
	return c
}

func (l *lane) signal() {
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	_, _ = unix.Write(l.wakeFD, one[:]) // an eventfd far from full: cannot fail
}

// drain moves the backlog into the ring, as far as there is room. With mu held.
func (l *lane) drain(h *thread) {
	done := 0
	for _, t := range l.backlog {
		s := l.ring.Next()
		if s == nil {
			l.submit(h)
			if s = l.ring.Next(); s == nil {
				break
			}
		}
		l.arm(s, t)
		done++
	}
	if done > 0 {
		left := copy(l.backlog, l.backlog[done:])
		clear(l.backlog[left:])
		l.backlog = l.backlog[:left]
	}
}

// arm fills in a submission. With mu held.
func (l *lane) arm(s *iouring.SQE, t submission) {
	switch t.cmd {
	case cmdListen:
		s.Opcode, s.FD, s.Off, s.UserData = iouring.OpRead, int32(l.wakeFD), ^uint64(0), tagWake
		s.Addr, s.Len = uint64(uintptr(unsafe.Pointer(&l.wakeBuf))), uint32(len(l.wakeBuf))
	case cmdBarrier:
		s.Opcode, s.UserData = iouring.OpNop, tagBarrier
	default:
		t.e.fill(s, t.cmd)
		l.order++
		t.e.clock, t.e.order, t.e.armed, t.e.owner = l.clock, l.order, true, nil
		l.unsent = append(l.unsent, t.e)
	}
	l.ring.Publish()
}

// register queues the registration of an entry. With mu held.
func (l *lane) register(e *entry) {
	if n := len(l.freeIDs); n > 0 {
		e.id = l.freeIDs[n-1]
		l.freeIDs = l.freeIDs[:n-1]
		l.entries[e.id] = e
	} else {
		e.id = uint32(len(l.entries))
		l.entries = append(l.entries, e)
	}
	e.iov[0].Base, e.iov[1].Base = &e.slot.head[0], &e.slot.payload[0]
	e.iov[0].SetLen(len(e.slot.head))
	e.iov[1].SetLen(len(e.slot.payload))
	l.backlog = append(l.backlog, submission{e, cmdRegister})
	e.q.total++
}

// retire takes out an entry that the kernel has given up. With mu held.
func (l *lane) retire(e *entry, why unix.Errno) {
	l.entries[e.id] = nil
	l.freeIDs = append(l.freeIDs, e.id)
	e.q.total--
	if e.dirty {
		for i, d := range l.dirty {
			if d == e {
				l.dirty[i] = l.dirty[len(l.dirty)-1]
				l.dirty = l.dirty[:len(l.dirty)-1]
				break
			}
		}
	}
	e.q.u.noteFailure(why)
	go e.q.u.freeEntry(e) // may end the mount, which must not be done with mu held
}
