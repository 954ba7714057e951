package snapfs

import (
	"context"
	"errors"
	"path/filepath"

	"snapfs/bench/internal/engine"
	"snapfs/bench/internal/subject"
	"snapfs/sandbox"
)

// Workspace is a mounted workspace of a daemon, as a subject.Workspace.
type Workspace struct {
	*engine.Daemon
	scratch string
	made    map[string]string // workspaces by the directories they are mounted at
}

// NewWorkspace is the workspace "w" of a daemon, to be mounted in dir.
func NewWorkspace(d *engine.Daemon, dir string) *Workspace {
	return &Workspace{d, dir, map[string]string{}}
}

// Workspaces is snapfs as its daemon serves it.
func Workspaces() subject.Subject[subject.Workspace] {
	return subject.Subject[subject.Workspace]{Name: "snapfs", Programs: []string{"go"}, Open: openWorkspace}
}

func openWorkspace(ctx context.Context, at subject.Site) (subject.Workspace, error) {
	s, err := engine.Start(ctx, at.Engine, filepath.Join(at.Dir, "home"))
	if err != nil {
		return nil, err
	}
	h := NewWorkspace(s, at.Dir)
	if _, err := s.API.Create(ctx, sandbox.CreateRequest{Name: "w", Source: at.Tree}); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	if _, err := s.API.Mount(
		ctx, sandbox.MountRequest{Workspace: "w", Mountpoint: h.Dir(), MakeMountpoint: true},
	); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return h, nil
}

func (h *Workspace) Dir() string { return filepath.Join(h.scratch, "mnt") }

func (h *Workspace) Snapshot(ctx context.Context, sync bool) (string, error) {
	s, err := h.API.Snapshot(ctx, sandbox.SnapshotRequest{Workspace: "w", NoSync: !sync})
	return s.ID, err
}

func (h *Workspace) Restore(ctx context.Context, id string) (string, error) {
	dir := filepath.Join(h.scratch, "restored")
	w, err := h.API.Restore(ctx, sandbox.RestoreRequest{Snapshot: id, Mountpoint: dir, MakeMountpoint: true})
	if err != nil {
		return "", err
	}
	h.made[dir] = w.ID
	return dir, nil
}

func (h *Workspace) Unrestore(ctx context.Context, dir string) error {
	if _, err := h.API.Unmount(ctx, sandbox.UnmountRequest{Workspace: h.made[dir], Force: true}); err != nil {
		return err
	}
	_, err := h.API.Destroy(ctx, sandbox.DestroyRequest{Ref: h.made[dir], Now: true})
	return err
}

func (h *Workspace) Rollback(ctx context.Context, id string) error {
	_, err := h.API.Rollback(ctx, sandbox.RollbackRequest{Workspace: "w", Snapshot: id, Discard: true})
	return err
}

func (h *Workspace) Diff(ctx context.Context, id string) error {
	return h.API.Diff(ctx, sandbox.DiffRequest{A: id, B: "w"}, func(sandbox.Change) error { return nil })
}

func (h *Workspace) Delete(ctx context.Context, id string) error {
	return h.API.Delete(ctx, sandbox.RefRequest{Ref: id})
}

func (h *Workspace) Close(context.Context) error { return h.Stop() }
