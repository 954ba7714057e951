package fs

import (
	"encoding/binary"
	"errors"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"snapfs/internal/iouring"
)

const (
	// laneDepth is how many submissions a lane's ring holds.
	laneDepth = 128
	// batch is how many answers may wait for the next request to be handled before they are handed in.
	batch = 8
	// lightWeight is what a request may move, in bytes, without making answers wait, and heavyWeight what it may move
	// without being given away when others wait.
	lightWeight = 32 << 10
	heavyWeight = 128 << 10
	// ageLooks is how many looks of the watchdog, and so milliseconds of a busy lane, its clock counts as one.
	ageLooks = 1000
	// reclaimBatch is how many payloads are given back between two requests.
	reclaimBatch = 8
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

	mu       sync.Mutex
	entries  []*entry // by id; nil: free
	freeIDs  []uint32
	backlog  []todo // submissions that found the queue full
	waiting  int    // threads in iouring.Ring.Enter
	poked    bool   // wake is written, and not read yet
	duty     []*hand
	spare    []*hand
	barriers []chan struct{} // closed in order

	active  bool // there were requests since the last look
	looks   uint32
	clock   uint32   // coarse time
	turn    uint64   // counts submissions of entries
	mixed   uint64   // up to this turn, submissions may be another thread's than main's
	dirty   []*entry // with memory in their payloads
	reclaim bool     // main shall give memory back
	attic   attic    // main's
}

// todo is a submission to be made.
type todo struct {
	e   *entry // nil for cmdListen and cmdBarrier
	cmd uint64
}

// hand is one thread of a lane.
type hand struct {
	l    *lane
	seq  atomic.Uint64 // odd while it handles a request
	call chan struct{} // ends its leisure

	seen uint64 // what the watchdog saw last; under lane.mu
	e    *entry // what it handles; under lane.mu
}

// lanes of the process.
type laneSet struct {
	all   []*lane
	cpus  []int // processors that have a lane, in order of all
	queue int   // how many queues the kernel has: one per possible processor
}

// theLanes makes the process's lanes, once. They live as long as the process.
var theLanes = sync.OnceValues(func() (*laneSet, error) {
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
})

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
	ring, err := iouring.New(laneDepth)
	if err != nil {
		return nil, err
	}
	l := &lane{cpu: cpu, ring: ring, wake: -1}
	if l.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC); err != nil {
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

// submit hands in what is queued. Under mu, of a thread on duty.
func (l *lane) submit() {
	for n := l.ring.Queued(); n > 0; n = l.ring.Queued() {
		if errno := l.ring.Submit(n); errno != 0 && errno != unix.EINTR {
			l.check(errno)
			return // it is tried again before anybody waits
		}
	}
}

// check knows the errors of io_uring_enter(2) that pass: the kernel wants completions taken first, or has no memory.
func (l *lane) check(errno unix.Errno) {
	switch errno {
	case 0, unix.EINTR, unix.EAGAIN, unix.EBUSY:
	default:
		panic("io_uring_enter: " + errno.Error()) // only of a damaged ring
	}
}

// run is a thread's life.
func (h *hand) run(bind bool) {
	runtime.LockOSThread()
	if bind && h.l.cpu >= 0 {
		var set unix.CPUSet
		set.Set(h.l.cpu)
		_ = unix.SchedSetaffinity(0, &set) // refused: the processor went away; served from any other
	}
	for {
		e := h.fetch()
		if e == nil {
			<-h.call
			continue
		}
		h.l.mind()
		h.seq.Add(1)
		touched := e.handle()
		h.seq.Add(1)
		h.l.finish(h, e, touched)
	}
}

// fetch waits for a request that this thread has to handle; nil: it is not needed any more, for now.
func (h *hand) fetch() *entry {
	l := h.l
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		if h != l.main && l.main.seq.Load()%2 == 0 {
			l.drain()
			l.submit() // what it answered itself
			l.dismiss(h)
			l.rouse() // to hand in what was left over
			return nil
		}
		if e := l.take(h); e != nil {
			return e
		}
		if l.reclaim && h == l.main && l.giveBack() {
			continue
		}
		l.drain()
		n := l.ring.Queued()
		l.waiting++
		l.mu.Unlock()
		errno := l.ring.Enter(n)
		l.mu.Lock()
		l.waiting--
		l.check(errno)
	}
}

// take finds a request among the completions that this thread has to handle. Under mu.
func (l *lane) take(h *hand) *entry {
	for {
		c, ok := l.ring.Pop()
		if !ok {
			return nil
		}
		switch c.UserData {
		case tagWake:
			l.poked = false
			l.backlog = append(l.backlog, todo{cmd: cmdListen})
			continue
		case tagBarrier:
			close(l.barriers[0])
			l.barriers = l.barriers[1:]
			continue
		}
		e := l.entries[c.UserData]
		e.armed = false
		if c.Res != 0 {
			l.retire(e, unix.Errno(-c.Res))
			continue
		}
		e.q.busy++
		l.active = true
		weight := e.weight()
		if slow(e.header().Opcode) || weight > heavyWeight && l.ring.More() {
			l.give(e)
			continue
		}
		if n := l.ring.Queued(); n >= batch || n > 0 && weight > lightWeight {
			l.submit()
		}
		h.e = e
		return e
	}
}

