package suite

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"snapfs/bench/internal/corpora"
	"snapfs/bench/internal/engine"
	"snapfs/bench/internal/progress"
	"snapfs/bench/internal/scratch"
)

// Env is what a suite is run with; immutable once a suite runs.
type Env struct {
	Cache   string   // corpora
	Out     string   // reports
	Against string   // reports to compare with; "": none
	Work    string   // scratch of this run, removed at its end
	Corpora []string // names asked for; empty: the suite's default set
	Full    bool
	Trees   []string // directories that are the states of a corpus of their own
	Repo    string   // git repository whose commits are the states of a corpus of its own
	Every   int      // of Repo: every so many-th commit
	Limit   int      // of Repo: at most so many states
	Mirror  string   // of Debian's packages
	Only    []string // subjects asked for; empty: all
	Merge   bool     // keep what the report in Out has of other cases and subjects
	Resume  bool     // and measure only what it lacks
	Remark  string   // how the run was taken, for the report
	Noise   float64  // of comparisons, in percent
	Bar     *progress.Bar
	Guard   *scratch.Guard // removes what is left of a run

	Workloads []string // beginnings of names of workloads, cases or parts of a suite; empty: all
	Rounds    int      // of io: how often each workload runs on each subject; 0: 3 times, among all suites once. Of takeover: how often a daemon ends
	Disk      string   // of io: DiskAuto, DiskMemory or DiskHere
	Fixture   string   // of io: directory in which fixtures are kept between runs; "": they are not
}

// Shelf is where corpora are kept.
func (e *Env) Shelf() corpora.Shelf {
	return corpora.Shelf{Dir: e.Cache, Mirror: e.Mirror, Bar: e.Bar, Guard: e.Guard}
}

// Engine is snapfs, built into the scratch directory when it is first needed.
func (e *Env) Engine() engine.Engine { return engine.Engine{Binary: filepath.Join(e.Work, "snapfs")} }

// Wants reports whether a subject is asked for.
func (e *Env) Wants(subject string) bool {
	return len(e.Only) == 0 || slices.Contains(e.Only, subject)
}

// WantsWorkload reports whether a workload is asked for.
func (e *Env) WantsWorkload(name string) bool {
	return len(e.Workloads) == 0 ||
		slices.ContainsFunc(e.Workloads, func(p string) bool { return strings.HasPrefix(name, p) })
}

// WithScratch runs fn with a scratch directory that is gone afterwards. It first removes what runs that were killed
// left.
func (e *Env) WithScratch(fn func() error) (err error) {
	parent := e.Work
	if parent == "" {
		parent = e.Cache
	}
	for _, dir := range []string{parent, e.Cache} {
		if err := scratch.SweepAbandoned(dir); err != nil {
			return err
		}
	}
	dir, remove, err := e.Guard.Make(parent, "run-")
	if err != nil {
		return err
	}
	if err := os.Setenv(scratch.Mark, dir); err != nil {
		return errors.Join(err, remove())
	}
	e.Work, e.Bar = dir, progress.New(os.Stderr)
	err = fn()
	e.Bar.Clear()
	return errors.Join(err, remove())
}

// What uppers and lowers of mounted trees lie on.
const (
	DiskMemory = "memory"
	DiskHere   = "here"
	DiskAuto   = "auto"
)

// DefaultCache is where corpora are kept if nobody says where.
func DefaultCache() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		dir = os.TempDir()
	}
	return filepath.Join(dir, "snapfs-bench")
}
