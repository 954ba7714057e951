package latency

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/bench/internal/report"
	"snapfs/bench/internal/scratch"
	"snapfs/bench/internal/subject"
	"snapfs/bench/internal/suite"
	"snapfs/bench/internal/tree"
)

// setting is one kind of workspace that all systems get.
type setting struct {
	name    string
	files   int // in the workspace
	changed int // between two snapshots
	depth   int // snapshots in a row that come before
	only    int // the first so many subjects
}

// chosen are those asked for by --workload, or the usual ones.
func chosen(e *suite.Env) []setting {
	if len(e.Workloads) == 0 {
		return settings(e.Full)
	}
	return slices.DeleteFunc(settings(true), func(c setting) bool { return !e.WantsWorkload(c.name) })
}

func settings(full bool) []setting {
	all := []setting{{files: 1000}, {files: 10_000}}
	if full {
		all = append(all, setting{files: 100_000}, setting{files: 500_000}, setting{files: 1_000_000})
	}
	for i := range all {
		all[i].name, all[i].changed = fmt.Sprintf("%d files", all[i].files), 1
	}
	depths, changes := []int{10, 100, 1000}, []int{1000, 10_000}
	if full {
		changes = append(changes, 100_000)
	}
	for _, d := range depths {
		all = append(all, setting{fmt.Sprintf("depth %d", d), 1000, 1, d, 2})
	}
	for _, n := range changes {
		all = append(all, setting{fmt.Sprintf("%d changed", n), max(n, 1000), n, 0, 2})
	}
	return all
}

// run measures a case on all systems.
func (c setting) run(ctx context.Context, e *suite.Env, r *report.Report) error {
	source := filepath.Join(e.Work, "tree")
	if err := tree.Make(ctx, source, c.files); err != nil {
		return fmt.Errorf("make a tree of %d files: %w", c.files, err)
	}
	r.About[c.name] = fmt.Sprintf(
		"%d files in the workspace, %d changed between two snapshots, %d snapshots in a row before; "+
			"p99 of fewer than 100 rounds is the slowest",
		c.files, c.changed, c.depth,
	)
	for i, k := range subjects() {
		if c.only == 0 || i < c.only {
			if err := c.measureOn(ctx, e, r, k, source); err != nil {
				return err
			}
		}
		e.Bar.Did(1)
	}
	return os.RemoveAll(source)
}

// measureOn measures the setting on one system; the report says if it cannot be.
func (c setting) measureOn(
	ctx context.Context, e *suite.Env, r *report.Report, k subject.Subject[subject.Workspace], source string,
) error {
	if len(subject.Available([]subject.Subject[subject.Workspace]{k}, e.Wants, r.Note)) == 0 {
		return nil
	}
	if k.Most > 0 && c.files > k.Most {
		r.Note("%s: not measured with more than %d files: a round takes minutes", k.Name, k.Most)
		return nil
	}
	e.Bar.Say("%s, %s", c.name, k.Name)
	err := c.measure(ctx, e, r, k, source)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		r.Fail("%s: %s failed: %v", c.name, k.Name, err)
	}
	return nil
}

// measure opens a system with the tree and measures its operations.
func (c setting) measure(
	ctx context.Context, e *suite.Env, r *report.Report, k subject.Subject[subject.Workspace], source string,
) (err error) {
	tmp, err := os.MkdirTemp(e.Work, "latency-")
	if err != nil {
		return err
	}
	h, err := k.Open(ctx, subject.Site{Dir: tmp, Tree: source, Engine: e.Engine()})
	if err != nil {
		return errors.Join(err, os.RemoveAll(tmp))
	}
	defer func() { err = errors.Join(err, scratch.CloseAndRemove(ctx, h, tmp)) }()
	m := &run{
		setting: c, h: h, edits: tree.Edits{Files: c.files, Changed: c.changed}, took: map[string][]time.Duration{},
	}
	for i := range c.depth {
		e.Bar.Step(c.name+": snapshots", i, c.depth)
		if err := m.edits.Edit(m.h.Dir()); err != nil {
			return err
		}
		if _, err := h.Snapshot(ctx, false); err != nil {
			return err
		}
	}
	// What was just written is not the first round's to wait for.
	unix.Sync()
	limit := caseTime
	if e.Full {
		limit = longTime
	}
	start := time.Now()
	for i := 0; i < mostRounds && (i < leastRounds || time.Since(start) < limit); i++ {
		if err := m.round(ctx); err != nil {
			return err
		}
		e.Bar.Step(c.name+", "+k.Name, i, mostRounds)
	}
	m.report(r, k.Name)
	return nil
}
