package transport

import (
	"log/slog"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"snapfs/fs/internal/proto"
)

const (
	// queueDepth is how many entries a queue begins with that has a lane on its own processor; others begin with one.
	queueDepth = 4
	// queueLimit is how many it may grow to. It grows when all its entries hold requests that take long; as a rule the
	// memory of these is what bounds them (device.full).
	queueLimit = 1 << 14
	// maxSpare is how many entries the kernel has at least, of a queue where very many wait: half of those that do, up
	// to this.
	maxSpare = 64
	// registerWait is how long the ring may take to pass the first entries to the kernel, and registerLook how often
	// that is checked meanwhile.
	registerWait = 10 * time.Second
	registerLook = 50 * time.Millisecond
)

// uring is the transport over io_uring. The device below it still carries what the kernel sends nowhere else, and
// lives as long as the last entry.
type uring struct {
	*device
	lanes   *laneSet
	queues  []queue
	initial []slot // for the initial entries

	knownFile atomic.Uint64 // the node of a regular file that the kernel knows, or did lately; 0: none is known
	failed    atomic.Int32  // the first errno of an entry that the kernel refused
	warned    atomic.Bool   // see warnNoMemory

	stalled bool // the initial entries have not reached the kernel, which waits for them. Set by start
}

// queue is the kernel's queue of the requests that are sent on one processor, of one mount.
type queue struct {
	u       *uring
	l       *lane
	id      uint16
	initial int // how many entries it begins with

	// Guarded by l.mu.
	total        int  // entries
	busy         int  // of these, with a request in them
	lost         int  // of these, armed and out of reach, see lane.writeOff
	kicksPending int  // how many more to send
	kicking      bool // a goroutine sends them
}

// newUring takes the memory of the initial entries, because once the kernel was told of io_uring it waits for them.
func newUring(d *device, lanes *laneSet) (*uring, error) {
	u := &uring{device: d, lanes: lanes, queues: make([]queue, lanes.queues)}
	for id := range u.queues {
		q := &u.queues[id]
		l, own := lanes.laneOf(id)
		q.u, q.l, q.id, q.initial = u, l, uint16(id), 1
		if own {
			q.initial = queueDepth
		}
		for range q.initial {
			x, err := slots.get()
			if err != nil {
				u.freeInitial()
				return nil, err
			}
			u.initial = append(u.initial, x)
		}
	}
	return u, nil
}

// freeInitial gives back what was not used.
func (u *uring) freeInitial() {
	for _, x := range u.initial {
		slots.put(x, 0)
	}
	u.initial = nil
}

func (u *uring) name() string {
	if u.secondary.Load() {
		return "uring"
	}
	return u.device.name()
}

// start registers entries for all queues, without which the kernel sends nothing: a processor that is not there yet
// may come. If that fails the kernel goes on with the device, and so does the mount.
func (u *uring) start(h Handler, done func()) {
	u.ringLanes = u.lanes
	u.secondary.Store(true)
	u.device.start(h, done)
	for i := range u.queues {
		q := &u.queues[i]
		q.l.mu.Lock()
		for range q.initial {
			if u.use() { // false: it has ended
				q.l.register(&entry{q: q, slot: u.initial[len(u.initial)-1]})
				u.initial = u.initial[:len(u.initial)-1]
			}
		}
		q.l.mu.Unlock()
	}
	u.freeInitial()
	var registered []<-chan struct{}
	for _, l := range u.lanes.all {
		l.mu.Lock()
		registered = append(registered, l.barrier())
		l.mu.Unlock()
	}
	for _, c := range registered {
		if !u.await(c) {
			u.stalled = true
			return
		}
	}
	if errno := u.failed.Load(); errno != 0 && !u.dead.Load() {
		u.log.Warn("the kernel refuses io_uring for a mount, requests come over the device",
			slog.String("error", unix.Errno(errno).Error()))
		u.secondary.Store(false)
	}
}

// await waits until entries have reached the kernel; false: the ring does not work.
func (u *uring) await(registered <-chan struct{}) bool {
	for begin := time.Now(); time.Since(begin) < registerWait; {
		select {
		case <-registered:
			return true
		case <-time.After(registerLook):
			if u.lanes.usable() != nil {
				return false
			}
		}
	}
	return false
}

