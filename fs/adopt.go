package fs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"snapfs/fs/internal/mountpoint"
	"snapfs/fs/internal/proto"
	"snapfs/fs/internal/transport"
	"snapfs/layers"
)

// Adopt serves a live mount whose server was killed, or has given it up by Release: programs that wait in it go on. The
// overlay has the layers that it had, opts.Live is the state of the mount, device a descriptor of its connection, which
// the predecessor gave away with DeviceFile; Adopt takes the descriptor over unless it fails. dir is where it was
// mounted, empty if Options.Place has attached it. What was negotiated with the kernel stays: of opts, only Live, Crashed,
// Refused, Logger and Debug count. What the predecessor was changing is ended or undone before the first request.
//
// Errors that will come again: ErrNotConnection, ErrEnded, ErrNotAdoptable, livestate.ErrFormat. With any other one, as
// ErrServed or EMFILE, it may be tried again later. Nothing was changed then, and the caller still owns the overlay, device
// and state.
func Adopt(ctx context.Context, o *layers.Overlay, device *os.File, dir string, opts Options) (*Mount, error) {
	opts.setDefaults()
	return adopt(ctx, newAdapter(o, opts.Logger), device, dir, o, opts)
}

// adopt goes on with the connection of any raw file system.
func adopt(ctx context.Context, raw fuse.RawFileSystem, device *os.File, dir string, gate transport.Gate,
	opts Options,
) (_ *Mount, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if opts.Live == nil {
		return nil, fmt.Errorf("%w: nothing was kept of it", ErrNotAdoptable)
	}
	k, err := readKept(opts.Live)
	if err != nil {
		return nil, err
	}
	fd, err := duplicate(device)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = unix.Close(fd) // nothing was written
		}
	}()
	if err := k.checkDevice(fd); err != nil {
		return nil, err
	}
	if err := opts.Live.Claim(); err != nil {
		return nil, err
	}
	m, err := k.serve(fd, raw, dir, gate, opts)
	if err != nil {
		opts.Live.Release()
		return nil, err
	}
	_ = device.Close() // the duplicate counts
	m.log.Debug("adopted", slog.String("mountpoint", dir))
	return m, nil
}

// duplicate gives a descriptor that the runtime does not poll: it would wake up for each request.
func duplicate(f *os.File) (fd int, err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return -1, err
	}
	var dupErr error
	err = raw.Control(func(of uintptr) { fd, dupErr = unix.FcntlInt(of, unix.F_DUPFD_CLOEXEC, 0) })
	switch err := errors.Join(err, dupErr); {
	case errors.Is(err, unix.EMFILE):
		return -1, err
	case err != nil:
		return -1, fmt.Errorf("%w: %w", ErrNotConnection, err)
	}
	return fd, nil
}

// End ends a live connection that nobody goes on with, of which device is a descriptor, the caller's, and dev the number of
// the file system: programs in it get ENOTCONN, whoever else has a descriptor. One that has ended is left as it is.
func End(device *os.File, dev uint64) error {
	fd, err := duplicate(device)
	if err != nil {
		return err
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written
	if err := (&kept{dev: dev}).checkDevice(fd); err != nil {
		return err
	}
	return transport.End(fd, dev)
}

// fuseDevice is the device number of /dev/fuse, see Documentation/admin-guide/devices.txt.
var fuseDevice = unix.Mkdev(10, 229)

// checkDevice checks that a descriptor belongs to the connection, as far as the kernel tells.
func (k *kept) checkDevice(fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("%w: %w", ErrNotConnection, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != fuseDevice {
		return fmt.Errorf("%w: no /dev/fuse", ErrNotConnection)
	}
	info, err := os.ReadFile("/proc/self/fdinfo/" + strconv.Itoa(fd))
	if err != nil {
		return err
	}
	_, after, known := strings.Cut(string(info), "fuse_connection:") // since Linux 6.18
	number, _, _ := strings.Cut(after, "\n")
	if number = strings.TrimSpace(number); known && number != strconv.FormatUint(uint64(unix.Minor(k.dev)), 10) {
		return fmt.Errorf("%w: connection %s, not %d", ErrNotConnection, number, unix.Minor(k.dev))
	}
	return unix.SetNonblock(fd, true)
}

// serve begins to serve. The descriptor belongs to it unless it fails.
func (k *kept) serve(fd int, raw fuse.RawFileSystem, dir string, gate transport.Gate, opts Options) (_ *Mount, err error) {
	if k.capabilities()&fuse.CAP_OVER_IO_URING != 0 {
		return nil, fmt.Errorf("%w: its requests come over io_uring", ErrNotAdoptable)
	}
	var point *mountpoint.Mountpoint
	if k.flags&keptPlaced == 0 {
		path, err := filepath.Abs(dir)
		if err != nil {
			return nil, err
		}
		point = mountpoint.Attached(path, k.dev, k.flags&keptHelper == 0)
	}
	opts.Writeback = k.capabilities()&fuse.CAP_WRITEBACK_CACHE != 0
	m, err := newMount(point, k.dev, fd, opts)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = m.device.Close() // nothing was written
		}
	}()
	if a, ok := raw.(*adapter); ok {
		a.settle(opts)
	}
	h := m.handle(nil, raw, opts, false)
	if err := k.introduce(h); err != nil {
		return nil, err
	}
	_, err = transport.Adopt(transport.Config{
		Gate: gate,
		Log:  opts.Logger,
		Handler: func(c *transport.Conn, _ bool) transport.Handler {
			m.conn = c
			if a, ok := raw.(*adapter); ok {
				m.pruner.running.Go(func() { m.reconcile(a.o, cmp.Or(opts.Reconcile, reconcileEvery)) })
			}
			return h
		},
	}, transport.Attached{FD: fd, Device: k.dev, Done: m.finish})
	if err != nil {
		close(m.ending)
		m.pruner.running.Wait()
	}
	switch {
	case errors.Is(err, unix.EPERM):
		return nil, fmt.Errorf("%w: %w", ErrNotConnection, err)
	case errors.Is(err, unix.EINVAL):
		return nil, fmt.Errorf("%w: %w", ErrNotAdoptable, err)
	case err != nil:
		return nil, err
	}
	return m, nil
}