// give has a goroutine handle a request that may take long. Under mu.
func (l *lane) give(e *entry) {
	e.q.grow(false)
	go func() {
		l.mind()
		touched := e.handle()
		l.finish(nil, e, touched)
	}()
}

// mind makes sure that the watchdog looks after the lane.
func (l *lane) mind() {
	if !l.watched.Load() && l.watched.CompareAndSwap(false, true) {
		theHub().watch(l)
	}
}

// finish queues the answer of a request. h is nil if it was not handled by one of the lane's threads; then somebody
// else has to hand it in.
func (l *lane) finish(h *hand, e *entry, touched int) {
	l.mu.Lock()
	e.q.busy--
	e.used = max(e.used, touched)
	if !e.dirty && e.used > 0 {
		e.dirty = true
		l.dirty = append(l.dirty, e)
	}
	if h != nil {
		h.e = nil
		if s := l.ring.Next(); s != nil {
			l.arm(s, todo{e, cmdCommit})
			l.mu.Unlock()
			return
		}
	}
	l.push(todo{e, cmdCommit})
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

// drain moves the backlog into the queue, as far as there is room. Under mu, of a thread on duty.
func (l *lane) drain() {
	done := 0
	for _, t := range l.backlog {
		s := l.ring.Next()
		if s == nil {
			l.submit()
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
		t.e.turn, t.e.clock, t.e.armed = l.turn, l.clock, true
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

// dismiss sends a substitute into leisure. What it, or somebody else while it was there, has submitted may be its own:
// the kernel fills such entries while main does what it wants. Under mu.
func (l *lane) dismiss(h *hand) {
	for i, d := range l.duty {
		if d == h {
			l.duty = append(l.duty[:i], l.duty[i+1:]...)
			break
		}
	}
	l.mixed = l.turn
	l.spare = append(l.spare, h)
}

// look is the watchdog's: stuck says that all threads on duty are handling the same requests as last time, and rest
// that there is nothing left to watch.
func (l *lane) look() (stuck, rest bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.looks++; l.looks%ageLooks == 0 {
		l.clock++
		if len(l.dirty) > 0 && !l.reclaim {
			l.reclaim = true
			l.rouse()
		}
	}
	stuck = l.waiting == 0
	idle := l.waiting > 0
	for _, h := range l.duty {
		seq := h.seq.Load()
		if seq%2 == 0 || seq != h.seen {
			stuck = false
		}
		idle = idle && seq%2 == 0
		h.seen = seq
	}
	if idle && !l.active && len(l.dirty) == 0 {
		l.watched.Store(false)
		return false, true
	}
	l.active = false
	return stuck, false
}

// rescue calls a substitute, and makes sure that there are entries left for the mounts whose requests take so long.
func (l *lane) rescue() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting > 0 || len(l.duty) > maxBusy {
		return
	}
	for _, h := range l.duty {
		if h.e != nil {
			h.e.q.grow(true)
		}
	}
	if n := len(l.spare); n > 0 {
		h := l.spare[n-1]
		l.spare = l.spare[:n-1]
		l.duty = append(l.duty, h)
		h.call <- struct{}{}
		return
	}
	l.hire()
}

// giveBack frees the memory of some payloads that were not used for a while; false: none is left. Only main does it,
// under mu, because the kernel fills main's own entries at no other time than when main leaves the kernel.
func (l *lane) giveBack() bool {
	if len(l.duty) > 1 {
		return false
	}
	l.drain()
	l.submit()
	l.reclaim = false
	done := 0
	for i := 0; i < len(l.dirty); {
		e := l.dirty[i]
		if !e.armed || l.clock-e.clock < 2 {
			i++
			continue
		}
		if done == reclaimBatch {
			l.reclaim = true
			return true
		}
		if e.turn > l.mixed {
			done++
			l.empty(e)
		}
		e.dirty = false // what is another thread's is seen to when it has been used again
		l.dirty[i] = l.dirty[len(l.dirty)-1]
		l.dirty = l.dirty[:len(l.dirty)-1]
	}
	return false
}

// empty gives the memory of one payload back. A request that came just before, and is not taken yet, is kept.
func (l *lane) empty(e *entry) {
	n := pages(e.used)
	if l.attic.take(e.slot.payload, n) != 0 {
		return // out of memory, of all things: it stays
	}
	e.used = 0
	l.ring.Waiting(func(c iouring.CQE) bool {
		if c.UserData == uint64(e.id) && c.Res == 0 {
			if _, size := e.sizes(); size > 0 && size <= len(e.slot.payload) {
				l.attic.giveBack(e.slot.payload, size)
			}
			return false
		}
		return true
	})
	l.attic.drop(n)
}
