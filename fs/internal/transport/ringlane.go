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
	// batch is how many answers may wait for the next request to be handled before they are handed in.
	batch = 8
	// lightWeight is what a request may move, in bytes, without making answers wait, and heavyWeight what it may move
	// without being given away when others wait. A READ that large is given away in any case: the kernel asks for the next one
	// before the program has taken this one.
	lightWeight = 32 << 10
	heavyWeight = 128 << 10
	// dutyCheck is how long a substitute waits for a request before it looks whether it is still needed.
	dutyCheck = 10 * time.Millisecond
)

// Completions that are no entry's, and submissions that are none.
const (
	tagWake    = 1 << 32
	tagBarrier = 2 << 32

	cmdListen  = 100 // wait for the eventfd
	cmdBarrier = 101 // tell when all before it was seen by the kernel
)

// lane serves the requests that are sent on one processor, of all mounts: a ring and the threads that work at it. As
// a rule that is one thread, bound to the processor, so that a program and its server take turns on one processor and
// nobody wakes another one. When a request keeps it for long, the watchdog calls a substitute, who stays until the
// thread is back. Threads never end: the kernel would cancel the entries they submitted.
type lane struct {
	cpu  int // -1: not bound
	ring *iouring.Ring
	wake int     // an eventfd that ends the wait of whoever waits
	word [8]byte // what is read from it
	main *hand

	watched atomic.Bool // the watchdog looks

	mu       lockorder.Mutex[lockorder.Lane]
	entries  []*entry // by id; nil: free
	freeIDs  []uint32
	backlog  []todo // submissions that found the queue full
	waiting  int    // threads in iouring.Ring.Enter
	poked    bool   // wake is written, and not read yet
	duty     []*hand
	spare    []*hand
	barriers []chan struct{} // closed in order
	failures int             // of io_uring_enter(2), in a row

	active bool // there were requests since the last look
	looks  uint32
	clock  uint32   // coarse time
	turn   uint64   // counts what is queued of entries
	unsent []*entry // queued, not submitted
	dirty  []*entry // with memory in their payloads
	attic  attic    // empty
}

// todo is a submission to be made.
type todo struct {
	e   *entry // nil for cmdListen and cmdBarrier
	cmd uint64
}

// lanes of the process.
type laneSet struct {
	all   []*lane
	cpus  []int // processors that have a lane, in order of all
	queue int   // how many queues the kernel has: one per possible processor
}

// theLanes gives the process's lanes, which are made once and live as long as the process. What fails is tried again for the next mount.
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
	if s.queue, err = countCPUs(strings.TrimSpace(string(possible))); err != nil {
		return nil, err
	}
	var mine unix.CPUSet
	if err := unix.SchedGetaffinity(0, &mine); err != nil {
		return nil, err
	}
	for cpu := range s.queue {
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

// of gives the lane of a queue, and whether they share a processor.
func (s *laneSet) of(queue int) (l *lane, own bool) {
	for i, cpu := range s.cpus {
		if cpu == queue {
			return s.all[i], true
		}
	}
	return s.all[queue%len(s.all)], false
}

// order tells the race detector what the kernel sees to: that a node is forgotten after all requests that used it were
// answered, on whatever lane.
func (s *laneSet) order() {
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
	ring, err := newRing(laneDepth, dutyCheck)
	if err != nil {
		return nil, err
	}
	l := &lane{cpu: cpu, ring: ring, wake: -1}
	if l.wake, err = eventfd(0, unix.EFD_CLOEXEC); err != nil {
		l.close()
		return nil, err
	}
	if l.attic, err = newAttic(); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// close is for lanes that never began.
func (l *lane) close() {
	_ = l.ring.Close()
	if l.wake >= 0 {
		_ = unix.Close(l.wake) // never used
	}
	if l.attic != nil {
		_ = unix.Munmap(l.attic)
	}
}

func (l *lane) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.backlog = append(l.backlog, todo{cmd: cmdListen})
	l.main = l.hire()
}

// hire starts a thread that is on duty.
func (l *lane) hire() *hand {
	h := &hand{l: l, call: make(chan struct{}, 1)}
	l.duty = append(l.duty, h)
	go h.run(len(l.duty) == 1)
	return h
}

// push queues a submission from any goroutine. It is called with mu and releases it.
func (l *lane) push(t todo) {
	l.backlog = append(l.backlog, t)
	l.rouse()
	l.mu.Unlock()
}

// rouse has a thread look at the backlog. Under mu.
func (l *lane) rouse() {
	if l.waiting > 0 && !l.poked {
		l.poked = true
		l.poke()
	}
}

// barrier gives a channel that is closed when the kernel has seen all that was queued before. Under mu.
func (l *lane) barrier() <-chan struct{} {
	c := make(chan struct{})
	l.barriers = append(l.barriers, c)
	l.backlog = append(l.backlog, todo{cmd: cmdBarrier})
	l.rouse()
	return c
}

func (l *lane) poke() {
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	_, _ = unix.Write(l.wake, one[:]) // an eventfd far from full: cannot fail
}

// drain moves the backlog into the queue, as far as there is room. Under mu.
func (l *lane) drain(h *hand) {
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

// arm fills in a submission. Under mu.
func (l *lane) arm(s *iouring.SQE, t todo) {
	switch t.cmd {
	case cmdListen:
		s.Opcode, s.FD, s.Off, s.UserData = iouring.OpRead, int32(l.wake), ^uint64(0), tagWake
		s.Addr, s.Len = uint64(uintptr(unsafe.Pointer(&l.word))), uint32(len(l.word))
	case cmdBarrier:
		s.Opcode, s.UserData = iouring.OpNop, tagBarrier
	default:
		t.e.fill(s, t.cmd)
		l.turn++
		t.e.clock, t.e.turn, t.e.armed, t.e.owner = l.clock, l.turn, true, nil
		l.unsent = append(l.unsent, t.e)
	}
	l.ring.Publish()
}

// enlist queues the registration of an entry. Under mu of its lane.
func (l *lane) enlist(e *entry) {
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
	l.backlog = append(l.backlog, todo{e, cmdRegister})
	e.q.total++
}

// retire takes out an entry that the kernel has given up. Under mu.
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
	e.q.u.note(why)
	go e.q.u.retired(e) // may end the mount, which must not be done under mu
}
