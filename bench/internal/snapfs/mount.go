package snapfs

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"snapfs/bench/internal/caches"
	"snapfs/bench/internal/engine"
	"snapfs/bench/internal/subject"
)

// mount is a workspace of a real daemon over a snapshot in its chunk store.
type mount struct {
	home       *engine.Home
	transport  string
	id         string
	mountpoint string
}

// Mount is snapfs over one of its transports, used by the command line.
func Mount(transport string) subject.Subject[subject.Mount] {
	return subject.Subject[subject.Mount]{
		Name: "snapfs " + transport, Programs: []string{"go"}, Open: openMount(transport, false),
	}
}

// KeptMount is Mount over /dev/fuse, with mounts that outlive the daemon.
func KeptMount() subject.Subject[subject.Mount] {
	return subject.Subject[subject.Mount]{Name: "snapfs kept", Programs: []string{"go"}, Open: openMount("dev", true)}
}

func openMount(transport string, keep bool) func(context.Context, subject.Site) (subject.Mount, error) {
	return func(ctx context.Context, at subject.Site) (subject.Mount, error) {
		if err := at.Home.StoreTree(ctx, at.Tree); err != nil {
			return nil, err
		}
		if at.Home.KeepMounts != keep {
			if err := at.Home.Run(ctx, nil, "stop"); err != nil {
				return nil, err
			}
			at.Home.KeepMounts = keep
		}
		w := &mount{home: at.Home, transport: transport, mountpoint: filepath.Join(at.Dir, "mnt")}
		var made struct {
			ID string `json:"id"`
		}
		if err := at.Home.Run(ctx, &made, "branch", at.Home.Snapshot); err != nil {
			return nil, err
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
	}
	if err := w.home.Run(ctx, &m, "mount", w.id, w.mountpoint, "--transport", w.transport); err != nil {
		return err
	}
	if m.Transport != w.transport {
		return fmt.Errorf("mounted with transport %s instead of %s", m.Transport, w.transport)
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
