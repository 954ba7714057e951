package iouring

import (
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Commands that a submission can hold.
const (
	OpNop  = 0
	OpRead = 22
	OpCmd  = 46 // IORING_OP_URING_CMD: what it does is the file's business
)

const (
	setupCQSize     = 1 << 3
	setupClamp      = 1 << 4
	setupCoopTask   = 1 << 8 // a thread that computes is not interrupted for task work
	setupSQE128     = 1 << 10
	setupNoSQArray  = 1 << 16
	enterGetEvents  = 1 << 0
	enterExtArg     = 1 << 3
	featSingleMmap  = 1 << 0
	featNoDrop      = 1 << 1
	offSQEs         = 0x10000000
	completionsEach = 8 // completions there is room for per submission; the kernel keeps what does not fit
)

// SQE is a submission, struct io_uring_sqe with IORING_SETUP_SQE128.
type SQE struct {
	Opcode      uint8
	Flags       uint8
	Ioprio      uint16
	FD          int32
	Off         uint64 // of a command: its number, in the low half
	Addr        uint64
	Len         uint32
	OpFlags     uint32
	UserData    uint64 // comes back in the completion
	BufIndex    uint16
	Personality uint16
	SpliceFD    int32
	Cmd         [80]byte // of a command: its arguments
}

// CQE is a completion, struct io_uring_cqe.
type CQE struct {
	UserData uint64
	Res      int32 // a negated errno, or the command's result
	Flags    uint32
}

// sqOffsets, cqOffsets and params are struct io_sqring_offsets, io_cqring_offsets and io_uring_params.
type sqOffsets struct {
	Head, Tail, RingMask, RingEntries, Flags, Dropped, Array, Resv uint32
	UserAddr                                                       uint64
}

type cqOffsets struct {
	Head, Tail, RingMask, RingEntries, Overflow, CQEs, Flags, Resv uint32
	UserAddr                                                       uint64
}

type params struct {
	SQEntries, CQEntries, Flags, SQThreadCPU, SQThreadIdle, Features, WQFD uint32
	Resv                                                                   [3]uint32
	SQ                                                                     sqOffsets
	CQ                                                                     cqOffsets
}

// Ring is a pair of queues shared with the kernel. What is immutable after New says nothing of guards, see doc.go.
type Ring struct {
	fd     int
	mem    []byte // both queues
	sqeMem []byte

	sqHead, sqTail *uint32 // the kernel moves the head
	sqMask         uint32
	sqes           []SQE
	tail           uint32 // our copy of *sqTail

	cqHead, cqTail *uint32 // the kernel moves the tail
	cqMask         uint32
	cqes           []CQE

	limit unix.Timespec // of EnterFor; arg points to it, so it must not be on a stack, which moves
	arg   waitArg
}

// waitArg is struct io_uring_getevents_arg.
type waitArg struct {
	sigmask       uint64
	sigmaskSize   uint32
	minWaitMicros uint32
	ts            uint64
}

// New makes a ring for n submissions at a time, a power of two; limit is for EnterFor. Errors are those of
// io_uring_setup(2): ENOSYS, EPERM (kernel.io_uring_disabled), EINVAL (an older kernel), ENOMEM, EMFILE.
func New(n uint32, limit time.Duration) (*Ring, error) {
	p := params{
		Flags:     setupCQSize | setupClamp | setupCoopTask | setupSQE128 | setupNoSQArray,
		CQEntries: n * completionsEach,
	}
	fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, uintptr(n), uintptr(unsafe.Pointer(&p)), 0)
	if errno != 0 {
		return nil, fmt.Errorf("io_uring_setup: %w", errno)
	}
	r := &Ring{fd: int(fd), limit: unix.NsecToTimespec(int64(limit))}
	r.arg.ts = uint64(uintptr(unsafe.Pointer(&r.limit)))
	if want := uint32(featSingleMmap | featNoDrop); p.Features&want != want {
		return nil, r.fail(unix.EINVAL)
	}
	unix.CloseOnExec(r.fd)
	size := max(int(p.SQ.Array), int(p.CQ.CQEs)+int(p.CQEntries)*int(unsafe.Sizeof(CQE{})))
	var err error
	const prot, flags = unix.PROT_READ | unix.PROT_WRITE, unix.MAP_SHARED | unix.MAP_POPULATE
	if r.mem, err = unix.Mmap(r.fd, 0, size, prot, flags); err != nil {
		return nil, r.fail(err)
	}
	if r.sqeMem, err = unix.Mmap(r.fd, offSQEs, int(p.SQEntries)*int(unsafe.Sizeof(SQE{})), prot, flags); err != nil {
		return nil, r.fail(err)
	}
	word := func(off uint32) *uint32 { return (*uint32)(unsafe.Pointer(&r.mem[off])) }
	r.sqHead, r.sqTail, r.sqMask = word(p.SQ.Head), word(p.SQ.Tail), *word(p.SQ.RingMask)
	r.cqHead, r.cqTail, r.cqMask = word(p.CQ.Head), word(p.CQ.Tail), *word(p.CQ.RingMask)
	r.sqes = unsafe.Slice((*SQE)(unsafe.Pointer(&r.sqeMem[0])), p.SQEntries)
	r.cqes = unsafe.Slice((*CQE)(unsafe.Pointer(&r.mem[p.CQ.CQEs])), p.CQEntries)
	return r, nil
}

