package fs

import (
	"context"
	"errors"
	"log/slog"

	"snapfs/layers"
)

// ErrNoFUSE says that /dev/fuse is missing or may not be used.
var ErrNoFUSE = errors.New("fuse is not available")

// Options are for New.
type Options struct {
	Transport string // auto, dev or uring
	FSName    string // shown as the source in /proc/mounts
	ReadOnly  bool
	NoSUID    bool
	NoDev     bool
	NoExec    bool
	NoAtime   bool
	Logger    *slog.Logger
	Debug     bool
}

// Mount is one live mount.
type Mount struct{}

// New mounts the overlay on an existing directory and returns when it is live. The caller still owns the overlay and closes it after Done.
func New(ctx context.Context, o *layers.Overlay, mountpoint string, opts Options) (*Mount, error) {
	return nil, errors.ErrUnsupported
}

// Unmount detaches; EBUSY while in use unless lazy.
func (m *Mount) Unmount(lazy bool) error { return errors.ErrUnsupported }

// Done is closed when the connection has ended (unmounted everywhere, by whomever) and no request runs.
func (m *Mount) Done() <-chan struct{} { return nil }

// Abort ends the connection at once: programs inside get ENOTCONN.
func (m *Mount) Abort() error { return errors.ErrUnsupported }

// Transport is what was chosen: dev or uring.
func (m *Mount) Transport() string { return "" }
