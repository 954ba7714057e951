package fs

import (
	"errors"
	"log/slog"
)

// ErrNoFUSE says that /dev/fuse is missing or may not be used.
var ErrNoFUSE = errors.New("fuse is not available")

// ErrNoTransport says that the transport asked for is unknown, or not offered by the kernel.
var ErrNoTransport = errors.New("transport is not available")

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
	Logger    *slog.Logger // nil is slog.Default()
	Debug     bool         // log every request and answer at debug level
}
