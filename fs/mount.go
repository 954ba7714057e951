package fs

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"snapfs/layers"
)

const (
	// maxReadAhead is what the kernel reads ahead of a sequential reader, in bytes.
	maxReadAhead = 1 << 20
	// maxBackground is how many requests that nobody waits for (read-ahead, direct asynchronous I/O) the kernel has
	// under way at a time.
	maxBackground = 32
)

// Mount is one live mount. Its methods may be called concurrently.
type Mount struct {
	point    string // absolute
	dev      uint64 // device number of the mounted file system; its minor number names the connection
	privileg bool   // mounted by mount(2), not by the helper
	t        transport
	counts   counters
	pruner   pruner
	done     chan struct{}
	log      *slog.Logger
}

// New mounts the overlay on an existing directory and returns when it is live. The caller still owns the overlay and
// closes it after Done. Errors: ErrNoFUSE, ErrNoTransport; of the mountpoint EBUSY (something is mounted there),
// ENOENT, ENOTDIR, EACCES, as *os.PathError. When New fails nothing stays mounted.
func New(ctx context.Context, o *layers.Overlay, mountpoint string, opts Options) (*Mount, error) {
	opts.setDefaults()
	if (opts.Transport == "" || opts.Transport == "auto") && o.Remote() {
		// What hangs there would hold a thread that serves every mount of its processor.
		opts.Logger.Debug("requests come over /dev/fuse: the host file system may hang")
		opts.Transport = "dev"
	}
	return serve(ctx, newAdapter(o, opts.Logger), mountpoint, opts)
}

func (opts *Options) setDefaults() {
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	if opts.FSName == "" {
		opts.FSName = "snapfs"
	}
}

// serve mounts any raw file system.
func serve(ctx context.Context, raw fuse.RawFileSystem, mountpoint string, opts Options) (*Mount, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	offer, err := offerTransport(opts.Transport, opts.Logger)
	if err != nil {
		return nil, err
	}
	point, err := filepath.Abs(mountpoint)
	if err != nil {
		return nil, err
	}
	if err := checkPoint(point); err != nil {
		return nil, err
	}
	m, err := mountOver(ctx, raw, point, offer, opts)
	if errors.Is(err, errRing) && opts.Transport != "uring" {
		opts.Logger.Warn("io_uring does not work, a mount is made again over the device", slog.String("error", err.Error()))
		m, err = mountOver(ctx, raw, point, nil, opts)
	}
	return m, err
}

// mountOver mounts with the offer of io_uring or, without one, the device.
func mountOver(ctx context.Context, raw fuse.RawFileSystem, point string, offer *laneSet, opts Options) (*Mount, error) {
	m := &Mount{point: point, done: make(chan struct{}), log: opts.Logger}
	m.pruner.room = roomForNodes()
	if a, ok := raw.(*adapter); ok {
		a.m, a.writeback = m, opts.Writeback
	}
	fd, err := m.attach(ctx, opts)
	if err != nil {
		return nil, err
	}
	if err := m.begin(ctx, fd, raw, offer, opts); err != nil {
		if m.t != nil {
			_ = m.Abort() // as below
		}
		_ = m.detach(true) // the error that matters is the first
		return nil, err
	}
	return m, nil
}

// begin introduces itself to the kernel and starts to serve. It owns the descriptor.
func (m *Mount) begin(ctx context.Context, fd int, raw fuse.RawFileSystem, offer *laneSet, opts Options) (err error) {
	d := newDevice(fd, opts.Logger, &m.counts)
	d.gate, _ = raw.(gated)
	started := false
	defer func() {
		if !started {
			_ = unix.Close(fd)
		}
	}()
	if m.dev, _, err = identify(m.point); err != nil {
		return err
	}
	if offer != nil {
		if offer, err = m.mayUseRing(offer, opts); err != nil {
			return err
		}
	}
	var u *uring
	if offer != nil {
		u, err = newUring(d, offer)
		switch {
		case err == nil:
			defer u.drop()
		case opts.Transport == "uring":
			return fmt.Errorf("%w: ring entries: %w", ErrNoTransport, err)
		default:
			m.log.Warn("no memory for ring entries, requests come over the device", slog.String("error", err.Error()))
		}
	}
	h := newHandler(raw, opts, u != nil)
	ringed, err := d.greet(ctx, h)
	if err != nil {
		return fmt.Errorf("fuse: %w", err)
	}
	m.raiseReadAhead()
	if m.t = d; u != nil && ringed {
		m.t = u
	}
	started = true
	m.t.start(h, func() {
		go func() { // who calls serves other mounts; ends with what the kernel was asked, of which nothing is left to wait for
			m.pruner.running.Wait()
			close(m.done)
		}()
	})
	if u != nil && u.stalled {
		return fmt.Errorf("%w: %w", ErrNoTransport, errRing)
	}
	if opts.Transport == "uring" && m.t.name() != "uring" {
		return fmt.Errorf("%w: the kernel refuses io_uring for this mount", ErrNoTransport)
	}
	m.log.Debug("mounted", slog.String("mountpoint", m.point), slog.String("transport", m.t.name()))
	return nil
}

