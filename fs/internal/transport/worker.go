package transport

import (
	"encoding/binary"
	"log/slog"
	"sync"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"snapfs/fs/internal/proto"
)

// Buffers are shared by all mounts of the process and belong to a goroutine only while it reads or handles a
// request: an idle mount has none.
var (
	bigBufs   = sync.Pool{New: func() any { return newBigBuf() }}
	smallBufs = sync.Pool{New: func() any { return new([smallSize]byte) }}
)

// newBigBuf makes a buffer with memory behind all its pages. When a process is killed while the kernel copies a request
// into a page that is not there yet, the copy fails, and so does the request, with EIO: no successor would see it.
func newBigBuf() *[bufSize]byte {
	b := (*[bufSize]byte)(make([]byte, bufSize))
	for i := 0; i < len(b); i += pageSize {
		b[i] = 0
	}
	return b
}

// worker is a request being handled: its buffer and the room for its answer. One goroutine at a time uses it.
type worker struct {
	d     *device
	big   *[bufSize]byte
	small *[smallSize]byte
	buf   []byte // of big or small
	n     int    // the size of the request; set for work queues only
	in    [1][]byte
	out   [1][]byte

	sched *schedIdle // of the leader that handles the request
	note  func(request, answer []byte)
}

// allocate makes sure that the worker has a buffer for any request.
func (w *worker) allocate() {
	if w.big == nil {
		w.big, _ = bigBufs.Get().(*[bufSize]byte)
		w.buf = w.big[:]
	}
}

// shrink moves a request of n bytes to a buffer of its size, so that one that waits takes no more memory than it needs.
func (w *worker) shrink(n int) {
	if n > bufSize/2 {
		return
	}
	if n <= smallSize {
		w.small, _ = smallBufs.Get().(*[smallSize]byte)
		copy(w.small[:n], w.buf[:n])
		w.buf = w.small[:]
	} else {
		w.buf = append(make([]byte, 0, n), w.buf[:n]...)
	}
	bigBufs.Put(w.big)
	w.big = nil
}

// serve, refuse, weight and header implement pending.
func (w *worker) serve() {
	w.handle(w.n)
	w.free()
	w.d.leave()
}

func (w *worker) refuse(st fuse.Status) {
	if !w.d.released.Load() { // else it is answered by the process that serves the connection next
		var out [unsafe.Sizeof(fuse.OutHeader{})]byte
		size := errorAnswer(out[:], proto.Header(w.buf).Unique, st)
		_ = w.d.reply(out[:size]) // the program may be gone, and the file system
	}
	w.free()
	w.d.leave()
}

func (w *worker) weight() int64 {
	const rest = 1024 // what it takes beside the buffer
	return int64(len(w.buf)) + rest
}

func (w *worker) header() *fuse.InHeader { return proto.Header(w.buf) }

// free gives the buffers back.
func (w *worker) free() {
	if w.big != nil {
		bigBufs.Put(w.big)
	}
	if w.small != nil {
		smallBufs.Put(w.small)
	}
	w.big, w.small, w.buf = nil, nil, nil
}

// handle answers the request in the first n bytes of the buffer.
func (w *worker) handle(n int) {
	d := w.d
	if raceDetector && d.secondary.Load() {
		d.ringLanes.raceOrder()
	}
	op := proto.Header(w.buf).Opcode
	if d.ends != nil {
		defer d.ends.End(proto.Header(w.buf))
	}
	if op == proto.OpForget || op == proto.OpBatchForget {
		d.raceOrder()
	}
	if op == proto.OpInterrupt {
		if unique, ok := interruptedOf(w.buf[:n]); ok {
			d.interrupted(unique)
		}
	}
	if op < proto.Opcodes {
		d.counts[op].Add(1)
	}
	if room := answerRoom(w.buf[:n]); room <= smallSize {
		small, _ := smallBufs.Get().(*[smallSize]byte)
		defer smallBufs.Put(small)
		w.out[0] = small[:]
	} else {
		big, _ := bigBufs.Get().(*[bufSize]byte)
		defer bigBufs.Put(big)
		w.out[0] = big[:]
	}
	w.in[0] = w.buf[:n]
	size, st := answer(d.h, d.log, w.in[:], w.out[:])
	if st != fuse.OK {
		// The handler did not understand the request: answer all the same, a program waits.
		size = errorAnswer(w.out[0], proto.Header(w.buf).Unique, st)
	}
	if size == 0 {
		return
	}
	if w.note != nil {
		w.note(w.in[0], w.out[0][:size])
	}
	d.raceOrder()
	w.sched.enter()
	if errno := d.reply(w.out[0][:size]); errno != 0 && errno != unix.ENOENT && errno != unix.ENODEV {
		// ENOENT: the caller was killed meanwhile. ENODEV: the file system is gone.
		d.log.Error("answering a request failed",
			slog.String("request", proto.Name(op)), slog.String("error", errno.Error()))
	}
}

// raceOrder tells the race detector what the kernel ensures: that a node is forgotten after all requests that used it
// were answered, by any goroutine.
func (d *device) raceOrder() {
	if raceDetector {
		d.orderMu.Lock()
		d.orderMu.Unlock() //nolint:staticcheck // for its effect on memory
	}
}

// reply writes an answer; the call never blocks.
func (d *device) reply(b []byte) unix.Errno {
	for {
		_, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(d.fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
		if errno != unix.EINTR {
			return errno
		}
	}
}

// answerRoom is how large the answer to a request may be. The requests with answers of any size say in the same
// place how much they take: struct fuse_read_in has its size at offset 16, fuse_getxattr_in at 0, fuse_ioctl_in at 28.
func answerRoom(req []byte) int {
	at := -1
	switch proto.Header(req).Opcode {
	case proto.OpRead, proto.OpReaddir, proto.OpReaddirplus:
		at = 16
	case proto.OpGetxattr, proto.OpListxattr:
		at = 0
	case proto.OpIoctl:
		at = 28
	case proto.OpReadlink:
		return bufSize
	}
	at += int(unsafe.Sizeof(fuse.InHeader{}))
	if at < int(unsafe.Sizeof(fuse.InHeader{})) || len(req) < at+4 {
		return smallSize
	}
	const headers = 64 // struct fuse_out_header and any fixed part that comes with a payload
	return headers + int(binary.NativeEndian.Uint32(req[at:]))
}

// errorAnswer makes an answer that holds only an error.
func errorAnswer(out []byte, unique uint64, st fuse.Status) int {
	*(*fuse.OutHeader)(unsafe.Pointer(&out[0])) = fuse.OutHeader{
		Length: uint32(unsafe.Sizeof(fuse.OutHeader{})), Status: -int32(st), Unique: unique,
	}
	return int(unsafe.Sizeof(fuse.OutHeader{}))
}
