package suite

import (
	"context"

	"snapfs/bench/internal/chart"
	"snapfs/bench/internal/report"
)

// Suite is one set of measurements.
type Suite struct {
	Name      string
	About     string
	Long      bool                 // part of `all` with --full only
	Subjects  func() []string      // the names that --subject takes, in the order of the tables
	Workloads func() []string      // the names that --workload takes the beginnings of; nil: it takes none
	Space     func(*Env) int64     // bytes of scratch it needs at its peak; nil: little
	Draw      chart.Drawing        // its charts
	Judge     func(*report.Report) // compares figures with what must be reached; nil: nothing is demanded
	Run       func(ctx context.Context, e *Env, r *report.Report) error
}
