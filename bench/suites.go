package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// suite is one set of measurements.
type suite struct {
	name      string
	about     string
	long      bool             // part of `all` with --full only
	subjects  func() []string  // the names that --subject takes, in the order of the tables
	workloads func() []string  // the names that --workload takes the beginnings of; nil: it takes none
	space     func(*env) int64 // bytes of scratch it needs at its peak; nil: little
	run       func(ctx context.Context, e *env, r *report) error
}

// suites are all suites, in the order in which `all` runs them.
func suites() []suite {
	return []suite{storageSuite(), ioSuite(), latencySuite(), scaleSuite()}
}

// env is what a suite is run with; immutable once a suite runs.
type env struct {
	cache   string   // corpora
	out     string   // reports
	against string   // reports to compare with; "": none
	work    string   // scratch of this run, removed at its end
	corpora []string // names asked for; empty: the suite's default set
	full    bool
	trees   []string // directories that are the states of a corpus of their own
	repo    string   // git repository whose commits are the states of a corpus of its own
	every   int      // of repo: every so many-th commit
	limit   int      // of repo: at most so many states
	mirror  string   // of Debian's packages
	only    []string // subjects asked for; empty: all
	merge   bool     // keep what the report in out has of other cases and subjects
	resume  bool     // and measure only what it lacks
	remark  string   // how the run was taken, for the report
	noise   float64  // of comparisons, in percent
	bar     *progress
	guard   *guard // removes what is left of a run

	workloads []string // beginnings of names of workloads, cases or parts of a suite; empty: all
	rounds    int      // of io: how often each workload runs on each subject; 0: usualRounds, or once among all suites
	disk      string   // of io: see openDisk
	fixture   string   // of io: directory in which fixtures are kept between runs; "": they are not
}

// wants says whether a subject is asked for.
func (e *env) wants(subject string) bool {
	return len(e.only) == 0 || slices.Contains(e.only, subject)
}

// wantsWorkload says whether a workload is asked for.
func (e *env) wantsWorkload(name string) bool {
	return len(e.workloads) == 0 || slices.ContainsFunc(e.workloads, func(p string) bool { return strings.HasPrefix(name, p) })
}

// validate refuses names that no suite of the list knows.
func (e *env) validate(list []suite) error {
	var subjects, workloads []string
	for _, s := range list {
		subjects = append(subjects, s.subjects()...)
		if s.workloads != nil {
			workloads = append(workloads, s.workloads()...)
		}
	}
	slices.Sort(subjects)
	subjects = slices.Compact(subjects)
	for _, n := range e.only {
		if !slices.Contains(subjects, n) {
			return usagef("no subject %q; there are: %s", n, strings.Join(subjects, ", "))
		}
	}
	for _, n := range e.workloads {
		if !slices.ContainsFunc(workloads, func(w string) bool { return strings.HasPrefix(w, n) }) {
			return usagef("no workload begins with %q; there are: %s", n, strings.Join(workloads, ", "))
		}
	}
	for _, n := range e.corpora {
		if !slices.Contains(corpusNames(), n) {
			return usagef("no corpus %q; there are: %s", n, strings.Join(corpusNames(), ", "))
		}
	}
	if e.every < 1 || e.limit < 1 || e.rounds < 0 {
		return usagef("--every and --limit must be at least 1, --rounds must not be negative")
	}
	if !slices.Contains([]string{diskAuto, diskMemory, diskHere}, e.disk) {
		return usagef("--disk is %s, %s or %s", diskAuto, diskMemory, diskHere)
	}
	if e.noise < 0 {
		return usagef("--noise must not be negative")
	}
	if e.repo != "" && len(e.trees) > 0 {
		return usagef("--git and --tree exclude each other")
	}
	for _, t := range e.trees {
		if fi, err := os.Stat(t); err != nil || !fi.IsDir() {
			return usagef("--tree %s: not a directory", t)
		}
	}
	return nil
}

// roomFor refuses to start what the disk cannot hold.
func (e *env) roomFor(list []suite) error {
	var need int64
	what := ""
	for _, s := range list {
		if s.space == nil {
			continue
		}
		if n := s.space(e); n > need {
			need, what = n, s.name
		}
	}
	var st unix.Statfs_t
	if err := unix.Statfs(e.work, &st); err != nil {
		return fmt.Errorf("statfs %s: %w", e.work, err)
	}
	if free := int64(st.Bavail) * st.Bsize; free < need {
		return fmt.Errorf("%s needs %.1f GB in %s, of which %.1f GB are free: %.1f GB are missing (--cache and --work choose other disks)",
			what, float64(need)/1e9, filepath.Dir(e.work), float64(free)/1e9, float64(need-free)/1e9)
	}
	return nil
}

// runSuites runs suites one after the other. A suite that fails does not keep the next from running.
func runSuites(ctx context.Context, e *env, list ...suite) error {
	if err := e.validate(list); err != nil {
		return err
	}
	return e.withScratch(func() error {
		if err := e.roomFor(list); err != nil {
			return err
		}
		var failed []error
		for i, s := range list {
			e.bar.stage(i+1, len(list), s.name)
			if err := e.runSuite(ctx, s); err != nil {
				failed = append(failed, fmt.Errorf("%s: %w", s.name, err))
			}
			if ctx.Err() != nil {
				break
			}
		}
		return errors.Join(failed...)
	})
}

func (e *env) runSuite(ctx context.Context, s suite) error {
	r, err := newReport(ctx, s.name, e.remark)
	if err != nil {
		return err
	}
	r.dir = e.out
	start := time.Now()
	if e.merge || e.resume {
		if err := r.adopt(filepath.Join(e.out, s.name+".json")); err != nil {
			return err
		}
	}
	err = s.run(ctx, e, r)
	r.order(corpusNames(), s.subjects())
	r.Seconds = time.Since(start).Round(time.Second).Seconds()
	e.bar.clear()
	if len(r.Metrics) > 0 {
		// What was measured before an interrupt or a failure is kept: --resume goes on from there.
		r.print(os.Stdout)
		err = errors.Join(err, r.save())
	}
	if err == nil && r.failures > 0 {
		err = fmt.Errorf("%d measurements failed, see the notes", r.failures)
	}
	if before := filepath.Join(e.against, s.name+".json"); err == nil && e.against != "" {
		if missingFile(before) {
			fmt.Printf("\nnothing to compare with: there is no %s\n", before)
			return nil
		}
		err = compareReports(os.Stdout, before, filepath.Join(e.out, s.name+".json"), e.noise)
	}
	return err
}
