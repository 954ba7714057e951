package transport

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"snapfs/fs/internal/proto"
	"snapfs/internal/lockorder"
)

const (
	// MaxIO is the largest payload of a READ or WRITE, the kernel's limit of 256 pages.
	MaxIO = 1 << 20
	// bufSize has room for MaxIO and any header; the kernel refuses reads of its device into less.
	bufSize = MaxIO + 4096
	// smallSize is enough for every request and answer without a large payload.
	smallSize = 1024
	// idleAfter is how long a leader waits for requests before the hub takes over.
	idleAfter = 200 * time.Millisecond
	// spinFor is how long a leader looks for the next request before it sleeps. A request wakes a sleeper on another
	// processor in about 20 microseconds; programs that live on metadata come back sooner than that.
	spinFor = 50 * time.Microsecond
	// spinCredit is how many fruitless spins in a row stop the spinning, spinRetry after how many sleeps it is retried.
	spinCredit = 4
	spinRetry  = 32
	// secondaryPause is how long the leader of a secondary device sleeps before it reads once more and leaves.
	secondaryPause = 2 * time.Millisecond
	// probeCredit is for how many requests a leader tries to read a second one before it handles the first, after it
	// has once found one waiting.
	probeCredit = 64
)

// device is the transport over /dev/fuse.
type device struct {
	fd     int
	hub    *hub
	h      Handler
	ends   Ender // the handler, if it is one
	log    *slog.Logger
	counts *counters
	done   func() // called once by the last one out
	cpus   int

	cur      atomic.Pointer[leader] // nil: idle, waiting in the hub
	dead     atomic.Bool            // the connection has ended for this process: by itself, by disconnect or by giveUp
	released atomic.Bool            // by giveUp: what is not handled is left to another process
	// users counts leaders, requests in work queues, ring entries, callers that use fd, and 1 for the live connection.
	// At 0 fd is closed.
	users   atomic.Int64
	leaders atomic.Int64 // leaders
	// secondary says that requests come over rings, and here only what the kernel sends to the device in any case
	// (FORGET, INTERRUPT), for which no program waits.
	secondary atomic.Bool
	ringLanes *laneSet                               // the rings; set before secondary
	orderMu   lockorder.Mutex[lockorder.DeviceOrder] // see raceOrder

	gate         Gate // nil: changes are never held back. Set before start
	ungate       func()
	work         [waitingKinds]workQueue
	charged      atomic.Int64 // memory of requests in work queues, in bytes
	halted       atomic.Bool  // not read: there is no more memory for requests
	checkPending atomic.Bool  // checkSignaled will be called
	signals      recentSignals
	lastLook
}

// lastLook is what the watchdog saw last. Only the watchdog uses it.
type lastLook struct {
	l   *leader
	seq uint64
}

// leader is the goroutine that reads a device, from when it is started until it is idle or replaced.
type leader struct {
	tid     atomic.Int32  // 0: not known yet
	seq     atomic.Uint64 // in steps of leaderStep; plus 1 and the kind of request while one is handled
	counted atomic.Int32  // index, plus one, of the work queue that counts its request as stuck
	sched   atomic.Pointer[schedIdle]
}

const leaderStep = 8

// handling reports whether a leader handles a request, and of which kind.
func handling(seq uint64) (k kind, is bool) { return kind(seq%leaderStep - 1), seq%leaderStep != 0 }

func newDevice(fd int, log *slog.Logger, counts *counters) *device {
	d := &device{fd: fd, log: log, counts: counts, cpus: runtime.NumCPU(), ungate: func() {}}
	for k := range d.work {
		d.work[k].init(d, kind(k))
	}
	return d
}

func (d *device) name() string { return "dev" }

func (d *device) start(h Handler, done func()) {
	d.h, d.done = h, done
	d.ends, _ = h.(Ender)
	d.users.Store(1)
	d.hub = theHub()
	if d.gate != nil {
		d.ungate = d.gate.WhenOpen(d.work[changing].advance)
	}
	if err := d.hub.add(d); err != nil {
		// Without the hub a device needs a leader at all times, which is correct and only costs a thread.
		d.log.Warn("fuse device cannot be polled", slog.String("error", err.Error()))
		d.lead()
	}
}

