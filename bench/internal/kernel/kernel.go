package kernel

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"snapfs/bench/internal/chart"
	"snapfs/bench/internal/engine"
	"snapfs/bench/internal/report"
	"snapfs/bench/internal/suite"
)

// Names of subjects.
const (
	kernelEngine = "snapfs kernel"
	fuseEngine   = "snapfs fuse"
	overlayfs    = report.Baseline
)

// limits say how far the suite goes.
type limits struct {
	branches     int
	files, upper int // of the tree below and in the upper, when one file is edited
	changed      int // files of a larger snapshot
	rounds       int
}

func limitsOf(full bool) limits {
	if full {
		return limits{branches: 1000, files: 500_000, upper: 50_000, changed: 10_000, rounds: 9}
	}
	return limits{branches: 200, files: 50_000, upper: 5000, changed: 10_000, rounds: 5}
}

// part is one kind of work, on each of its subjects.
type part struct {
	name, about string
	subjects    []string
	run         func(context.Context, *suite.Env, *results, limits) error
}

func parts() []part {
	return []part{
		{
			"branches", "of one snapshot of 100 MB in 2,000 files, all mounted, all of it read in each of them",
			[]string{kernelEngine, overlayfs},
			measureBranches,
		},
		{
			"one edit", "of one file; there are 500,000 files below and 50,000 in the upper, a tenth of that without --full",
			[]string{kernelEngine, fuseEngine},
			measureEdit,
		},
		{
			"changed files", "10,000 of 8 KiB, random, since the snapshot before; until they are stored",
			[]string{kernelEngine, fuseEngine},
			measureChanged,
		},
	}
}

// results takes the figures of one part for one subject.
type results struct {
	report        *report.Report
	part, subject string
}

func (r *results) add(name, unit string, v float64, samples ...float64) {
	r.report.Add(report.Metric{Case: r.part, Subject: r.subject, Name: name, Unit: unit, Value: v, Samples: samples})
}

// addMore is add for what is better if there is more of it.
func (r *results) addMore(name, unit string, v float64, samples ...float64) {
	r.report.Add(report.Metric{
		Case: r.part, Subject: r.subject, Name: name, Unit: unit, Value: v, More: true, Samples: samples,
	})
}

// Suite measures what the kernel engine shares and how long its snapshots take.
func Suite() suite.Suite {
	return suite.Suite{
		Name:     "kernel",
		About:    "What mounts of the kernel engine share, and snapshots of what they write",
		Long:     true,
		Subjects: func() []string { return []string{overlayfs, fuseEngine, kernelEngine} },
		Workloads: func() []string {
			var names []string
			for _, p := range parts() {
				names = append(names, p.name)
			}
			return names
		},
		Space: func(e *suite.Env) int64 {
			if e.Full {
				return 10 << 30
			}
			return 3 << 30
		},
		Draw:  chart.Bars("mount p50", "snapshot p50"),
		Judge: judge,
		Run: func(ctx context.Context, e *suite.Env, r *report.Report) error {
			if os.Geteuid() != 0 {
				return errors.New("needs root: it mounts, and drops the kernel's caches")
			}
			n := limitsOf(e.Full)
			if e.Rounds > 0 {
				n.rounds = e.Rounds
			}
			for _, p := range parts() {
				if !e.WantsWorkload(p.name) {
					continue
				}
				r.About[p.name] = p.about
				for _, s := range p.subjects {
					if !e.Wants(s) {
						continue
					}
					err := p.run(ctx, e, &results{r, p.name, s}, n)
					if err := errors.Join(err, r.Keep()); err != nil {
						return fmt.Errorf("%s on %s: %w", p.name, s, err)
					}
				}
			}
			return nil
		},
	}
}

// withHome runs fn with a daemon on a home of its own.
func withHome(ctx context.Context, e *suite.Env, fn func(s *engine.Daemon, tmp string) error) error {
	tmp, err := os.MkdirTemp(e.Work, "kernel-")
	if err != nil {
		return err
	}
	s, err := engine.Start(ctx, e.Engine(), filepath.Join(tmp, "home"))
	if err != nil {
		return errors.Join(err, os.RemoveAll(tmp))
	}
	if err := errors.Join(fn(s, tmp), s.Stop()); err != nil {
		return err // what may be mounted must not be removed; the run's end does that
	}
	return os.RemoveAll(tmp)
}
