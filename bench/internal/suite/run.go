package suite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/bench/internal/chart"
	"snapfs/bench/internal/corpora"
	"snapfs/bench/internal/report"
)

// roomFor refuses to start what the disk cannot hold.
func (e *Env) roomFor(list []Suite) error {
	var need int64
	what := ""
	for _, s := range list {
		if s.Space == nil {
			continue
		}
		if n := s.Space(e); n > need {
			need, what = n, s.Name
		}
	}
	var st unix.Statfs_t
	if err := unix.Statfs(e.Work, &st); err != nil {
		return fmt.Errorf("statfs %s: %w", e.Work, err)
	}
	if free := int64(st.Bavail) * st.Bsize; free < need {
		return fmt.Errorf(
			"%s needs %.1f GB in %s, of which %.1f GB are free: "+
				"%.1f GB are missing (--cache and --work choose other disks)",
			what, float64(need)/1e9, filepath.Dir(e.Work), float64(free)/1e9, float64(need-free)/1e9,
		)
	}
	return nil
}

// Run runs suites one after the other. A suite that fails does not keep the next from running.
func Run(ctx context.Context, e *Env, list ...Suite) error {
	if err := e.Validate(list); err != nil {
		return err
	}
	return e.WithScratch(func() error {
		if err := e.roomFor(list); err != nil {
			return err
		}
		var failed []error
		for i, s := range list {
			e.Bar.Stage(i+1, len(list), s.Name)
			if err := e.runSuite(ctx, s); err != nil {
				failed = append(failed, fmt.Errorf("%s: %w", s.Name, err))
			}
			if ctx.Err() != nil {
				break
			}
		}
		return errors.Join(failed...)
	})
}

func (e *Env) runSuite(ctx context.Context, s Suite) error {
	r, err := report.New(ctx, s.Name, e.Remark)
	if err != nil {
		return err
	}
	r.Dir = e.Out
	start := time.Now()
	if e.Merge || e.Resume {
		if err := r.Adopt(filepath.Join(e.Out, s.Name+".json")); err != nil {
			return err
		}
	}
	err = s.Run(ctx, e, r)
	if err == nil && s.Judge != nil {
		s.Judge(r)
	}
	r.Order(corpora.Names(), s.Subjects())
	r.Seconds = time.Since(start).Round(time.Second).Seconds()
	e.Bar.Clear()
	if len(r.Metrics) > 0 {
		// What was measured before an interrupt or a failure is kept: --resume goes on from there.
		r.Print(os.Stdout)
		err = errors.Join(err, save(r, s))
	}
	if err == nil && r.Failures > 0 {
		err = fmt.Errorf("%d measurements failed, see the notes", r.Failures)
	}
	if before := filepath.Join(e.Against, s.Name+".json"); err == nil && e.Against != "" {
		if !fileExists(before) {
			fmt.Printf("\nnothing to compare with: there is no %s\n", before)
			return nil
		}
		err = report.Compare(os.Stdout, before, filepath.Join(e.Out, s.Name+".json"), e.Noise)
	}
	return err
}

// save writes a report and its charts.
func save(r *report.Report, s Suite) error {
	if err := r.Keep(); err != nil {
		return err
	}
	return chart.Save(r, s.Draw)
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
