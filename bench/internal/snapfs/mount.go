package snapfs

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"snapfs/bench/internal/caches"
	"snapfs/bench/internal/engine"
	"snapfs/bench/internal/subject"
	"snapfs/sandbox/api"
)

// mount is a workspace of a real daemon over a snapshot in its chunk store.
type mount struct {
	home       *engine.Home
	use        use
	id         string
	mountpoint string
}

// use is how a workspace is mounted.
type use struct {
	transport string // of its FUSE mount
	kernel    bool   // the kernel's overlayfs shows it, over that
	keep      bool   // mounts outlive the daemon
}

// Mount is snapfs over one of its transports, used by the command line.
func Mount(transport string) subject.Subject[subject.Mount] {
	return mounted("snapfs "+transport, use{transport: transport})
}

// KeptMount is Mount over /dev/fuse, with mounts that outlive the daemon.
func KeptMount() subject.Subject[subject.Mount] {
	return mounted("snapfs kept", use{transport: "dev", keep: true})
}

// KernelMount is the kernel engine, with one of the transports for what workspaces stand on.
func KernelMount(transport string) subject.Subject[subject.Mount] {
	return mounted("snapfs kernel "+transport, use{transport: transport, kernel: true})
}

func mounted(name string, u use) subject.Subject[subject.Mount] {
	return subject.Subject[subject.Mount]{Name: name, Programs: []string{"go"}, Open: openMount(u)}
}

func openMount(u use) func(context.Context, subject.Site) (subject.Mount, error) {
	return func(ctx context.Context, at subject.Site) (subject.Mount, error) {
		if err := at.Home.StoreTree(ctx, at.Tree); err != nil {
			return nil, err
		}
		if at.Home.KeepMounts != u.keep || at.Home.Transport != u.transport {
			if err := at.Home.Run(ctx, nil, "stop"); err != nil {
				return nil, err
			}
			at.Home.KeepMounts, at.Home.Transport = u.keep, u.transport
		}
		w := &mount{home: at.Home, use: u, mountpoint: filepath.Join(at.Dir, "mnt")}
		var made struct {
			ID string `json:"id"`
		}
		if err := at.Home.Run(ctx, &made, "branch", at.Home.Snapshot); err != nil {
			// The daemon that this starts refuses a transport that the kernel does not have.
			return nil, fmt.Errorf("%w: %w", subject.ErrNotOffered, err)
		}
		w.id = made.ID
		if err := w.mount(ctx); err != nil {
			clean := context.WithoutCancel(ctx)
			return nil, errors.Join(
				fmt.Errorf("%w: %w", subject.ErrNotOffered, err), at.Home.Run(clean, nil, "destroy", "--now", w.id),
			)
		}
		return w, nil
	}
}

func (w *mount) mount(ctx context.Context) error {
	var m struct {
		Transport string `json:"transport"`
		Engine    string `json:"engine"`
	}
	args := []string{"mount", w.id, w.mountpoint}
	if w.use.kernel {
		args = append(args, "--engine", api.EngineKernel)
	}
	if err := w.home.Run(ctx, &m, args...); err != nil {
		return err
	}
	switch {
	case w.use.kernel && m.Engine != api.EngineKernel:
		return fmt.Errorf("mounted with engine %q", m.Engine)
	case !w.use.kernel && m.Transport != w.use.transport:
		return fmt.Errorf("mounted with transport %s instead of %s", m.Transport, w.use.transport)
	}
	return nil
}

func (w *mount) Dir() string { return w.mountpoint }

func (w *mount) Binaries() []string { return []string{w.home.Engine.Binary} }

// Cold also ends the daemon, for what it has cached.
func (w *mount) Cold(ctx context.Context) error {
	if err := w.home.Run(ctx, nil, "stop"); err != nil {
		return err
	}
	if err := caches.Empty(); err != nil {
		return err
	}
	return w.mount(ctx)
}

func (w *mount) Requests(ctx context.Context) (map[string]uint64, error) {
	var o struct {
		Workspace struct {
			Requests map[string]uint64 `json:"requests"`
		} `json:"workspace"`
	}
	err := w.home.Run(ctx, &o, "show", w.id)
	return o.Workspace.Requests, err
}

func (w *mount) Server(ctx context.Context) (int, error) {
	var s struct {
		PID int `json:"pid"`
	}
	err := w.home.Run(ctx, &s, "status")
	return s.PID, err
}

func (w *mount) Close(ctx context.Context) error {
	// By force, or a mount namespace that was made meanwhile keeps a copy.
	if err := w.home.Run(ctx, nil, "umount", "--force", w.id); err != nil {
		return err
	}
	return w.home.Run(ctx, nil, "destroy", "--now", w.id)
}
