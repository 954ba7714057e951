package fs

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"runtime/debug"
	"strconv"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"snapfs/fs/internal/mountpoint"
	"snapfs/fs/internal/transport"
	"snapfs/internal/livestate"
	"snapfs/layers"
)

const (
	// maxReadAhead is what the kernel reads ahead of a sequential reader, in bytes.
	maxReadAhead = 1 << 20
	// maxBackground is how many requests that no program waits for (read-ahead, direct asynchronous I/O) the kernel has
	// under way at a time.
	maxBackground = 32
)

// Mount is one live mount. Its methods may be called concurrently.
type Mount struct {
	// Immutable once the first request comes.
	point  *mountpoint.Mountpoint // nil if it was placed by Options.Place
	dev    uint64
	conn   *transport.Conn
	device *os.File      // another descriptor of the connection; nil without live
	done   chan struct{} // closed by finish
	log    *slog.Logger
	live   *livestate.State // nil: the mount ends with the process

	pruner pruner
	ending chan struct{} // closed when it is to end what it does by itself
}

// New mounts the overlay on an existing directory, or has Options.Place attach it, and returns when it is live. The
// caller still owns the overlay and closes it after Done. Errors: ErrNoFUSE, ErrNoTransport, ErrAllowOther; of the
// mountpoint EBUSY (something is mounted there), ENOENT, ENOTDIR, EACCES, as *os.PathError. When New fails nothing stays
// mounted.
func New(ctx context.Context, o *layers.Overlay, dir string, opts Options) (*Mount, error) {
	opts.setDefaults()
	if auto := opts.Transport == "" || opts.Transport == "auto"; auto && o.Remote() {
		// What hangs there would hold a thread that serves every mount of its processor.
		opts.Logger.Debug("requests come over /dev/fuse: the host file system may hang")
		opts.Transport = "dev"
	} else if auto && opts.Live != nil {
		opts.Transport = "dev"
	}
	a := newAdapter(o, opts.Logger)
	a.settle(opts)
	return serve(ctx, a, dir, o, opts)
}

func (opts *Options) setDefaults() {
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	if opts.FSName == "" {
		opts.FSName = "snapfs"
	}
}

// serve mounts any raw file system. gate is nil if it never holds changes back.
func serve(ctx context.Context, raw fuse.RawFileSystem, dir string, gate transport.Gate, opts Options) (*Mount, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if opts.Live != nil {
		if err := opts.Live.Claim(); err != nil {
			return nil, err
		}
	}
	var m *Mount   // of the connection at hand: there is a second one if the first cannot be served
	var apart *int // its mount, which is in no tree yet; nil: it is in its place
	_, err := transport.Serve(ctx, transport.Config{
		Transport: opts.Transport,
		Gate:      gate,
		Log:       opts.Logger,
		Attach: func(ctx context.Context) (a transport.Attached, err error) {
			if m != nil {
				_ = m.device.Close() // of the connection before; nothing was written
			}
			m, a, apart, err = attach(ctx, dir, opts)
			return a, err
		},
		Handler: func(c *transport.Conn, ring bool) transport.Handler {
			return m.handle(c, raw, opts, ring)
		},
		Negotiated: func(request, answer []byte) { m.keep(request, answer) },
	})
	if err != nil {
		if opts.Live != nil {
			opts.Live.Release()
		}
		if m != nil {
			_ = m.device.Close() // nothing was written
		}
		return nil, err
	}
	if m.Transport() != "dev" {
		_ = m.device.Close() // see DeviceFile
	}
	if apart != nil {
		if err := m.place(*apart, opts.Place); err != nil {
			return nil, err
		}
	}
	m.raiseReadAhead()
	m.log.Debug("mounted", slog.String("mountpoint", dir), slog.String("transport", m.Transport()))
	return m, nil
}