// grow registers entries for further requests when others hold requests that may take long. With lane.mu held; callers
// must have a thread of the lane look at the backlog.
func (q *queue) grow() {
	want := min(max(queueDepth, q.busy/2), maxSpare)
	if q.busy == 0 { // none is in use, see lane.writeOff
		want = queueDepth / 2
	}
	more := 0
	for ; q.total-q.busy-q.lost < want && q.total < queueLimit && !q.u.full() && q.u.use(); more++ {
		x, err := slots.get()
		if err != nil {
			q.u.warnNoMemory(err)
			q.u.leave()
			break
		}
		q.l.register(&entry{q: q, slot: x})
	}
	if more > 0 {
		q.kickLater(more)
	}
}

// warnNoMemory logs, once, that there is no memory for entries; the mount goes on with those it has.
func (u *uring) warnNoMemory(err error) {
	if u.warned.CompareAndSwap(false, true) {
		u.log.Warn("no memory for more ring entries; many requests that wait may hold up others of this mount",
			slog.String("error", err.Error()))
	}
}

// kickLater sends kicks when the entries queued before have reached the kernel: requests may have found none. With
// lane.mu held.
func (q *queue) kickLater(n int) {
	q.kicksPending += n
	if q.kicking || !q.u.use() {
		return
	}
	q.kicking = true
	go func() {
		defer q.u.leave()
		for {
			q.l.mu.Lock()
			n := q.kicksPending
			if q.kicksPending = 0; n == 0 || q.u.dead.Load() {
				q.kicking = false
				q.l.mu.Unlock()
				return
			}
			registered := q.l.barrier()
			q.l.mu.Unlock()
			<-registered
			q.kick(n)
		}
	}()
}

// kick has the kernel send n requests to this queue that no program waits for. When the entries are all in use, it
// keeps requests in a list that it looks at when an answer is submitted, but not when an entry is registered: with all
// answers outstanding for long they would wait beside a free entry, until any other request comes. So the new entry
// gets a request to answer, if a file is known (the kernel takes no directory): for zero bytes of what is cached of it
// (struct fuse_notify_retrieve_out).
func (q *queue) kick(n int) {
	msg := struct {
		fuse.OutHeader
		unique, node, offset uint64
		size, padding        uint32
	}{OutHeader: fuse.OutHeader{Status: proto.NotifyRetrieve}, node: q.u.knownFile.Load()}
	if msg.node == 0 {
		return
	}
	msg.Length = uint32(unsafe.Sizeof(msg))
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, set unix.CPUSet
	set.Set(int(q.id))
	if unix.SchedGetaffinity(0, &before) == nil && unix.SchedSetaffinity(0, &set) == nil {
		defer unix.SchedSetaffinity(0, &before) //nolint:errcheck // it was so before
	}
	for range n {
		msg.unique = kickUnique + 2*kicks.Add(1)
		if err := q.u.notify(unsafe.Slice((*byte)(unsafe.Pointer(&msg)), unsafe.Sizeof(msg))); err != nil {
			// The file is forgotten, or the connection has ended.
			q.u.log.Debug("a queue was not kicked", slog.String("error", err.Error()))
			q.u.knownFile.CompareAndSwap(msg.node, 0)
			return
		}
	}
}

// kicks counts them; kickUnique is the first of a range of request numbers that the kernel, which counts up from 2 in
// twos, does not reach.
var kicks atomic.Uint64

const kickUnique = 1 << 62

// noteFailure notes why the kernel gave an entry up, unless it was the end of the connection.
func (u *uring) noteFailure(why unix.Errno) {
	switch why {
	case unix.ENOTCONN, unix.ECONNABORTED, unix.ECANCELED, unix.ENODEV:
		return
	}
	u.failed.CompareAndSwap(0, int32(why))
}

// freeEntry frees an entry that the kernel has given up.
func (u *uring) freeEntry(e *entry) {
	slots.put(e.slot, e.used)
	u.leave()
}
