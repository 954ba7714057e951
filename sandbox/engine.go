package sandbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"golang.org/x/sys/unix"

	snapfuse "snapfs/fs"
	"snapfs/internal/livestate"
	"snapfs/layers"
	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/catalog"
)

// engine shows an overlay at a mountpoint.
type engine interface {
	mount(
		ctx context.Context, o *layers.Overlay, workspace, mountpoint string, opts MountOptions, how attaching,
	) (mounted, error)
	// adopt goes on with the connection of a process that is gone, of whose device it has a descriptor. That belongs to
	// the mount, unless it fails.
	adopt(
		ctx context.Context, o *layers.Overlay, workspace, mountpoint string, device *os.File, opts MountOptions,
		how attaching,
	) (mounted, error)
}

// attaching says how a mount is attached. The zero value: by this process, for everybody.
type attaching struct {
	owner *snapfuse.Owner       // for whom; nil: for everybody
	place func(mount int) error // by whom, by the descriptor of the mount; nil: by this process
	state *livestate.State      // for a successor; nil: there is to be none

	// Of a connection that is adopted: whether the process before has died by a fault, and what is told of requests that
	// are answered with EIO for that.
	crashed bool
	refused func(snapfuse.Refused)
}

// mounted is one live mount; *fs.Mount is one.
type mounted interface {
	attachment
	Abort() error          // ends the connection everywhere at once
	Done() <-chan struct{} // closed when the connection has ended and no request runs
	Ended() bool           // the connection has ended
	Transport() string
	Device() (major, minor uint32)
	Requests() map[string]uint64 // by kind, since it was mounted
	// ExpireEntry makes the kernel look a name up again before it uses it; InvalidateEntry and InvalidateNode make it
	// forget a name with what it led to, and what it knows of a node.
	ExpireEntry(parent layers.NodeID, name string) error
	InvalidateEntry(parent layers.NodeID, name string) error
	InvalidateNode(node layers.NodeID) error
	// DeviceFile is what a successor needs to go on with the connection, which belongs to the mount; nil if none can.
	DeviceFile() *os.File
	// Release gives the connection up to a successor: Done is closed, and the connection does not end.
	Release(ctx context.Context) error
}

// fuseEngine serves the whole overlay over FUSE.
type fuseEngine struct {
	log       *slog.Logger
	transport string // of mounts that leave it open
}

// transport checks the options that are about it and switches on what they want on.
func (o Options) transport() error {
	if err := validMountOptions(MountOptions{Transport: o.Transport}); err != nil {
		return err
	}
	if !o.EnableURing {
		return nil
	}
	switch changed, err := snapfuse.EnableRing(); {
	case err != nil && o.Transport == "uring":
		return classify(fmt.Errorf("switching FUSE over io_uring on: %w", err))
	case err != nil:
		o.Logger.Warn("FUSE over io_uring cannot be switched on, requests come over /dev/fuse", "error", err)
	case changed:
		o.Logger.Warn("FUSE over io_uring is now switched on for the whole system, until the next boot",
			"parameter", snapfuse.RingParameter)
	default:
		o.Logger.Info("FUSE over io_uring was on already", "parameter", snapfuse.RingParameter)
	}
	return nil
}

func (e fuseEngine) mount(
	ctx context.Context, o *layers.Overlay, workspace, mountpoint string, opts MountOptions, how attaching,
) (mounted, error) {
	m, err := snapfuse.New(ctx, o, mountpoint, e.options(workspace, opts, how))
	if errors.Is(err, snapfuse.ErrAllowOther) {
		return nil, fmt.Errorf("%w: mounting %s at %s: %w: ask the administrator for it, or mount without allow_other (a volume: -o allow_other=false)",
			ErrConflict, workspace, mountpoint, err)
	}
	if err != nil {
		if !isFuseDevice() {
			err = fmt.Errorf("%w: %s is missing, or not the FUSE device: run the container with --device %s, or "+
				"'modprobe fuse': %w", ErrUnavailable, fuseDevice, fuseDevice, err)
		} else if how.owner == nil {
			err = lacking(err, "something forbids it that is no capability: AppArmor (for a container, "+
				"--security-opt apparmor=unconfined), or a seccomp filter")
		}
		return nil, classify(fmt.Errorf("mounting %s at %s: %w", workspace, mountpoint, err))
	}
	return m, nil
}