// handshake reads and answers INIT, the kernel's first request, and reports whether the kernel offers requests over
// io_uring. note, if not nil, gets INIT and the answer before that is written.
func (d *device) handshake(ctx context.Context, h Handler, note func(request, answer []byte)) (ring bool, err error) {
	w := worker{d: d, note: note}
	w.allocate()
	defer w.free()
	d.h = h
	for {
		n, err := d.tryRead(w.buf)
		if err == nil {
			if n >= int(unsafe.Sizeof(fuse.InitIn{})) {
				ring = proto.View[fuse.InitIn](w.buf).Flags64()&fuse.CAP_OVER_IO_URING != 0
			}
			w.handle(n)
			return ring, nil
		}
		if !errors.Is(err, unix.EAGAIN) {
			return false, err
		}
		if err := ctx.Err(); err != nil {
			return false, err
		}
		_, err = unix.Poll([]unix.PollFd{{Fd: int32(d.fd), Events: unix.POLLIN}}, 50)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return false, err
		}
	}
}

// lead starts a leader if there is none.
func (d *device) lead() {
	l := new(leader)
	if !d.use() {
		return
	}
	if !d.cur.CompareAndSwap(nil, l) {
		d.leave()
		return
	}
	d.hub.watch(d)
	d.leaders.Add(1)
	go d.run(l)
}

// check reports whether the leader is still at the request that it handled at the last look.
func (d *device) check() (stuck, rest bool) {
	l := d.cur.Load()
	if l == nil {
		return false, false
	}
	l.sched.Load().check()
	seq := l.seq.Load()
	_, busy := handling(seq)
	stuck = busy && l == d.lastLook.l && seq == d.lastLook.seq
	d.lastLook = lastLook{l, seq}
	return stuck, false
}

// rescue replaces a leader that does not come back from a request. Should it come back just now, two of them read for a
// moment, which does no harm.
func (d *device) rescue() {
	if d.leaders.Load() > maxBusy {
		return
	}
	old := d.cur.Load()
	if old == nil {
		return
	}
	k, busy := handling(old.seq.Load())
	if !busy || !d.use() {
		return
	}
	if k != prompt {
		d.work[k].addStuck()
		old.counted.Store(int32(k) + 1)
	}
	l := new(leader)
	if !d.cur.CompareAndSwap(old, l) {
		d.clearStuck(old)
		d.leave()
		return
	}
	d.leaders.Add(1)
	go d.run(l)
}

// clearStuck takes a leader out of the work queue that counts it as stuck, if one does.
func (d *device) clearStuck(l *leader) {
	if k := l.counted.Swap(0); k > 0 {
		d.work[k-1].removeStuck()
	}
}

// run reads and handles requests until the device is idle or dead, or another leader has taken over.
func (d *device) run(l *leader) {
	defer d.leave()
	defer d.leaders.Add(-1)
	defer d.clearStuck(l)
	defer d.cur.CompareAndSwap(l, nil) // from then on it is not counted
	w := worker{d: d}
	defer func() { w.free() }()
	if !d.secondary.Load() {
		runtime.LockOSThread() // it ends with the goroutine, so that its policy and affinity are not inherited
		l.tid.Store(int32(unix.Gettid()))
		l.sched.Store(newSchedIdle(nil))
		defer func() { l.sched.Load().close() }()
	}
	var p pace
	var f affinity
	probe := 0
	for d.cur.Load() == l {
		if d.full() && !d.secondary.Load() && d.halt(l) {
			return
		}
		w.allocate()
		n, waited, err := d.read(w.buf, &p)
		l.sched.Load().exit()
		switch {
		case err == errIdle: //nolint:errorlint // never wrapped
			if d.cur.CompareAndSwap(l, nil) {
				d.hub.park(d, unix.EPOLLIN)
			}
			return
		case err != nil:
			d.end(err)
			return
		}
		if !waited {
			probe = probeCredit
		}
		// While more requests wait, other goroutines handle all but the last.
		for ; probe > 0; probe-- {
			next := worker{d: d}
			next.allocate()
			m, err := d.tryRead(next.buf)
			if err != nil {
				next.free()
				break
			}
			d.pass(l, &w, n)
			w, n = next, m
		}
		if op := proto.Header(w.buf).Opcode; slow(op) || !d.mayInline(op) {
			d.pass(l, &w, n)
			continue
		}
		if !d.secondary.Load() {
			p.near = l.follow(&f, proto.Header(w.buf).Pid, waited)
		}
		l.handle(&w, n)
	}
}

