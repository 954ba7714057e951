package snapfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"snapfs/bench/internal/program"
	"snapfs/bench/internal/subject"
	"snapfs/bench/internal/tree"
	"snapfs/sandbox"
)

// Store is snapfs as it is used: a mounted workspace that is changed from state to state, and a
// snapshot of each. The home is served by this process; only children touch the mount.
func Store() subject.Subject[subject.Store] {
	return subject.Subject[subject.Store]{
		Name: "snapfs", Programs: []string{"rsync", "fusermount3"}, Keeps: subject.KeepsAll,
		Open: func(ctx context.Context, at subject.Site) (subject.Store, error) {
			dir := filepath.Join(at.Dir, "repo")
			s := &store{home: dir, mount: dir + ".mnt"}
			h, err := sandbox.Open(ctx, dir, sandbox.Options{})
			if err != nil {
				return nil, fmt.Errorf("open home: %w", err)
			}
			s.api = h
			if _, err := h.Create(ctx, sandbox.CreateRequest{Name: "bench"}); err != nil {
				return nil, errors.Join(err, h.Close())
			}
			r := sandbox.MountRequest{Workspace: "bench", Mountpoint: s.mount, MakeMountpoint: true}
			if _, err := h.Mount(ctx, r); err != nil {
				return nil, errors.Join(err, h.Close())
			}
			return s, nil
		},
	}
}

type store struct {
	api         sandbox.API // nil while closed
	home, mount string
	ids         []string // of the states' snapshots
}

func (s *store) Store(ctx context.Context, i int, _, state string) error {
	if err := tree.Mirror(ctx, state, s.mount); err != nil {
		return err
	}
	snap, err := s.api.Snapshot(
		ctx, sandbox.SnapshotRequest{Workspace: "bench", Name: fmt.Sprintf("s%04d", i), WaitStored: true},
	)
	if err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	s.ids = append(s.ids, snap.ID)
	return nil
}

// Settle removes the workspace, as no peer keeps a working copy.
func (s *store) Settle(ctx context.Context) error {
	if _, err := s.api.Unmount(ctx, sandbox.UnmountRequest{Workspace: "bench", Force: true}); err != nil {
		return fmt.Errorf("unmount: %w", err)
	}
	if _, err := s.api.Destroy(ctx, sandbox.DestroyRequest{Ref: "bench", Now: true}); err != nil {
		return fmt.Errorf("destroy workspace: %w", err)
	}
	return s.reopen(ctx)
}

// reopen closes and opens the home: what is counted is what a closed home takes.
func (s *store) reopen(ctx context.Context) error {
	if err := s.Close(ctx); err != nil {
		return err
	}
	h, err := sandbox.Open(ctx, s.home, sandbox.Options{MustExist: true})
	if err != nil {
		return fmt.Errorf("open home: %w", err)
	}
	s.api = h
	return nil
}

func (s *store) Size(ctx context.Context) (int64, error) {
	if err := s.Close(ctx); err != nil {
		return 0, err
	}
	n, err := tree.Allocated(s.home)
	return n, errors.Join(err, s.reopen(ctx))
}

func (s *store) Restore(ctx context.Context, i int, dest string) (err error) {
	mnt := filepath.Clean(dest) + ".mnt"
	w, err := s.api.Restore(ctx, sandbox.RestoreRequest{Snapshot: s.ids[i]})
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	clean := context.WithoutCancel(ctx)
	defer func() {
		_, e := s.api.Destroy(clean, sandbox.DestroyRequest{Ref: w.ID, Now: true})
		err = errors.Join(err, e)
	}()
	r := sandbox.MountRequest{
		Workspace: w.ID, Mountpoint: mnt, MakeMountpoint: true, MountOptions: sandbox.MountOptions{ReadOnly: true},
	}
	if _, err := s.api.Mount(ctx, r); err != nil {
		return errors.Join(err, os.RemoveAll(mnt))
	}
	err = program.Run(ctx, "cp", "-a", mnt+"/.", dest)
	// By force, or a mount namespace that was made meanwhile keeps a copy, and the workspace cannot be destroyed.
	_, uerr := s.api.Unmount(clean, sandbox.UnmountRequest{Workspace: w.ID, Force: true})
	return errors.Join(err, uerr, os.Remove(mnt))
}

// Extract is Restore straight from the store, by restore --to. It does not sync, as no peer does.
func (s *store) Extract(ctx context.Context, i int, dest string) error {
	r, err := s.api.Extract(ctx, sandbox.ExtractRequest{Snapshot: s.ids[i], Path: dest, NoSync: true})
	if err == nil && r.Skipped > 0 {
		err = fmt.Errorf("%d things were skipped: %+v", r.Skipped, r.Skips[0])
	}
	if err != nil {
		return fmt.Errorf("extract: %w", err)
	}
	return nil
}

func (s *store) Drop(ctx context.Context, from, to int) error {
	for _, id := range s.ids[from:to] {
		if err := s.api.Delete(ctx, sandbox.RefRequest{Ref: id}); err != nil {
			return fmt.Errorf("delete %s: %w", id, err)
		}
	}
	if _, err := s.api.GC(ctx, sandbox.GCRequest{}); err != nil {
		return fmt.Errorf("collect: %w", err)
	}
	return nil
}

// Optimize is what the daemon does by itself when it is idle.
func (s *store) Optimize(ctx context.Context) error {
	if _, err := s.api.GC(ctx, sandbox.GCRequest{Optimize: true}); err != nil {
		return fmt.Errorf("optimize: %w", err)
	}
	return nil
}

func (s *store) Close(context.Context) error {
	if s.api == nil {
		return nil
	}
	api := s.api
	s.api = nil
	if err := api.Close(); err != nil {
		return fmt.Errorf("close home: %w", err)
	}
	return nil
}
