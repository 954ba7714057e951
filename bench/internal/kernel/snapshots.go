package kernel

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"snapfs/bench/internal/caches"
	"snapfs/bench/internal/engine"
	"snapfs/bench/internal/report"
	"snapfs/bench/internal/suite"
	"snapfs/bench/internal/tree"
	"snapfs/sandbox"
	"snapfs/sandbox/api"
)

// Names of metrics that something is demanded of.
const (
	snapshotP50 = "snapshot p50"
	held        = "writers held back"
)

// changedSize is how long a changed file is, in bytes.
const changedSize = 8 << 10

// mountWorkspace makes the workspace "w" of a tree, stores it, and mounts it with the engine of a subject.
func mountWorkspace(ctx context.Context, s *engine.Daemon, subject, source, dir string) error {
	if _, err := s.API.Create(ctx, sandbox.CreateRequest{Name: "w", Source: source}); err != nil {
		return err
	}
	if _, err := s.API.Snapshot(ctx, sandbox.SnapshotRequest{Workspace: "w", WaitStored: true}); err != nil {
		return err
	}
	used := api.EngineFUSE
	if subject == kernelEngine {
		used = api.EngineKernel
	}
	_, err := s.API.Mount(ctx, sandbox.MountRequest{
		Workspace: "w", Mountpoint: dir, MakeMountpoint: true, MountOptions: sandbox.MountOptions{Engine: used},
	})
	return err
}

// unmountWorkspace unmounts it: a daemon that ends leaves directories guarded, for the next one.
func unmountWorkspace(ctx context.Context, s *engine.Daemon) error {
	_, err := s.API.Unmount(context.WithoutCancel(ctx), sandbox.UnmountRequest{Workspace: "w"})
	return err
}

// measureEdit takes snapshots after edits of one file of the upper.
func measureEdit(ctx context.Context, e *suite.Env, r *results, n limits) error {
	return withHome(ctx, e, func(s *engine.Daemon, tmp string) (err error) {
		source, dir := filepath.Join(tmp, "tree"), filepath.Join(tmp, "mnt")
		if err := tree.Make(ctx, source, n.files); err != nil {
			return err
		}
		if err := mountWorkspace(ctx, s, r.subject, source, dir); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, unmountWorkspace(ctx, s)) }()
		upper := filepath.Join(dir, "upper")
		if err := tree.Make(ctx, upper, n.upper); err != nil {
			return err
		}
		start := time.Now()
		if _, err := s.API.Snapshot(ctx, sandbox.SnapshotRequest{Workspace: "w", WaitStored: true}); err != nil {
			return err
		}
		r.add("first snapshot, stored", "ms", report.Milliseconds(time.Since(start)))
		edits := &tree.Edits{Files: n.upper, Changed: 1}
		var took, stored []float64
		for i := range n.rounds {
			if err := edits.Edit(upper); err != nil {
				return err
			}
			caches.Flush()
			start := time.Now()
			if _, err := s.API.Snapshot(ctx, sandbox.SnapshotRequest{Workspace: "w", NoSync: true}); err != nil {
				return err
			}
			took = append(took, report.Milliseconds(time.Since(start)))
			if err := edits.Edit(upper); err != nil {
				return err
			}
			start = time.Now()
			if _, err := s.API.Snapshot(ctx, sandbox.SnapshotRequest{Workspace: "w", WaitStored: true}); err != nil {
				return err
			}
			stored = append(stored, report.Milliseconds(time.Since(start)))
			e.Bar.Step("edits, "+r.subject, i+1, n.rounds)
		}
		r.add(snapshotP50, "ms", report.Median(took), took...)
		r.add("snapshot, stored p50", "ms", report.Median(stored), stored...)
		return addHeld(ctx, s, r)
	})
}

func addHeld(ctx context.Context, s *engine.Daemon, r *results) error {
	d, err := s.Held(ctx)
	if err == nil {
		r.add(held, "ms", report.Milliseconds(d))
	}
	return err
}

// measureChanged takes snapshots of many changed files.
func measureChanged(ctx context.Context, e *suite.Env, r *results, n limits) error {
	return withHome(ctx, e, func(s *engine.Daemon, tmp string) (err error) {
		source, dir := filepath.Join(tmp, "tree"), filepath.Join(tmp, "mnt")
		if err := tree.Make(ctx, source, 1000); err != nil {
			return err
		}
		if err := mountWorkspace(ctx, s, r.subject, source, dir); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, unmountWorkspace(ctx, s)) }()
		var files, bytes []float64
		for i := range n.rounds {
			changed := filepath.Join(dir, "changed")
			if err := makeRandom(changed, n.changed, changedSize, byte(i)); err != nil {
				return err
			}
			caches.Flush()
			start := time.Now()
			if _, err := s.API.Snapshot(ctx, sandbox.SnapshotRequest{Workspace: "w", WaitStored: true}); err != nil {
				return err
			}
			took := time.Since(start).Seconds()
			files = append(files, float64(n.changed)/took)
			bytes = append(bytes, float64(n.changed)*changedSize/1e6/took)
			e.Bar.Step(fmt.Sprintf("%d changed files, %s", n.changed, r.subject), i+1, n.rounds)
		}
		r.addMore("files/s", "1/s", report.Median(files), files...)
		r.addMore("throughput", "MB/s", report.Median(bytes), bytes...)
		return addHeld(ctx, s, r)
	})
}
