package takeover

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"snapfs/bench/internal/chart"
	"snapfs/bench/internal/engine"
	"snapfs/bench/internal/report"
	"snapfs/bench/internal/suite"
	"snapfs/bench/internal/tree"
)

// rounds is how often a daemon is ended in a case, by default.
const rounds = 20

// setting is one kind of home and of work in it.
type setting struct {
	name, about string
	mounts      int
	snapshots   int // in the home
	options     []string
	busy        bool // programs work in the first workspace
	sealing     bool // snapshots are made all the time
}

func settings() []setting {
	one := setting{mounts: 1}
	of := func(name, about string, change func(*setting)) setting {
		s := one
		s.name, s.about = name, about
		change(&s)
		return s
	}
	return []setting{
		of("1 mount", "nothing else goes on", func(*setting) {}),
		of("20 mounts", "of branches of one snapshot", func(s *setting) { s.mounts = 20 }),
		of("200 mounts", "of branches of one snapshot", func(s *setting) { s.mounts = 200 }),
		of("2000 snapshots", "in the home, of one workspace, one changed file each", func(s *setting) { s.snapshots = 2000 }),
		of("writeback", "a mount with write-back", func(s *setting) { s.options = []string{"-o", "writeback"} }),
		of("busy", "four programs make, rename and remove files", func(s *setting) { s.busy = true }),
		of("sealing", "and snapshots are made all the time", func(s *setting) { s.busy, s.sealing = true, true }),
	}
}

// Suite measures the wait of programs.
func Suite() suite.Suite {
	return suite.Suite{
		Name:  "takeover",
		About: "How long programs wait when the daemon is killed, replaced or upgraded",
		Long:  true,
		Subjects: func() []string {
			var names []string
			for _, end := range ends {
				names = append(names, end.name)
			}
			return names
		},
		Workloads: func() []string {
			var names []string
			for _, s := range settings() {
				names = append(names, s.name)
			}
			return names
		},
		Space: func(*suite.Env) int64 { return 1 << 30 },
		Draw:  chart.Bars("longest call p50"),
		Run: func(ctx context.Context, e *suite.Env, r *report.Report) error {
			if os.Geteuid() != 0 {
				return errors.New("needs root: it mounts")
			}
			if err := e.Engine().Build(ctx); err != nil {
				return err
			}
			for _, s := range settings() {
				if !e.WantsWorkload(s.name) {
					continue
				}
				r.About[s.name] = s.about
				for _, end := range ends {
					if !e.Wants(end.name) {
						continue
					}
					err := s.run(ctx, e, r, end)
					if err = errors.Join(err, r.Keep()); err != nil {
						return fmt.Errorf("%s, %s: %w", s.name, end.name, err)
					}
				}
			}
			return nil
		},
	}
}

// run measures a setting with one kind of end.
func (s setting) run(ctx context.Context, e *suite.Env, r *report.Report, end end) (err error) {
	tmp, err := os.MkdirTemp(e.Work, "takeover-")
	if err != nil {
		return err
	}
	h := &engine.Home{Engine: e.Engine(), Dir: filepath.Join(tmp, "home"), KeepMounts: true}
	dirs, err := s.prepare(ctx, h, tmp)
	if err == nil {
		err = s.measure(ctx, e, r, end, h, dirs)
	}
	if err := errors.Join(err, h.Run(context.WithoutCancel(ctx), nil, "stop")); err != nil {
		return err // what may be mounted must not be removed; the run's end does that
	}
	return os.RemoveAll(tmp)
}

// prepare makes the home, and gives the mountpoints.
func (s setting) prepare(ctx context.Context, h *engine.Home, tmp string) (dirs []string, err error) {
	source := filepath.Join(tmp, "tree")
	if err := tree.Make(ctx, source, 1000); err != nil {
		return nil, err
	}
	if err := h.StoreTree(ctx, source); err != nil {
		return nil, err
	}
	for i := range s.mounts {
		dir := filepath.Join(tmp, fmt.Sprintf("w%03d", i))
		args := append([]string{"branch", h.Snapshot, dir, "--name", filepath.Base(dir), "--transport", "dev"}, s.options...)
		if err := h.Run(ctx, nil, args...); err != nil {
			return nil, err
		}
		dirs = append(dirs, dir)
	}
	for i := range s.snapshots {
		if err := os.WriteFile(filepath.Join(dirs[0], tree.FileName(i%1000)), []byte(fmt.Sprint("changed ", i)), 0o644); err != nil {
			return nil, err
		}
		if err := h.Run(ctx, nil, "snapshot", "w000", "--no-sync"); err != nil {
			return nil, err
		}
	}
	return dirs, nil
}

// measure ends the daemon over and over, while programs work.
func (s setting) measure(ctx context.Context, e *suite.Env, r *report.Report, end end, h *engine.Home, dirs []string) (err error) {
	n := e.Rounds
	if n == 0 {
		n = rounds
	}
	p, err := newProbe(dirs[0])
	if err != nil {
		return err
	}
	others := startWork(ctx, s, *h, dirs[0])
	defer func() { err = errors.Join(err, others.stop(), p.stop()) }()
	var stalls, all []float64
	for i := range n {
		p.take()
		start := time.Now()
		if err := end.do(ctx, h); err != nil {
			return err
		}
		for _, dir := range dirs {
			if err := ask(dir); err != nil {
				return err
			}
		}
		all = append(all, report.Milliseconds(time.Since(start)))
		stalls = append(stalls, report.Milliseconds(p.take()))
		e.Bar.Step(s.name+", "+end.name, i+1, n)
		if err := pause(ctx, 300*time.Millisecond); err != nil { // as much is going on as before
			return err
		}
	}
	add := func(name, unit string, v float64, samples ...float64) {
		r.Add(report.Metric{Case: s.name, Subject: end.name, Name: name, Unit: unit, Value: v, Samples: samples})
	}
	add("longest call p50", "ms", report.Median(stalls), stalls...)
	add("longest call max", "ms", slices.Max(stalls))
	if end.name == killed { // of the others it has what comes before the wait, too
		add("all mounts answer p50", "ms", report.Median(all), all...)
	}
	daemon, holder, err := memory(ctx, h)
	if err != nil {
		return err
	}
	add("memory of the daemon", "MiB", daemon)
	add("memory of the holder", "MiB", holder)
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
