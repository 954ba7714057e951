package sandbox

import (
	"context"
	"fmt"
	"log/slog"

	"golang.org/x/sys/unix"

	snapfuse "snapfs/fs"
	"snapfs/layers"
)

// engine shows an overlay at a mountpoint.
type engine interface {
	mount(ctx context.Context, o *layers.Overlay, workspace, mountpoint string, opts MountOptions) (mounted, error)
}

// mounted is one live mount; *fs.Mount is one.
type mounted interface {
	Unmount(lazy bool) error // EBUSY while in use unless lazy
	Abort() error            // ends the connection everywhere at once
	Done() <-chan struct{}   // closed when the connection has ended and no request runs
	Transport() string
	Requests() map[string]uint64 // by kind, since it was mounted
	// InvalidateEntry and InvalidateNode make the kernel forget a name, and what it knows of a node.
	InvalidateEntry(parent layers.NodeID, name string) error
	InvalidateNode(node layers.NodeID) error
}

// fuseEngine serves the whole overlay over FUSE.
type fuseEngine struct{ log *slog.Logger }

func (e fuseEngine) mount(ctx context.Context, o *layers.Overlay, workspace, mountpoint string, opts MountOptions) (mounted, error) {
	m, err := snapfuse.New(ctx, o, mountpoint, snapfuse.Options{
		Transport: opts.Transport, FSName: workspace, ReadOnly: opts.ReadOnly,
		NoSUID: opts.NoSUID, NoDev: opts.NoDev, NoExec: opts.NoExec, Logger: e.log,
	})
	if err != nil {
		if !isFuseDevice() {
			err = fmt.Errorf("%w: %s is missing, or not the FUSE device: %w", ErrUnavailable, fuseDevice, err)
		}
		return nil, classify(fmt.Errorf("mounting %s at %s: %w", workspace, mountpoint, err))
	}
	return m, nil
}

// fuseDevice is where the kernel's FUSE is reached, a character device 10:229.
const fuseDevice = "/dev/fuse"

func isFuseDevice() bool {
	var st unix.Stat_t
	err := unix.Stat(fuseDevice, &st)
	return err == nil && st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == unix.Mkdev(10, 229)
}

func (o MountOptions) validate() error {
	switch o.Transport {
	case "", "auto", "dev", "uring":
		return nil
	}
	return fmt.Errorf("%w: transport %s: auto, dev or uring", ErrInvalid, shown(o.Transport))
}