// follow binds the leader to the processor of the program that it serves, and reports whether both run there. Without
// idle priority it does not: the scheduler would move the program away.
func (l *leader) follow(f *affinity, pid uint32, waited bool) bool {
	c := l.sched.Load()
	if c.suspended() {
		f.unbind()
		return false
	}
	if !f.observe(pid, waited) {
		return false
	}
	c.enable()
	return true
}

// handle answers a request in the leader's goroutine; the watchdog sees how long it takes.
func (l *leader) handle(w *worker, n int) {
	k := 1 + uint64(kindOf(proto.Header(w.buf).Opcode))
	l.seq.Add(k)
	w.sched = l.sched.Load()
	w.handle(n)
	w.sched = nil
	l.seq.Add(leaderStep - k)
}

// mayInline reports whether a request may be handled by the goroutine that read it.
func (d *device) mayInline(op uint32) bool {
	k := kindOf(op)
	return k == prompt || d.work[k].mayInline()
}

// pass has a request handled by another goroutine, in its turn. The worker is empty afterwards.
func (d *device) pass(l *leader, w *worker, n int) {
	k := kindOf(proto.Header(w.buf).Opcode)
	if k == prompt {
		l.handle(w, n)
		w.free()
		return
	}
	w.shrink(n)
	w.n = n
	d.users.Add(1)
	moved := *w
	d.work[k].add(&moved)
	*w = worker{d: d}
}

// halt stops reading the device until there is memory for more requests. The end of the connection is still noticed.
func (d *device) halt(l *leader) bool {
	if d.ended() {
		d.end(unix.ENODEV)
		return true
	}
	if !d.cur.CompareAndSwap(l, nil) {
		return true // another leader has taken over
	}
	d.hub.park(d, 0) // first: once halted is seen there may be a leader, which the hub has to watch
	d.halted.Store(true)
	if !d.full() && d.halted.CompareAndSwap(true, false) {
		d.lead()
	}
	return true
}

