package scale

import (
	"context"
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

// storedEdit is the metric of a snapshot that has one line more.
const storedEdit = "one-line edit, snapshot until stored"

// growFiles stores trees of more and more files, and edits a line in each.
func growFiles(ctx context.Context, e *suite.Env, g *grown, n limits) error {
	for _, files := range n.files {
		e.Bar.Say("a tree of %d files", files)
		err := withHome(ctx, e, func(s *engine.Daemon, tmp string) error {
			source := filepath.Join(tmp, "tree")
			if err := tree.Make(ctx, source, files); err != nil {
				return err
			}
			start := time.Now()
			if _, err := s.API.Create(ctx, sandbox.CreateRequest{Name: "w", Source: source}); err != nil {
				return err
			}
			g.add(int64(files), "create", "ms", report.Milliseconds(time.Since(start)))
			h := snapfs.NewWorkspace(s, tmp)
			if _, err := s.API.Mount(
				ctx, sandbox.MountRequest{Workspace: "w", Mountpoint: h.Dir(), MakeMountpoint: true},
			); err != nil {
				return err
			}
			edits := tree.Edits{Files: files, Changed: 1}
			var took []time.Duration
			for range 9 {
				if err := edits.Edit(h.Dir()); err != nil {
					return err
				}
				start := time.Now()
				if _, err := s.API.Snapshot(
					ctx, sandbox.SnapshotRequest{Workspace: "w", WaitStored: true},
				); err != nil {
					return err
				}
				took = append(took, time.Since(start))
			}
			slices.Sort(took)
			g.add(int64(files), storedEdit, "ms", report.Milliseconds(took[len(took)/2]))
			return g.state(int64(files), s)
		})
		if err != nil {
			return err
		}
	}
	return nil
}
