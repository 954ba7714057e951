package scale

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"snapfs/bench/internal/chart"
	"snapfs/bench/internal/engine"
	"snapfs/bench/internal/report"
	"snapfs/bench/internal/snapfs"
	"snapfs/bench/internal/suite"
	"snapfs/sandbox"
)

// daysVariable is the environment variable with the number of days, if it is not to be a month or a year.
const daysVariable = "SNAPFS_BENCH_DAYS"

// limits say how far the suite goes.
type limits struct {
	snapshots, branches int
	files               []int
	logical, fileSize   int64 // bytes: of all files, and of each
	days, turns         int   // of work, and of each day
	tiny, tinyOnDisk    []int // files
	mountedSteps        int
	mountedBytes        int64
	imported            int // files
}

func limitsOf(full bool) limits {
	n := limits{
		snapshots: 500, branches: 200,
		files:   []int{1000, 10_000, 30_000},
		logical: 2 << 30, fileSize: 256 << 20,
		days: 30, turns: 40,
		tiny: []int{100_000, 480_000}, tinyOnDisk: []int{30_000, 100_000},
		mountedSteps: 80, mountedBytes: 20 << 20,
		imported: 20_000,
	}
	if full {
		n = limits{
			snapshots: 10_000, branches: 1000,
			files:   []int{1000, 10_000, 100_000, 1_000_000},
			logical: 100 << 30, fileSize: 1 << 30,
			days: 365, turns: 40,
			tiny:         []int{100_000, 480_000, 1_600_000, 5_000_000},
			tinyOnDisk:   []int{100_000, 480_000, 1_600_000},
			mountedSteps: 80, mountedBytes: 20 << 20,
			imported: 100_000,
		}
	}
	if days, err := strconv.Atoi(os.Getenv(daysVariable)); err == nil && days > 0 {
		n.days = days
	}
	return n
}

// Suite shows time, memory and store as work grows.
func Suite() suite.Suite {
	return suite.Suite{
		Name:     "scale",
		About:    "Time, memory and size of the store as snapshots, mounts, files and bytes grow",
		Long:     true,
		Subjects: func() []string { return []string{"snapfs"} },
		Workloads: func() []string {
			var names []string
			for _, p := range parts() {
				names = append(names, p.name)
			}
			return names
		},
		Space: func(e *suite.Env) int64 {
			if e.Full {
				return 30 << 30
			}
			return 4 << 30
		},
		Draw: chart.OverSubjects(drawn()...),
		Run: func(ctx context.Context, e *suite.Env, r *report.Report) error {
			if os.Geteuid() != 0 {
				return errors.New("needs root: it mounts")
			}
			for _, p := range parts() {
				if !e.WantsWorkload(p.name) {
					continue
				}
				g := newGrown(r, p.name)
				err := p.run(ctx, e, g, limitsOf(e.Full))
				// What was reached before an interrupt is fitted, too.
				g.fit(p.about)
				if err := errors.Join(err, r.Keep()); err != nil {
					return fmt.Errorf("%s: %w", p.name, err)
				}
			}
			return nil
		},
	}
}

// part lets one kind of work grow.
type part struct {
	name, about string
	drawn       []string // metrics
	run         func(context.Context, *suite.Env, *grown, limits) error
}

func parts() []part {
	return []part{
		{
			"snapshots in a row",
			"one changed file each, 1000 files in the workspace, which stays mounted; " +
				"times of the snapshots since the row above",
			[]string{"snapshot p50", "memory", "store"},
			growSnapshots,
		},
		{
			"mounted branches",
			"of one snapshot of 1000 files, in one daemon, all mounted; then each is written to and read; " +
				"times of the branches since the row above",
			[]string{"branch and ls p50", "branch and ls p99", "memory of each"},
			growBranches,
		},
		{"files", "small text files; the edit is the median of 9", []string{"create", storedEdit, "store"}, growFiles},
		{
			"logical MiB", "large files, one MiB in a hundred new, each stored before the next is written",
			[]string{"snapshot until stored", "memory", "store"},
			growBytes,
		},
		{
			"days",
			"of an agent's turns with a snapshot of each; every night all but some are deleted, and the home is collected " +
				"and optimized, mounted; what is moved, freed and timed is of the time since the row above",
			[]string{"bytes of records", "written by what was new", "snapshot p99.9"},
			growDays,
		},
		{
			"tiny files", "of 100 bytes, all different, generated: writer and store alone, in one process",
			[]string{"files/s of all", "files/s of the last tenth", "peak memory"},
			growTiny,
		},
		{
			"imported tiny files", "of 100 bytes, all different, imported by a daemon",
			[]string{"files/s", "peak memory"},
			growTinyOnDisk,
		},
		{
			"mounted space", "of 20 MiB of random files, half of them rewritten before each snapshot; every tenth is " +
				"followed by prune --keep-last 2 and gc; beside a fresh store of what is kept",
			[]string{"store", "fresh store", "pinned"},
			growMounted,
		},
		{
			"mounted space in use", "as mounted space, with files open and mapped, one of them deleted, and a branch " +
				"of the snapshot in the middle, mounted, too",
			[]string{"store", "fresh store", "pinned"},
			growMountedBusy,
		},
		{
			"first import", "a tree like those of sources (with --tree another one), out of the kernel's cache, by snapfs and " +
				"other programs, on one processor and on all",
			nil,
			importFirst,
		},
	}
}

// drawn is a row of panels for each part.
func drawn() []chart.Sizes {
	var rows []chart.Sizes
	for _, p := range parts() {
		if len(p.drawn) > 0 {
			rows = append(rows, chart.Sizes{What: p.name, Metrics: p.drawn})
		}
	}
	return rows
}

// withHome runs fn with a daemon on a home of its own.
func withHome(ctx context.Context, e *suite.Env, fn func(s *engine.Daemon, tmp string) error) (err error) {
	tmp, err := os.MkdirTemp(e.Work, "scale-")
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

// mountNew makes an empty workspace, w, and mounts it.
func mountNew(ctx context.Context, s *engine.Daemon, tmp string) (*snapfs.Workspace, error) {
	h := snapfs.NewWorkspace(s, tmp)
	if _, err := s.API.Create(ctx, sandbox.CreateRequest{Name: "w"}); err != nil {
		return nil, err
	}
	if _, err := s.API.Mount(
		ctx, sandbox.MountRequest{Workspace: "w", Mountpoint: h.Dir(), MakeMountpoint: true},
	); err != nil {
		return nil, err
	}
	return h, nil
}