// attach opens a connection and mounts it. apart is the mount if it is in no tree yet.
func attach(ctx context.Context, dir string, opts Options) (m *Mount, a transport.Attached, apart *int, err error) {
	var point *mountpoint.Mountpoint
	if opts.Place == nil {
		if point, a.FD, err = mountpoint.Attach(ctx, dir, mountOptions(opts)); err != nil {
			return nil, a, nil, err
		}
		a.Device, a.Detach = point.Device(), point.Detach
	} else {
		p, err := mountpoint.NewApart(mountOptions(opts))
		if err != nil {
			return nil, a, nil, err
		}
		apart = &p.Mount
		a.FD, a.Device, a.Detach = p.Conn, p.Device(), func() { _ = unix.Close(p.Mount) } // which ends it
	}
	if m, err = newMount(point, a.Device, a.FD, opts); err != nil {
		a.Detach()
		return nil, a, nil, errors.Join(err, unix.Close(a.FD))
	}
	a.Done = m.finish
	return m, a, apart, nil
}

// newMount is for a connection that is not served yet, of which fd is a descriptor.
func newMount(point *mountpoint.Mountpoint, dev uint64, fd int, opts Options) (_ *Mount, err error) {
	m := &Mount{point: point, dev: dev, done: make(chan struct{}), ending: make(chan struct{}), log: opts.Logger, live: opts.Live}
	m.pruner.room = roomForNodes()
	if m.live != nil {
		m.device, err = keptDevice(fd)
	}
	return m, err
}

// handle makes what answers the requests of a connection.
func (m *Mount) handle(c *transport.Conn, raw fuse.RawFileSystem, opts Options, ring bool) transport.Handler {
	m.conn = c
	if a, ok := raw.(*adapter); ok {
		a.m, a.writeback, a.forgotten = m, opts.Writeback, m.forgotten
	}
	return newHandler(raw, opts, ring)
}

// place has a connection that is live attached somewhere, and ends it if that fails.
func (m *Mount) place(mount int, place func(mount int) error) error {
	err := place(mount)
	_ = unix.Close(mount) // what is attached stays
	if err != nil {
		m.conn.Abort()
		<-m.done
	}
	return err
}

// Owner is the user for whom a mount is made, with the mountpoint as that user has opened it: it is mounted there,
// wherever the path leads by now. Others have no access unless /etc/fuse.conf lets users share their mounts.
type Owner = mountpoint.Owner

// Detach takes away, lazily, the file system of a device if it is what is mounted at a path, as a process that is gone
// has left it.
func Detach(path string, dev uint64) (found bool, err error) {
	return mountpoint.Detach(path, dev, true)
}

// Attributes are the options that are on, as mount_setattr(2) has them.
func (o Options) Attributes() uint64 { return mountOptions(o).Attributes() }

// AllAttributes are those that options decide about.
const AllAttributes uint64 = mountpoint.AllAttributes

func mountOptions(opts Options) mountpoint.Options {
	return mountpoint.Options{
		FSName: opts.FSName, ReadOnly: opts.ReadOnly, NoSUID: opts.NoSUID, NoDev: opts.NoDev, NoExec: opts.NoExec,
		NoAtime: opts.NoAtime, MaxRead: transport.MaxIO, Owner: opts.Owner, AllowOther: opts.AllowOther,
	}
}

// finish is called when the connection has ended, by a thread that serves other mounts. Hence the goroutine: it waits
// until what the kernel was asked has returned, which it does at the end of a connection.
func (m *Mount) finish() {
	close(m.ending)
	go func() {
		m.pruner.running.Wait()
		if m.live != nil {
			m.live.Release()
			_ = m.device.Close() // nil or open; nothing is written
		}
		close(m.done)
	}()
}

// Device is the device number of the file system, as mountinfo has it.
func (m *Mount) Device() (major, minor uint32) {
	return unix.Major(m.dev), unix.Minor(m.dev)
}

// Visible reports whether the mount is what a look at its directory finds: it is not after an unmount, nor beneath
// another mount. No server is asked anything. Of a mount that Options.Place has attached it is not known.
func (m *Mount) Visible() bool { return m.point != nil && m.point.Visible() }

// Unmount detaches; EBUSY while in use unless lazy. It does not wait for Done: copies of the mount in other mount
// namespaces, and after a lazy unmount open files, keep the connection alive. Unmounting what is already gone is no
// error. What Options.Place has attached is not taken away (ENOTSUP).
func (m *Mount) Unmount(lazy bool) error {
	if m.point == nil {
		return unix.ENOTSUP
	}
	return m.point.Unmount(lazy)
}