// use keeps the descriptor open until leave; false: it is closed already.
func (d *device) use() bool {
	for {
		n := d.users.Load()
		if n == 0 {
			return false
		}
		if d.users.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// leave ends the use of the device by one goroutine.
func (d *device) leave() {
	if d.users.Add(-1) == 0 {
		d.hub.remove(d)
		_ = unix.Close(d.fd) // nothing was written that could fail late
		d.done()
	}
}

// end notes that the connection has ended. err is ENODEV if that was expected.
func (d *device) end(err error) {
	if !d.dead.CompareAndSwap(false, true) {
		return
	}
	if !errors.Is(err, unix.ENODEV) && !errors.Is(err, unix.ECONNABORTED) {
		d.log.Error("reading the fuse device failed", slog.String("error", err.Error()))
	}
	d.settle()
}

// settle ends what waits for the connection, once it is dead.
func (d *device) settle() {
	d.ungate()
	for k := range d.work {
		d.work[k].refuseAll()
	}
	d.leave()
}

// disconnect puts /dev/null in the device's place: the kernel sees the last use of the connection go and ends it, while
// requests still being handled find a descriptor that discards their answers.
func (d *device) disconnect() {
	if !d.use() {
		return
	}
	defer d.leave()
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err == nil {
		err = unix.Dup3(null, d.fd, unix.O_CLOEXEC)
		_ = unix.Close(null) // the duplicate counts
	}
	if err != nil {
		d.log.Error("dropping the fuse device failed", slog.String("error", err.Error()))
	}
	d.end(unix.ENODEV)
}

// ended asks the kernel, which knows of the end of a connection before any reader of the device.
func (d *device) ended() bool {
	if !d.use() {
		return true
	}
	defer d.leave()
	fds := []unix.PollFd{{Fd: int32(d.fd)}}
	n, err := unix.Poll(fds, 0)
	return d.dead.Load() || err == nil && n > 0 && fds[0].Revents&unix.POLLERR != 0
}

// notify writes a notification. It may block: unlike an answer, a notification takes locks that the kernel holds while
// it waits for answers.
func (d *device) notify(b []byte) error {
	if !d.use() {
		return unix.ENODEV
	}
	defer d.leave()
	for {
		_, err := unix.Write(d.fd, b)
		if err != unix.EINTR { //nolint:errorlint // raw errno
			return err
		}
	}
}

// errIdle says that no request came for idleAfter.
var errIdle = errors.New("idle")

// pace learns whether requests come fast enough that polling for them is cheaper than sleeping.
type pace struct {
	misses, sleeps int
	near           bool // the program runs on the same processor, where polling would keep it from running
}

// read waits for a request. waited is false if one was there at once.
func (d *device) read(buf []byte, p *pace) (n int, waited bool, err error) {
	n, err = d.tryRead(buf)
	if err != unix.EAGAIN { //nolint:errorlint // raw errno
		return n, false, err
	}
	if d.secondary.Load() {
		// One more read, some time later: removing a tree sends many of them, and each would wake a thread.
		time.Sleep(secondaryPause)
		if n, err = d.tryRead(buf); err == unix.EAGAIN { //nolint:errorlint // raw errno
			return 0, true, errIdle
		}
		return n, true, err
	}
	if d.cpus > 1 && !p.near && (p.misses < spinCredit || p.sleeps >= spinRetry) {
		start := time.Now()
		for spun := time.Duration(0); spun < spinFor; {
			if n, err = d.tryRead(buf); err != unix.EAGAIN { //nolint:errorlint // raw errno
				p.misses, p.sleeps = 0, 0
				return n, true, err
			}
			// Any other thread that wants this processor, the client above all, gets it. If it was away for long, the
			// machine is busy, and the scheduler serves sleepers better than threads that yield.
			_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
			now := time.Since(start)
			if now-spun > spinFor/2 {
				p.misses = spinCredit
				break
			}
			spun = now
		}
		p.misses++
		p.sleeps = 0
	}
	p.sleeps++
	for {
		fds := []unix.PollFd{{Fd: int32(d.fd), Events: unix.POLLIN}}
		switch c, err := unix.Poll(fds, int(idleAfter/time.Millisecond)); {
		case err != nil && err != unix.EINTR: //nolint:errorlint // raw errno
			return 0, true, err
		case err == nil && c == 0:
			return 0, true, errIdle
		}
		if n, err = d.tryRead(buf); err != unix.EAGAIN { //nolint:errorlint // raw errno
			return n, true, err
		}
	}
}

// tryRead reads a request if there is one, else EAGAIN. The Go scheduler is not told: the call never blocks.
func (d *device) tryRead(buf []byte) (int, error) {
	for !d.dead.Load() {
		n, _, errno := unix.RawSyscall(unix.SYS_READ,
			uintptr(d.fd), uintptr(unsafe.Pointer(&buf[0])), uintptr(len(buf)))
		switch errno {
		case 0:
			if n == 0 { // see disconnect
				return 0, unix.ENODEV
			}
			return int(n), nil
		case unix.EINTR, unix.ENOENT: // ENOENT: the request was withdrawn meanwhile
		default:
			return 0, errno
		}
	}
	return 0, unix.ENODEV
}