func (e fuseEngine) adopt(
	ctx context.Context, o *layers.Overlay, workspace, mountpoint string, device *os.File, opts MountOptions,
	how attaching,
) (mounted, error) {
	m, err := snapfuse.Adopt(ctx, o, device, mountpoint, e.options(workspace, opts, how))
	if err != nil { // not a nil mount
		return nil, err
	}
	return m, nil
}

// options are those of a mount of a workspace.
func (e fuseEngine) options(workspace string, opts MountOptions, how attaching) snapfuse.Options {
	options := fuseOptions(opts)
	if options.Transport == "" || options.Transport == "auto" {
		options.Transport = e.transport
	}
	options.FSName, options.Logger, options.Live = workspace, e.log, how.state
	options.Owner, options.Place = how.owner, how.place
	options.Crashed, options.Refused = how.crashed, how.refused
	return options
}

// fuseOptions are the options of a mount as package fs has them.
func fuseOptions(o MountOptions) snapfuse.Options {
	return snapfuse.Options{
		Transport: o.Transport, ReadOnly: o.ReadOnly, NoSUID: o.NoSUID, NoDev: o.NoDev, NoExec: o.NoExec,
		NoAtime: o.NoAtime, Writeback: o.Writeback, AllowOther: o.AllowOther,
	}
}

// fuseDevice is where the kernel's FUSE is reached, a character device 10:229.
const fuseDevice = "/dev/fuse"

func isFuseDevice() bool {
	var st unix.Stat_t
	err := unix.Stat(fuseDevice, &st)
	return err == nil && st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == unix.Mkdev(10, 229)
}

func validMountOptions(o MountOptions) error {
	if o.SUID && o.NoSUID || o.Dev && o.NoDev {
		return fmt.Errorf("%w: a mount is suid or nosuid, dev or nodev", ErrInvalid)
	}
	switch o.Transport {
	case "", "auto", "dev", "uring":
		return validEngine(o.Engine)
	}
	return fmt.Errorf("%w: transport %s: auto, dev or uring", ErrInvalid, api.Quoted(o.Transport))
}

func validEngine(name string) error {
	switch name {
	case "", api.EngineFUSE, api.EngineKernel, api.EngineAuto:
		return nil
	}
	return fmt.Errorf("%w: engine %s: fuse, kernel or auto", ErrInvalid, api.Quoted(name))
}

// engineFor is the engine of a mount as records and options have it: the one that is asked for, else that of the
// workspace. Fuse is "".
func engineFor(w *catalog.Workspace, o MountOptions) string {
	switch o.Engine {
	case "":
		return w.Engine
	case api.EngineKernel:
		return api.EngineKernel
	}
	return ""
}

// setEngine records the engine of a workspace. ErrConflict if it is mounted with another one. The caller holds its lock.
func (h *Home) setEngine(ctx context.Context, w *catalog.Workspace, name string) error {
	engine := engineFor(w, MountOptions{Engine: name})
	if l := h.liveOf(w.ID); l != nil && l.options().Engine != engine {
		return fmt.Errorf("%w: workspace %s is mounted at %s with another engine than %s: unmount it first", ErrConflict,
			w.ID, l.where(), name)
	}
	if engine == w.Engine {
		return nil
	}
	return h.catalog.Put(ctx, true, func(ch *catalog.Change) error {
		now := h.catalog.Workspace(w.ID)
		if now == nil {
			return fmt.Errorf("%w: workspace %s has just been destroyed", ErrConflict, w.ID)
		}
		next := *now
		next.Engine = engine
		if next.Mount != nil { // to be mounted again with that
			mount := *next.Mount
			mount.Options.Engine = engine
			next.Mount = &mount
		}
		ch.PutWorkspaces = append(ch.PutWorkspaces, &next)
		return nil
	})
}
