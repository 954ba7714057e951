package scale

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"snapfs/bench/internal/engine"
	"snapfs/bench/internal/report"
	"snapfs/bench/internal/snapfs"
	"snapfs/bench/internal/suite"
	"snapfs/bench/internal/tree"
	"snapfs/sandbox"
)

// steps are the sizes at which figures are taken: the tenths of n.
func steps(n int) []int {
	var at []int
	for i := 1; i <= 10; i++ {
		at = append(at, n*i/10)
	}
	return slices.Compact(at)
}

// growSnapshots takes snapshots of one mounted workspace in a row.
func growSnapshots(ctx context.Context, e *suite.Env, g *grown, n limits) error {
	return withHome(ctx, e, func(s *engine.Daemon, tmp string) error {
		source := filepath.Join(tmp, "tree")
		if err := tree.Make(ctx, source, 1000); err != nil {
			return err
		}
		h := snapfs.NewWorkspace(s, tmp)
		if _, err := s.API.Create(ctx, sandbox.CreateRequest{Name: "w", Source: source}); err != nil {
			return err
		}
		if _, err := s.API.Mount(
			ctx, sandbox.MountRequest{Workspace: "w", Mountpoint: h.Dir(), MakeMountpoint: true},
		); err != nil {
			return err
		}
		edits := tree.Edits{Files: 1000, Changed: 1}
		var took []time.Duration
		at := steps(n.snapshots)
		for i := 1; i <= n.snapshots; i++ {
			if err := edits.Edit(h.Dir()); err != nil {
				return err
			}
			start := time.Now()
			id, err := h.Snapshot(ctx, false)
			if err != nil {
				return err
			}
			took = append(took, time.Since(start))
			e.Bar.Step("snapshots", i, n.snapshots)
			if i != at[0] {
				continue
			}
			at = at[1:]
			g.addTimes(int64(i), "snapshot", took)
			took = nil
			start = time.Now()
			_, err = os.Lstat(filepath.Join(h.Dir(), fmt.Sprintf("no such name %d", i)))
			if !errors.Is(err, os.ErrNotExist) {
				return fmt.Errorf("look up what is not there: %w", err)
			}
			g.add(int64(i), "look-up", "ms", report.Milliseconds(time.Since(start)))
			start = time.Now()
			dir, err := h.Restore(ctx, id)
			if err == nil {
				_, err = os.ReadDir(dir)
			}
			g.add(int64(i), "restore and ls", "ms", report.Milliseconds(time.Since(start)))
			if err = errors.Join(err, h.Unrestore(ctx, dir)); err != nil {
				return err
			}
			if err := g.state(int64(i), s); err != nil {
				return err
			}
		}
		return nil
	})
}
