package storage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"snapfs/bench/internal/corpora"
	"snapfs/bench/internal/cost"
	"snapfs/bench/internal/report"
	"snapfs/bench/internal/scratch"
	"snapfs/bench/internal/subject"
	"snapfs/bench/internal/suite"
	"snapfs/bench/internal/tree"
)

// measurement is one subject on one history.
type measurement struct {
	e      *suite.Env
	r      *report.Report
	h      corpora.History
	infos  []tree.Info
	p      subject.Subject[subject.Store]
	k      subject.Store
	dir    string  // scratch
	worked float64 // units counted in the progress bar
}

func (m *measurement) add(name, unit string, value float64) {
	m.r.Add(report.Metric{Case: m.h.Name, Subject: m.p.Name, Name: name, Unit: unit, Value: value})
}

func (m *measurement) did(units float64) {
	m.worked += units
	m.e.Bar.Did(units)
}

// measureSubject stores, restores and thins one history with one subject, and always cleans up after it.
func measureSubject(
	ctx context.Context, e *suite.Env, r *report.Report, h corpora.History, infos []tree.Info,
	p subject.Subject[subject.Store],
) (err error) {
	m := &measurement{e: e, r: r, h: h, infos: infos, p: p}
	if m.dir, err = os.MkdirTemp(e.Work, "peer-"); err != nil {
		return fmt.Errorf("make repository: %w", err)
	}
	defer func() {
		m.did(allWork(infos) - m.worked)
		err = errors.Join(err, scratch.Discard(m.dir))
	}()
	if m.k, err = m.open(ctx, "first"); err != nil {
		return err
	}
	defer func() {
		// An interrupted run must still unmount.
		clean, cancel := scratch.CleanUp(ctx)
		defer cancel()
		err = errors.Join(err, m.k.Close(clean))
	}()
	phases := []func(context.Context) error{m.store, m.optimize, m.restore, m.half}
	if e.Full {
		phases = append(phases, m.newest)
	}
	for _, phase := range phases {
		if err := phase(ctx); err != nil {
			return err
		}
	}
	return nil
}

// open opens the subject in a directory of its own.
func (m *measurement) open(ctx context.Context, name string) (subject.Store, error) {
	dir := filepath.Join(m.dir, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make repository: %w", err)
	}
	return m.p.Open(ctx, subject.Site{Dir: dir})
}

// store stores all states.
func (m *measurement) store(ctx context.Context) error {
	var sum cost.Cost
	prev := ""
	for i, s := range m.h.States {
		m.e.Bar.Step(m.p.Name+" stores "+m.h.Name, i, len(m.h.States))
		c, err := cost.Measure(func() error { return m.k.Store(ctx, i, prev, s) })
		if err != nil {
			return fmt.Errorf("store state %d: %w", i, err)
		}
		sum.Add(c)
		prev = s
		m.did(workOf(m.infos[i]))
	}
	m.e.Bar.Step(m.p.Name+" finishes "+m.h.Name, 0, 0)
	c, err := cost.Measure(func() error { return m.k.Settle(ctx) })
	if err != nil {
		return fmt.Errorf("settle: %w", err)
	}
	sum.Add(c)
	n, err := m.k.Size(ctx)
	if err != nil {
		return err
	}
	m.add("stored", "MB", float64(n)/1e6)
	m.add("store cpu", "s", sum.CPU.Seconds())
	m.add("store wall", "s", sum.Wall.Seconds())
	return nil
}

// optimize lets a subject that can pack anew do so.
func (m *measurement) optimize(ctx context.Context) error {
	o, ok := m.k.(subject.Optimizer)
	if !ok || m.p.Thorough && !m.e.Full {
		return nil
	}
	m.e.Bar.Step(m.p.Name+" optimizes "+m.h.Name, 0, 0)
	c, err := cost.Measure(func() error { return o.Optimize(ctx) })
	if err != nil {
		return fmt.Errorf("optimize: %w", err)
	}
	n, err := m.k.Size(ctx)
	if err != nil {
		return err
	}
	m.add("optimized", "MB", float64(n)/1e6)
	m.add("optimize cpu", "s", c.CPU.Seconds())
	return nil
}

// restore restores every state and compares it with the original, in each way that the subject has.
func (m *measurement) restore(ctx context.Context) error {
	if err := m.restoreBy(ctx, "restore", m.k); err != nil {
		return err
	}
	if x, ok := m.k.(subject.Extractor); ok {
		return m.restoreBy(ctx, "restore --to", extracting{m.k, x})
	}
	return nil
}

// kept is a store under a name that none of its methods has.
type kept = subject.Store

// extracting is a store whose Restore is its Extract.
type extracting struct {
	kept
	x subject.Extractor
}

func (e extracting) Restore(ctx context.Context, i int, dest string) error {
	return e.x.Extract(ctx, i, dest)
}

// restoreBy is restore with the Restore of k; name says how.
func (m *measurement) restoreBy(ctx context.Context, name string, k subject.Store) error {
	var sum cost.Cost
	var bytes int64
	for i := range m.h.States {
		m.e.Bar.Step(m.p.Name+" restores "+m.h.Name, i, len(m.h.States))
		c, err := m.verified(ctx, k, i)
		if err != nil {
			return fmt.Errorf("%s of state %d: %w", name, i, err)
		}
		sum.Add(c)
		bytes += m.infos[i].Bytes
		if name == "restore" {
			m.did(workOf(m.infos[i]))
		}
	}
	m.add(name+" cpu", "s", sum.CPU.Seconds())
	m.add(name+" wall", "s", sum.Wall.Seconds())
	if name != "restore" {
		return nil
	}
	m.r.Add(report.Metric{
		Case: m.h.Name, Subject: m.p.Name, Name: "restore", Unit: "MB/s cpu",
		Value: float64(bytes) / 1e6 / max(sum.CPU.Seconds(), 1e-3), More: true,
	})
	m.r.Add(report.Metric{
		Case: m.h.Name, Subject: m.p.Name, Name: "verified", Unit: "states", Value: float64(len(m.h.States)),
		More: true,
	})
	return nil
}
