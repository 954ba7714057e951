package transport

import (
	"encoding/binary"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"snapfs/fs/internal/proto"
	"snapfs/internal/iouring"
)

// Commands of FUSE over io_uring, enum fuse_uring_cmd.
const (
	cmdRegister = 1 // here is an entry, fetch a request into it
	cmdCommit   = 2 // here is an answer, fetch the next request
)

// entry is room for one request of one queue of one mount. It belongs to the kernel from the moment its submission is
// queued until its completion is taken from the ring, and to one goroutine in between.
type entry struct {
	q    *queue
	slot slot
	iov  [2]unix.Iovec // what the kernel reads at registration
	id   uint32        // index in lane.entries

	commit uint64 // the kernel's name of the request, for its answer
	in     [3][]byte
	out    [2][]byte
	answer [unsafe.Sizeof(fuse.OutHeader{})]byte

	// Guarded by lane.mu.
	used  int     // how much of the payload was touched since its memory was given back
	owner *thread // submitted it; nil: it is queued
	clock uint32  // lane.clock when it was queued last
	order uint64  // lane.order when it was queued last
	armed bool    // belongs to the kernel
	lost  bool    // and is out of reach, see lane.writeOff
	dirty bool    // in lane.dirty
	kind  kind    // of the request
	stuck bool    // counted in a work queue
}

// entryWeight is what an entry takes beside its payload, in bytes: the first page, and what the kernel has of it.
const entryWeight = 8 << 10

// serve, refuse, weight and header implement pending.
func (e *entry) serve() {
	l := e.q.l
	l.ensureWatched()
	touched := e.handle()
	l.finish(nil, e, touched)
}

func (e *entry) refuse(st fuse.Status) {
	e.commit = binary.NativeEndian.Uint64(e.slot.head[headCommit:])
	_, payload := e.sizes()
	e.put(errorAnswer(e.answer[:], e.header().Unique, st))
	e.q.l.finish(nil, e, min(max(payload, 0), len(e.slot.payload)))
}

func (e *entry) weight() int64 {
	_, payload := e.sizes()
	return entryWeight + int64(max(payload, 0))
}

// fill makes a submission of the entry.
func (e *entry) fill(s *iouring.SQE, cmd uint64) {
	s.Opcode, s.FD, s.Off, s.UserData = iouring.OpCmd, int32(e.q.u.fd), cmd, uint64(e.id)
	if cmd == cmdRegister {
		s.Addr, s.Len = uint64(uintptr(unsafe.Pointer(&e.iov))), uint32(len(e.iov))
	}
	// struct fuse_uring_cmd_req: flags u64, commit id u64, queue u16
	binary.NativeEndian.PutUint64(s.Cmd[8:], e.commit)
	binary.NativeEndian.PutUint16(s.Cmd[16:], e.q.id)
}

func (e *entry) header() *fuse.InHeader { return proto.Header(e.slot.head) }

// sizes of the request: of the fixed part, and of the payload.
func (e *entry) sizes() (op, payload int) {
	payload = int(binary.NativeEndian.Uint32(e.slot.head[headPayload:]))
	op = int(e.header().Length) - int(unsafe.Sizeof(fuse.InHeader{})) - payload
	return op, payload
}

// moves is how many bytes the request moves.
func (e *entry) moves() int {
	switch e.header().Opcode {
	case proto.OpWrite:
		return int(binary.NativeEndian.Uint32(e.slot.head[headPayload:]))
	case proto.OpRead, proto.OpReaddir, proto.OpReaddirplus:
		return int(binary.NativeEndian.Uint32(e.slot.head[headOp+16:])) // struct fuse_read_in
	}
	return 0
}

// handle answers the request in the slot. touched is how much of the payload was used.
func (e *entry) handle() (touched int) {
	u, h := e.q.u, e.header()
	op, unique := h.Opcode, h.Unique
	opSize, payload := e.sizes()
	e.commit = binary.NativeEndian.Uint64(e.slot.head[headCommit:])
	touched = max(payload, e.moves())
	size, st := 0, fuse.EIO
	if op == proto.OpNotifyReply { // see queue.kick
		size, st = errorAnswer(e.answer[:], unique, fuse.OK), fuse.OK
	} else if opSize >= 0 && opSize <= headEntry-headOp && payload <= len(e.slot.payload) {
		if op < proto.Opcodes {
			u.counts[op].Add(1)
		}
		if (op == proto.OpRead || op == proto.OpWrite) && u.knownFile.Load() != h.NodeId {
			u.knownFile.Store(h.NodeId)
		}
		e.in = [3][]byte{e.slot.head[:unsafe.Sizeof(*h)], e.slot.head[headOp : headOp+opSize], e.slot.payload[:payload]}
		e.out = [2][]byte{e.answer[:], e.slot.payload}
		size, st = answer(u.h, u.log, e.in[:], e.out[:])
		if u.ends != nil {
			u.ends.End(h)
		}
		found := op == proto.OpLookup && size == len(e.answer)+int(unsafe.Sizeof(fuse.EntryOut{}))
		if found && u.knownFile.Load() == 0 {
			if out := proto.View[fuse.EntryOut](e.slot.payload); out.Mode&unix.S_IFMT == unix.S_IFREG {
				u.knownFile.Store(out.NodeId)
			}
		}
	}
	if st != fuse.OK || size < len(e.answer) {
		// The handler did not understand the request, or wants no answer: give one, a program waits.
		if st == fuse.OK {
			st = fuse.EIO
		}
		size = errorAnswer(e.answer[:], unique, st)
	}
	e.put(size)
	return max(touched, size-len(e.answer))
}

// put makes an answer of size bytes ready to be submitted: its header is in answer, the rest in the payload.
func (e *entry) put(size int) {
	copy(e.slot.head, e.answer[:])
	binary.NativeEndian.PutUint32(e.slot.head[headPayload:], uint32(size-len(e.answer)))
}
