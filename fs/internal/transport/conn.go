package transport

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"golang.org/x/sys/unix"
)

// Config is what Serve needs. All fields but Transport, Negotiated and Gate must be set.
type Config struct {
	Transport string // auto, dev or uring; empty is auto
	// Attach opens a connection and mounts it. It is called once more if the first connection could not be served over
	// io_uring and Transport leaves the choice to Serve.
	Attach func(context.Context) (Attached, error)
	// Handler makes what answers the requests of a connection, before the first one is read. ring says whether the
	// answer to INIT should ask for FUSE_OVER_IO_URING.
	Handler func(c *Conn, ring bool) Handler
	// Negotiated is called with INIT and its answer, before the kernel gets that. Nil: nobody wants to know.
	Negotiated func(request, answer []byte)
	Gate       Gate // nil: changes are never held back
	Log        *slog.Logger
}

// Attached is a connection that was mounted and not served yet.
type Attached struct {
	FD     int    // of /dev/fuse, non-blocking; belongs to Serve
	Device uint64 // the device number of the file system; its minor number names the connection
	Detach func() // takes the mount away, if the connection cannot be served
	Done   func() // called when the connection has ended and none of its requests runs. It must not block
}

// Conn is one connection that is served. Its methods may be called concurrently.
type Conn struct {
	t      transport
	device uint64
	counts counters
	log    *slog.Logger
}

// Serve makes a connection and serves it until it ends. When it returns, the connection is live. Errors:
// ErrUnavailable, and those of Attach. When Serve fails, nothing stays mounted.
func Serve(ctx context.Context, cfg Config) (*Conn, error) {
	offer, err := offerTransport(cfg.Transport, cfg.Log)
	if err != nil {
		return nil, err
	}
	c, err := connect(ctx, cfg, offer)
	if errors.Is(err, errRing) && cfg.Transport != "uring" {
		cfg.Log.Warn("io_uring does not work, a mount is made again over the device", slog.String("error", err.Error()))
		c, err = connect(ctx, cfg, nil)
	}
	return c, err
}

// connect makes a connection with the offer of io_uring or, without one, over the device.
func connect(ctx context.Context, cfg Config, offer *laneSet) (*Conn, error) {
	a, err := cfg.Attach(ctx)
	if err != nil {
		return nil, err
	}
	c := &Conn{device: a.Device, log: cfg.Log}
	if err := c.begin(ctx, a, offer, cfg); err != nil {
		if c.t != nil {
			c.Abort() // it has begun to serve
		}
		a.Detach()
		return nil, err
	}
	return c, nil
}

// begin introduces itself to the kernel and starts to serve. It owns the descriptor.
func (c *Conn) begin(ctx context.Context, a Attached, offer *laneSet, cfg Config) (err error) {
	d := newDevice(a.FD, cfg.Log, &c.counts)
	d.gate = cfg.Gate
	started := false
	defer func() {
		if !started {
			_ = unix.Close(a.FD) // never used
		}
	}()
	if offer != nil {
		if offer, err = c.mayUseRing(offer, cfg.Transport); err != nil {
			return err
		}
	}
	var u *uring
	if offer != nil {
		u, err = newUring(d, offer)
		switch {
		case err == nil:
			defer u.freeInitial()
		case cfg.Transport == "uring":
			return fmt.Errorf("%w: ring entries: %w", ErrUnavailable, err)
		default:
			c.log.Warn("no memory for ring entries, requests come over the device", slog.String("error", err.Error()))
		}
	}
	h := cfg.Handler(c, u != nil)
	ringed, err := d.handshake(ctx, h, cfg.Negotiated)
	if err != nil {
		return fmt.Errorf("fuse: %w", err)
	}
	if c.t = d; u != nil && ringed {
		c.t = u
	}
	started = true
	c.t.start(h, a.Done)
	if u != nil && u.stalled {
		return fmt.Errorf("%w: %w", ErrUnavailable, errRing)
	}
	if cfg.Transport == "uring" && c.t.name() != "uring" {
		return fmt.Errorf("%w: the kernel refuses io_uring for this mount", ErrUnavailable)
	}
	return nil
}

// mayUseRing drops an offer if the mount could not be ended by force: ring entries hold the connection, so that closing
// the device would not.
func (c *Conn) mayUseRing(offer *laneSet, want string) (*laneSet, error) {
	err := mayAbort(c.device)
	if err == nil {
		return offer, nil
	}
	if want == "uring" {
		return nil, fmt.Errorf("%w: io_uring wants the control file system: %w", ErrUnavailable, err)
	}
	c.log.Info("no io_uring for a mount that could not be aborted", slog.String("error", err.Error()))
	return nil, nil
}

// Transport is what was chosen: dev or uring.
func (c *Conn) Transport() string { return c.t.name() }

// Requests gives how many requests of each kind the kernel has sent, by the protocol's names.
func (c *Conn) Requests() map[string]uint64 { return c.counts.snapshot() }

// Notify sends a message that answers no request. It may wait for the kernel, which may wait for answers. ENODEV: the
// connection has ended.
func (c *Conn) Notify(msg []byte) error { return c.t.notify(msg) }

// Ended reports whether the connection has ended. The kernel ends it before the unmount(2) of the last mount returns.
func (c *Conn) Ended() bool { return c.t.ended() }

// Abort ends the connection at once: programs inside get ENOTCONN. What is mounted stays in the tree, as a dead mount.
func (c *Conn) Abort() {
	if err := abortConnection(c.device, c.t.ended); err != nil {
		// Without fusectl (neither mounted nor ours to mount) dropping the device does the same.
		c.log.Debug("abort by closing the device", slog.String("error", err.Error()))
		c.t.disconnect()
	}
}
