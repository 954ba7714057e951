package fs

import (
	"errors"
	"log/slog"
	"time"

	"snapfs/fs/internal/mountpoint"
	"snapfs/fs/internal/transport"
	"snapfs/internal/livestate"
)

// ErrNoFUSE says that /dev/fuse is missing or may not be used.
var ErrNoFUSE = mountpoint.ErrNoFUSE

// ErrAllowOther says that the administrator does not let users open their mounts to others.
var ErrAllowOther = mountpoint.ErrAllowOther

// ErrNoTransport says that the transport asked for is unknown, or not offered by the kernel.
var ErrNoTransport = transport.ErrUnavailable

// RingParameter is the kernel's switch for FUSE over io_uring: Y or N. It is looked at when a connection begins.
const RingParameter = transport.RingParameter

// EnableRing switches FUSE over io_uring on, for the whole system, until the next boot, and reports whether that
// changed anything. It needs root.
func EnableRing() (changed bool, err error) { return transport.EnableRing() }

// Errors of Adopt, beside livestate.ErrFormat.
var (
	// ErrNotConnection says that a descriptor is not that of the connection that is to be adopted.
	ErrNotConnection = errors.New("not the descriptor of the mount's connection")
	// ErrEnded says that the connection has ended: nothing is left to be served.
	ErrEnded = transport.ErrEnded
	// ErrServed says that a process serves the mount that was not killed.
	ErrServed = livestate.ErrClaimed
	// ErrNotAdoptable says that this kernel, or this version of snapfs, cannot go on with a connection.
	ErrNotAdoptable = errors.New("the connection cannot be adopted")
)

// Options are for New.
type Options struct {
	Transport string // auto, dev or uring; empty is auto
	FSName    string // shown as the source in /proc/mounts; empty is "snapfs"
	ReadOnly  bool
	NoSUID    bool
	NoDev     bool
	NoExec    bool
	// Writeback lets the kernel collect writes: they arrive with close, fsync, msync, memory pressure or after some
	// seconds. What has not arrived is not in a sealed layer.
	Writeback bool
	NoAtime   bool
	Owner     *Owner // nil: the mount is for everybody
	// AllowOther lets others into the mount of a user. ErrAllowOther if /etc/fuse.conf does not.
	AllowOther bool
	// Place attaches the mount, which is in no tree yet, by its descriptor. Nil: it is mounted on the directory.
	Place func(mount int) error
	// Live keeps what a successor needs that serves the mount when this process is gone, see Adopt. It is the mount's
	// until Done. Requests come over /dev/fuse then unless Transport says otherwise: only such a connection can be
	// adopted. Nil: the mount ends with the process.
	Live *livestate.State
	// Crashed is for Adopt: the process before has died by itself, so that a request which it was handling may be to
	// blame: one that was being handled at the third such death within a minute is answered with EIO. It is false if
	// somebody has killed or replaced it.
	Crashed bool
	// Refused, if not nil, is told of each such request before it is answered. It must not use the mount.
	Refused func(Refused)
	// Reconcile is for Adopt: how often it looks for nodes that the kernel has forgotten while nobody noted it. It must be
	// longer than an answer takes to reach its program. 0 is twenty seconds.
	Reconcile time.Duration
	Logger    *slog.Logger // nil is slog.Default()
	Debug     bool         // log every request and answer at debug level
}