// newHandler makes what answers the requests of a mount.
func newHandler(raw fuse.RawFileSystem, opts Options, ring bool) transport.Handler {
	ps := fuse.NewProtocolServer(raw, protocolOptions(opts, ring))
	if a, ok := raw.(*adapter); ok && !opts.Debug { // the protocol server logs what it answers
		return a.noting(&hot{a: a, next: ps})
	} else if ok {
		return a.noting(ps)
	}
	return ps
}

// protocolOptions are the capabilities that this file system wants; see doc.go and docs/PERFORMANCE.md.
func protocolOptions(opts Options, ring bool) *fuse.MountOptions {
	o := &fuse.MountOptions{
		MaxWrite:                 transport.MaxIO,
		MaxReadAhead:             maxReadAhead,
		MaxBackground:            maxBackground,
		EnableSymlinkCaching:     true,
		ExplicitDataCacheControl: true,
		EnableAcl:                true,
		IDMappedMount:            true,
		Debug:                    opts.Debug,
		Logger:                   slog.NewLogLogger(opts.Logger.Handler(), slog.LevelDebug),
		PanicHandler:             panicHandler(opts.Logger),
		ExtraCapabilities: fuse.CAP_DONT_MASK | fuse.CAP_HANDLE_KILLPRIV_V2 | fuse.CAP_SETXATTR_EXT |
			fuse.CAP_NO_OPENDIR_SUPPORT,
		// Of asynchronous direct writes (ASYNC_DIO) the kernel forgets to drop what readers through the page cache have
		// brought there while they were under way: the cache would show the old contents for good. Without it,
		// io_submit returns when the answer is there. Truncation at open is lost without open requests; passthrough
		// would cost a level of the stack that an overlayfs above needs.
		DisabledCapabilities: fuse.CAP_ASYNC_DIO | fuse.CAP_ATOMIC_O_TRUNC | fuse.CAP_AUTO_INVAL_DATA |
			fuse.CAP_POSIX_LOCKS | fuse.CAP_FLOCK_LOCKS | fuse.CAP_EXPORT_SUPPORT | fuse.CAP_PASSTHROUGH |
			fuse.CAP_WRITEBACK_CACHE,
		DisableSplice: true,
	}
	if opts.Writeback {
		o.ExtraCapabilities |= fuse.CAP_WRITEBACK_CACHE
		o.DisabledCapabilities &^= fuse.CAP_WRITEBACK_CACHE
	}
	if ring {
		o.ExtraCapabilities |= fuse.CAP_OVER_IO_URING
	}
	return o
}

func panicHandler(logger *slog.Logger) func(any) fuse.Status {
	plain := log.New(slog.NewLogLogger(logger.Handler(), slog.LevelError).Writer(), "", 0)
	return func(v any) fuse.Status {
		plain.Printf("panic in a request: %v\n%s", v, debug.Stack())
		return fuse.EIO
	}
}

// raiseReadAhead lifts the kernel's default of 128 KiB, which INIT can only lower. Where sysfs is not ours (not
// root, a container) the default stays.
func (m *Mount) raiseReadAhead() {
	major, minor := m.Device()
	name := fmt.Sprintf("/sys/class/bdi/%d:%d/read_ahead_kb", major, minor)
	if err := os.WriteFile(name, []byte(strconv.Itoa(maxReadAhead/1024)), 0); err != nil {
		m.log.Debug("read-ahead stays at the kernel's default", slog.String("error", err.Error()))
	}
}

// Done is closed when the connection has ended, by an unmount everywhere or an abort, and no request runs; and at the
// end of Release.
func (m *Mount) Done() <-chan struct{} { return m.done }

// Ended reports whether the connection has ended: Done will be closed when the last request is handled. The kernel ends
// it before the unmount(2) of the last mount returns.
func (m *Mount) Ended() bool { return m.conn.Ended() }

// Transport is what was chosen: dev or uring.
func (m *Mount) Transport() string { return m.conn.Transport() }

// Requests gives how many requests of each kind the kernel has sent, by the protocol's names.
func (m *Mount) Requests() map[string]uint64 { return m.conn.Requests() }

// Abort ends the connection at once: programs inside get ENOTCONN. What is mounted stays in the tree, as a dead
// mount, until Unmount.
func (m *Mount) Abort() error {
	select {
	case <-m.done:
	default:
		_ = m.device.Close() // nil or open: it would keep the connection where that is ended by closing it
		m.conn.Abort()
	}
	return nil
}