// introduce tells the protocol server what was negotiated: it gets INIT with the capabilities that were agreed upon, and
// must agree again.
func (k *kept) introduce(h transport.Handler) error {
	in := proto.View[fuse.InitIn](k.init)
	in.Flags, in.Flags2 = k.answer.Flags, k.answer.Flags2
	buf := make([]uint64, maxNegotiation/8)
	out := unsafe.Slice((*byte)(unsafe.Pointer(&buf[0])), maxNegotiation)
	n, st := h.HandleRequest([][]byte{k.init}, [][]byte{out})
	if st != fuse.OK || n < initOutSize || proto.View[fuse.OutHeader](out).Status != 0 {
		return fmt.Errorf("%w: INIT is refused", ErrNotAdoptable)
	}
	got := proto.View[fuse.InitOut](out[proto.OutHeaderSize:])
	if got.Flags64() != k.capabilities() || got.MaxWrite < k.answer.MaxWrite || got.MaxPages < k.answer.MaxPages ||
		got.Minor < k.answer.Minor {
		return fmt.Errorf("%w: capabilities %#x, largest write %d; this version has %#x, %d", ErrNotAdoptable,
			k.capabilities(), k.answer.MaxWrite, got.Flags64(), got.MaxWrite)
	}
	return nil
}

// DeviceFile gives a descriptor of the connection to be kept by another process: the mount lives as long as there is
// one, and Adopt takes it. It belongs to the mount. Nil without Options.Live, and over io_uring: nobody could adopt it, and
// programs in it would wait forever.
//
// It is none that the runtime polls, as it would be woken for each request. os.NewFile makes one of a copy, in the process
// that gets it as well.
func (m *Mount) DeviceFile() *os.File {
	if m.Transport() != "dev" {
		return nil
	}
	return m.device
}

// keptDevice gives another descriptor of a connection, which the runtime does not poll.
func keptDevice(fd int) (*os.File, error) {
	f, err := os.OpenFile(os.DevNull, os.O_RDWR, 0) // the runtime finds out that it cannot poll it
	if err != nil {
		return nil, err
	}
	if err := unix.Dup3(fd, int(f.Fd()), unix.O_CLOEXEC); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Release gives the mount up to a successor that adopts it: no more requests are read, those that are being handled are
// finished and answered, and those that wait for the gate or their turn are left to the successor. When it returns, Done
// is closed and nothing of the mount is left in this process; the connection lives as long as others keep its descriptor
// (DeviceFile), and ends otherwise. It works over /dev/fuse only (ErrNoTransport).
//
// When ctx ends before a request does, the mount is not given up yet, and this process must end: the successor can
// adopt it then, and is asked again for what was not answered.
func (m *Mount) Release(ctx context.Context) error {
	if err := m.conn.Release(); err != nil {
		return err
	}
	select {
	case <-m.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
