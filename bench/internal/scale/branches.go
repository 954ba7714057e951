package scale

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"snapfs/bench/internal/engine"
	"snapfs/bench/internal/suite"
	"snapfs/bench/internal/tree"
	"snapfs/sandbox"
)

// growBranches mounts branches of one snapshot, and uses each.
func growBranches(ctx context.Context, e *suite.Env, g *grown, n limits) error {
	return withHome(ctx, e, func(s *engine.Daemon, tmp string) error {
		source := filepath.Join(tmp, "tree")
		if err := tree.Make(ctx, source, 1000); err != nil {
			return err
		}
		if _, err := s.API.Create(ctx, sandbox.CreateRequest{Name: "w", Source: source}); err != nil {
			return err
		}
		snap, err := s.API.Snapshot(ctx, sandbox.SnapshotRequest{Workspace: "w", WaitStored: true})
		if err != nil {
			return err
		}
		before, err := s.Memory()
		if err != nil {
			return err
		}
		var took []time.Duration
		at := steps(n.branches)
		for i := 1; i <= n.branches; i++ {
			dir := filepath.Join(tmp, fmt.Sprintf("b%05d", i))
			start := time.Now()
			if _, err := s.API.Branch(
				ctx, sandbox.RestoreRequest{Snapshot: snap.ID, Mountpoint: dir, MakeMountpoint: true},
			); err != nil {
				return err
			}
			if _, err := os.ReadDir(dir); err != nil {
				return err
			}
			took = append(took, time.Since(start))
			e.Bar.Step("branches", i, n.branches)
			if i != at[0] {
				continue
			}
			at = at[1:]
			g.addTimes(int64(i), "branch and ls", took)
			took = nil
			now, err := s.Memory()
			if err != nil {
				return err
			}
			g.add(int64(i), "memory of each", "MiB", float64(now-before)/(1<<20)/float64(i))
		}
		for i := 1; i <= n.branches; i++ {
			dir := filepath.Join(tmp, fmt.Sprintf("b%05d", i))
			if err := os.WriteFile(filepath.Join(dir, "own"), []byte(dir), 0o644); err != nil {
				return err
			}
			if _, err := os.ReadFile(filepath.Join(dir, tree.FileName(i%1000))); err != nil {
				return err
			}
		}
		for i := 1; i <= n.branches; i++ {
			dir := filepath.Join(tmp, fmt.Sprintf("b%05d", i))
			if own, err := os.ReadFile(filepath.Join(dir, "own")); err != nil || string(own) != dir {
				return fmt.Errorf("branch %d does not have what was written to it: %w", i, err)
			}
		}
		now, err := s.Memory()
		if err != nil {
			return err
		}
		g.add(
			int64(n.branches), "memory of each, written to and read", "MiB",
			float64(now-before)/(1<<20)/float64(n.branches),
		)
		return nil
	})
}
