package latency

import (
	"context"
	"errors"
	"os"
	"time"

	"snapfs/bench/internal/chart"
	"snapfs/bench/internal/peers"
	"snapfs/bench/internal/report"
	"snapfs/bench/internal/snapfs"
	"snapfs/bench/internal/subject"
	"snapfs/bench/internal/suite"
)

// subjects are in the order of the tables.
func subjects() []subject.Subject[subject.Workspace] {
	return []subject.Subject[subject.Workspace]{
		snapfs.Workspaces(), peers.Subvolumes(), peers.Reflinks(), peers.Container(),
	}
}

// Rounds of a case: at least leastRounds, and then as many as fit into its time, at most mostRounds.
const (
	leastRounds = 3
	mostRounds  = 100
	caseTime    = 8 * time.Second
	longTime    = 15 * time.Second // with --full
)

// Suite times operations on workspaces and snapshots, as these grow.
func Suite() suite.Suite {
	return suite.Suite{
		Name: "latency", About: "Snapshot, restore, rollback, diff and delete beside btrfs, reflinks and squashfs",
		Subjects: func() []string { return subject.Names(subjects()) },
		Workloads: func() []string {
			var names []string
			for _, c := range settings(true) {
				names = append(names, c.name)
			}
			return names
		},
		Space: func(e *suite.Env) int64 {
			if e.Full {
				return 30 << 30
			}
			return 4 << 30
		},
		Draw: chart.OverCases(
			[]string{report.FilesCases, report.DepthCases},
			chart.Sizes{What: "files in the workspace", Metrics: drawn()},
			chart.Sizes{What: "snapshots in a row before", Metrics: drawn()},
		),
		Run: func(ctx context.Context, e *suite.Env, r *report.Report) error {
			if os.Geteuid() != 0 {
				return errors.New("needs root: it mounts")
			}
			cases := chosen(e)
			if !e.Full && len(e.Workloads) == 0 {
				r.Note(
					"%v for each case and system, up to 10000 files; "+
						"--full: %v, up to 1000000 files and 100000 changed ones",
					caseTime, longTime,
				)
			}
			e.Bar.Expect(float64(len(cases) * len(subjects())))
			for _, c := range cases {
				if err := c.run(ctx, e, r); err != nil {
					return err
				}
				if err := r.Keep(); err != nil {
					return err
				}
			}
			growth(r)
			return nil
		},
	}
}

// drawn are the metrics that are drawn.
func drawn() []string { return []string{"snapshot p50", "restore p50", "rollback p50"} }
