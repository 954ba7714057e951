package fs

import (
	"log/slog"

	"snapfs/fs/internal/mountpoint"
	"snapfs/fs/internal/transport"
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
	Place  func(mount int) error
	Logger *slog.Logger // nil is slog.Default()
	Debug  bool         // log every request and answer at debug level
}
