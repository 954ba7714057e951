package transport

import (
	"errors"
	"fmt"
	"time"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"snapfs/fs/internal/proto"
)

// ErrEnded says that a connection has ended.
var ErrEnded = errors.New("the connection has ended")

// Adopt serves a live connection that another process has served until it was killed, or gave it up with Release. There
// is no INIT: the handler must know what was negotiated. What was read and not answered comes again, with proto.Resent
// in its number, what was not read yet comes as it is. Only connections over the device can be adopted. Of cfg, Attach,
// Negotiated and Transport are not used. Errors: ErrEnded; EPERM for a device without a connection, EINVAL for a kernel
// before 6.9. The descriptor belongs to Adopt, unless it fails.
func Adopt(cfg Config, a Attached) (*Conn, error) {
	c := &Conn{device: a.Device, log: cfg.Log}
	d := newDevice(a.FD, cfg.Log, &c.counts)
	d.gate = cfg.Gate
	c.t = d
	h := cfg.Handler(c, false)
	if err := d.resend(); err != nil {
		return nil, fmt.Errorf("fuse: resend: %w", err)
	}
	d.start(h, a.Done)
	return c, nil
}

// End ends the connection of a descriptor, whoever else has one. dev is the number of its file system.
func End(fd int, dev uint64) error {
	return abortConnection(dev, func() bool {
		fds := []unix.PollFd{{Fd: int32(fd)}}
		_, err := unix.Poll(fds, 0)
		return err == nil && fds[0].Revents&unix.POLLERR != 0
	})
}

// resend has the kernel give out again what was read and not answered.
func (d *device) resend() error {
	fds := []unix.PollFd{{Fd: int32(d.fd)}}
	if _, err := unix.Poll(fds, 0); err != nil {
		return err
	}
	msg := fuse.OutHeader{Length: uint32(proto.OutHeaderSize), Status: proto.NotifyResend}
	if errno := d.reply(unsafe.Slice((*byte)(unsafe.Pointer(&msg)), proto.OutHeaderSize)); errno != 0 {
		return errno
	}
	if fds[0].Revents&unix.POLLERR != 0 {
		return ErrEnded
	}
	return nil
}

// Release gives the connection up to a process that adopts it: nothing more is read, what is being handled is answered,
// and what waits (for the gate, or its turn) is left unanswered. The descriptor is closed then and Attached.Done called;
// the connection lives as long as others have it. ErrUnavailable over io_uring.
func (c *Conn) Release() error { return c.t.giveUp() }

// wakeEach is how often a leader that is to end is woken.
const wakeEach = time.Millisecond

func (d *device) giveUp() error {
	if !d.use() {
		return nil
	}
	defer d.leave()
	d.released.Store(true)
	if d.dead.CompareAndSwap(false, true) {
		d.settle()
	}
	// A leader that sleeps in poll(2) holds the descriptor. The runtime, whose signal this is, takes it for a request to
	// preempt that is over.
	for l := d.cur.Load(); l != nil && d.cur.Load() == l; time.Sleep(wakeEach) {
		if tid := l.tid.Load(); tid != 0 {
			if _, busy := handling(l.seq.Load()); busy {
				break
			}
			_ = unix.Tgkill(unix.Getpid(), int(tid), unix.SIGURG) // it may have ended just now
		}
	}
	return nil
}

func (u *uring) giveUp() error {
	return fmt.Errorf("%w: a connection over io_uring stays with its process", ErrUnavailable)
}