func (r *Ring) fail(err error) error {
	_ = r.Close() // never used
	return fmt.Errorf("io_uring: %w", err)
}

// Close gives everything back; the kernel cancels what was submitted. No other method may run or be called after.
func (r *Ring) Close() error {
	for _, m := range [][]byte{r.mem, r.sqeMem} {
		if m != nil {
			_ = unix.Munmap(m) // cannot fail for what Mmap gave
		}
	}
	return unix.Close(r.fd)
}

// Next queues a submission and returns it, cleared, to be filled in before the next call of Enter; nil if the
// queue is full until an Enter.
func (r *Ring) Next() *SQE {
	if r.tail-atomic.LoadUint32(r.sqHead) > r.sqMask {
		return nil
	}
	s := &r.sqes[r.tail&r.sqMask]
	*s = SQE{}
	r.tail++
	return s
}

// Publish lets Enter see what Next gave.
func (r *Ring) Publish() { atomic.StoreUint32(r.sqTail, r.tail) }

// Queued is how many published submissions the kernel has not taken.
func (r *Ring) Queued() uint32 { return r.tail - atomic.LoadUint32(r.sqHead) }

// Submit has the kernel take at most n published submissions, on behalf of the calling thread. It does not wait and
// does not tell the scheduler.
func (r *Ring) Submit(n uint32) unix.Errno {
	_, _, errno := unix.RawSyscall6(unix.SYS_IO_URING_ENTER, uintptr(r.fd), uintptr(n), 0, 0, 0, 0)
	return errno
}

// Enter is Submit and then waits until there is a completion. EINTR is no failure.
func (r *Ring) Enter(n uint32) unix.Errno {
	_, _, errno := unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(r.fd), uintptr(n), 1, enterGetEvents, 0, 0)
	return errno
}

// EnterFor is Enter with the ring's limit: ETIME if there is no completion in time.
func (r *Ring) EnterFor(n uint32) unix.Errno {
	_, _, errno := unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(r.fd), uintptr(n), 1, enterGetEvents|enterExtArg,
		uintptr(unsafe.Pointer(&r.arg)), unsafe.Sizeof(r.arg))
	return errno
}

// Pop takes the oldest completion.
func (r *Ring) Pop() (CQE, bool) {
	head := *r.cqHead // only we write it
	if head == atomic.LoadUint32(r.cqTail) {
		return CQE{}, false
	}
	c := r.cqes[head&r.cqMask]
	atomic.StoreUint32(r.cqHead, head+1)
	return c, true
}

// More reports whether a completion waits.
func (r *Ring) More() bool { return *r.cqHead != atomic.LoadUint32(r.cqTail) }

// Waiting calls f for the completions that Pop would give, oldest first, until it returns false.
func (r *Ring) Waiting(f func(CQE) bool) {
	for head := *r.cqHead; head != atomic.LoadUint32(r.cqTail); head++ {
		if !f(r.cqes[head&r.cqMask]) {
			return
		}
	}
}
