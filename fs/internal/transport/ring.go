package transport

import (
	"log/slog"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"snapfs/fs/internal/proto"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

const (
	// queueDepth is how many entries a queue begins with that has a lane on its own processor; others begin with one.
	queueDepth = 4
	// queueLimit is how many it may grow to. It grows when all entries it has hold requests that take long; as a rule the memory they
	// keep is what bounds them (device.full).
	queueLimit = 1 << 14
	// spareMost is how many entries are kept in the kernel's hands, of a queue where very many wait: half of those that do, up to this.
	spareMost = 64
	// registerWait is how long the ring may take to hand the first entries to the kernel, and registerLook how often it is looked at meanwhile.
	registerWait = 10 * time.Second
	registerLook = 50 * time.Millisecond
)

// uring is the transport over io_uring. The device below it still carries what the kernel sends nowhere else, and
// lives as long as the last entry.
type uring struct {
	*device
	lanes  *laneSet
	queues []queue
	stock  []slot // for the entries to begin with

	file   atomic.Uint64 // the node of a regular file that the kernel knows, or did lately; 0: none is known
	failed atomic.Int32  // the first errno of an entry that the kernel would not have
	warned atomic.Bool   // see poor

	stalled bool // the entries to begin with have not reached the kernel, which waits for them. Set by start
}

// queue is the kernel's queue of the requests that are sent on one processor, of one mount.
type queue struct {
	u     *uring
	l     *lane
	id    uint16
	begin int // how many entries it begins with

	// Guarded by l.mu.
	total int  // entries
	busy  int  // of these, not in the kernel's hands
	lost  int  // of these, in the kernel's hands and out of reach
	owed  int  // kicks to be given
	kicks bool // somebody gives them
}

// newUring takes all the memory that is needed to begin with, because once the kernel was told of io_uring it waits for
// entries.
func newUring(d *device, lanes *laneSet) (*uring, error) {
	u := &uring{device: d, lanes: lanes, queues: make([]queue, lanes.queue)}
	for id := range u.queues {
		q := &u.queues[id]
		l, own := lanes.of(id)
		q.u, q.l, q.id, q.begin = u, l, uint16(id), 1
		if own {
			q.begin = queueDepth
		}
		for range q.begin {
			x, err := slots.get()
			if err != nil {
				u.drop()
				return nil, err
			}
			u.stock = append(u.stock, x)
		}
	}
	return u, nil
}

// drop gives back what was not used.
func (u *uring) drop() {
	for _, x := range u.stock {
		slots.put(x, 0)
	}
	u.stock = nil
}

func (u *uring) name() string {
	if u.side.Load() {
		return "uring"
	}
	return u.device.name()
}

// start registers entries for all queues, without which the kernel sends nothing: a processor that is not there yet
// may come. If that fails the kernel goes on with the device, and so do we.
func (u *uring) start(h Handler, done func()) {
	u.others = u.lanes
	u.side.Store(true)
	u.device.start(h, done)
	for i := range u.queues {
		q := &u.queues[i]
		q.l.mu.Lock()
		for range q.begin {
			if u.use() { // false: it has ended
				q.l.enlist(&entry{q: q, slot: u.stock[len(u.stock)-1]})
				u.stock = u.stock[:len(u.stock)-1]
			}
		}
		q.l.mu.Unlock()
	}
	u.drop()
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
		u.log.Warn("the kernel refuses io_uring for a mount, requests come over the device", slog.String("error", unix.Errno(errno).Error()))
		u.side.Store(false)
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

// grow keeps entries in the kernel's hands when others hold requests that may take long. Under lane.mu; who calls has a
// thread of the lane look at the backlog.
func (q *queue) grow() {
	want := min(max(queueDepth, q.busy/2), spareMost)
	if q.busy == 0 { // it does nothing but stand by, see lane.writeOff
		want = queueDepth / 2
	}
	more := 0
	for ; q.total-q.busy-q.lost < want && q.total < queueLimit && !q.u.full() && q.u.use(); more++ {
		x, err := slots.get()
		if err != nil {
			q.u.poor(err)
			q.u.leave()
			break
		}
		q.l.enlist(&entry{q: q, slot: x})
	}
	if more > 0 {
		q.kickLater(more)
	}
}

// poor says, once, that there is no memory for entries; the mount goes on with those it has.
func (u *uring) poor(err error) {
	if u.warned.CompareAndSwap(false, true) {
		u.log.Warn("no memory for more ring entries; many requests that wait may hold up others of this mount", slog.String("error", err.Error()))
	}
}

// kickLater gives kicks when the entries queued before have reached the kernel: requests may have found none. Under lane.mu.
func (q *queue) kickLater(n int) {
	q.owed += n
	if q.kicks || !q.u.use() {
		return
	}
	q.kicks = true
	go func() {
		defer q.u.leave()
		for {
			q.l.mu.Lock()
			n := q.owed
			if q.owed = 0; n == 0 || q.u.dead.Load() {
				q.kicks = false
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

// kick has the kernel send n requests to this queue that nobody waits for. When the entries are all in use, it keeps
// requests in a list that it looks at when an answer is handed in, but not when an entry is registered: with all answers
// outstanding for long they would wait beside a free entry, until any other request comes. So the new entry gets
// something to answer, if there is a file to ask about (the kernel takes no directory): no bytes of what is cached of it (struct
// fuse_notify_retrieve_out).
func (q *queue) kick(n int) {
	msg := struct {
		fuse.OutHeader
		unique, node, offset uint64
		size, padding        uint32
	}{OutHeader: fuse.OutHeader{Status: proto.NotifyRetrieve}, node: q.u.file.Load()}
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
			q.u.log.Debug("a queue was not kicked", slog.String("error", err.Error())) // the file is forgotten, or all is over
			q.u.file.CompareAndSwap(msg.node, 0)
			return
		}
	}
}

// kicks counts them; kickUnique is the first of a range of request numbers that the kernel, which counts up from 2 in
// twos, does not come to.
var kicks atomic.Uint64

const kickUnique = 1 << 62

// note keeps the reason why the kernel gives an entry up; the end of the connection is none.
func (u *uring) note(why unix.Errno) {
	switch why {
	case unix.ENOTCONN, unix.ECONNABORTED, unix.ECANCELED, unix.ENODEV:
		return
	}
	u.failed.CompareAndSwap(0, int32(why))
}

// retired takes leave of an entry.
func (u *uring) retired(e *entry) {
	slots.put(e.slot, e.used)
	u.leave()
}