// Device is the device number of the file system, as mountinfo has it.
func (m *Mount) Device() (major, minor uint32) { return unix.Major(m.dev), unix.Minor(m.dev) }

// Shown tells whether the mount is what is seen where it was made: it is not after an unmount, nor beneath another mount. No server is
// asked anything.
func (m *Mount) Shown() bool {
	dev, root, err := identify(m.point)
	return err == nil && root && dev == m.dev
}

// newHandler makes what answers the requests of a mount.
func newHandler(raw fuse.RawFileSystem, opts Options, ring bool) handler {
	ps := fuse.NewProtocolServer(raw, protocolOptions(opts, ring))
	if a, ok := raw.(*adapter); ok && !opts.Debug { // the protocol server logs what it answers
		return &hot{a: a, next: ps}
	}
	return ps
}

// protocolOptions are the capabilities this file system wants, see doc.go and notes on performance.
func protocolOptions(opts Options, ring bool) *fuse.MountOptions {
	o := &fuse.MountOptions{
		MaxWrite:                 maxIO,
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
		// Of asynchronous direct writes (ASYNC_DIO) the kernel forgets to drop what readers through the page cache have brought there while
		// they were under way: the cache would show the old contents for good. Without it, io_submit returns when the answer is there.
		// Truncation at open is lost without open requests; passthrough would cost a level of the stack that an
		// overlayfs above needs.
		DisabledCapabilities: fuse.CAP_ASYNC_DIO | fuse.CAP_ATOMIC_O_TRUNC | fuse.CAP_AUTO_INVAL_DATA | fuse.CAP_POSIX_LOCKS |
			fuse.CAP_FLOCK_LOCKS | fuse.CAP_EXPORT_SUPPORT | fuse.CAP_PASSTHROUGH | fuse.CAP_WRITEBACK_CACHE,
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
		plain.Printf("panic in a request: %v\n%s", v, stack())
		return fuse.EIO
	}
}

// raiseReadAhead lifts the kernel's default of 128 KiB, which INIT can only lower. Where sysfs is not ours (not
// root, a container) the default stays.
func (m *Mount) raiseReadAhead() {
	name := fmt.Sprintf("/sys/class/bdi/%d:%d/read_ahead_kb", unix.Major(m.dev), unix.Minor(m.dev))
	if err := os.WriteFile(name, []byte(strconv.Itoa(maxReadAhead/1024)), 0); err != nil {
		m.log.Debug("read-ahead stays at the kernel's default", slog.String("error", err.Error()))
	}
}

// Done is closed when the connection has ended (unmounted everywhere, by whomever) and no request runs.
func (m *Mount) Done() <-chan struct{} { return m.done }

// Ended says whether the connection has ended: Done will be closed when the last request is handled. The kernel ends it before the
// unmount(2) of the last mount returns.
func (m *Mount) Ended() bool { return m.t.ended() }

// Transport is what was chosen: dev or uring.
func (m *Mount) Transport() string { return m.t.name() }

// Requests gives how many requests of each kind the kernel has sent, by the protocol's names.
func (m *Mount) Requests() map[string]uint64 { return m.counts.snapshot() }

// Abort ends the connection at once: programs inside get ENOTCONN. What is mounted stays in the tree, as a dead
// mount, until Unmount.
func (m *Mount) Abort() error {
	select {
	case <-m.done:
		return nil
	default:
	}
	if err := abortConnection(m.dev, m.t.ended); err != nil {
		// Without fusectl (neither mounted nor ours to mount) dropping the device does the same.
		m.log.Debug("abort by closing the device", slog.String("error", err.Error()))
		m.t.shut()
	}
	return nil
}
