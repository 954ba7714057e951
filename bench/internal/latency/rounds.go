package latency

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"snapfs/bench/internal/report"
	"snapfs/bench/internal/subject"
	"snapfs/bench/internal/tree"
)

// run is a case on one system.
type run struct {
	setting
	h     subject.Workspace
	edits tree.Edits
	took  map[string][]time.Duration
	order []string
}

// note adds a reading.
func (m *run) note(name string, d time.Duration) {
	if m.took[name] == nil {
		m.order = append(m.order, name)
	}
	m.took[name] = append(m.took[name], d)
}

// time measures one operation.
func (m *run) time(name string, fn func() error) error {
	start := time.Now()
	err := fn()
	if errors.Is(err, subject.ErrNotOffered) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	m.note(name, time.Since(start))
	return nil
}

// round runs every operation once.
func (m *run) round(ctx context.Context) error {
	var id string
	freeze := func(name string, sync bool) error {
		if err := m.edits.Edit(m.h.Dir()); err != nil {
			return err
		}
		before, err := m.h.Held(ctx)
		if err != nil {
			return err
		}
		if err := m.time(name, func() (err error) { id, err = m.h.Snapshot(ctx, sync); return err }); err != nil {
			return err
		}
		after, err := m.h.Held(ctx)
		if after > before {
			m.note("held", after-before)
		}
		return err
	}
	if err := freeze("snapshot", false); err != nil {
		return err
	}
	first := id
	if err := freeze("snapshot, sync", true); err != nil {
		return err
	}
	var made string
	err := m.time("restore", func() (err error) {
		if made, err = m.h.Restore(ctx, id); err == nil {
			_, err = os.ReadDir(made)
		}
		return err
	})
	if made != "" {
		err = errors.Join(err, m.h.Unrestore(ctx, made))
	}
	if err == nil {
		err = m.edits.Edit(m.h.Dir())
	}
	if err == nil {
		err = m.time("diff", func() error { return m.h.Diff(ctx, id) })
	}
	if err == nil {
		err = m.time("rollback", func() error { return m.h.Rollback(ctx, id) })
	}
	if err == nil {
		err = m.time("delete", func() error { return m.h.Delete(ctx, first) })
	}
	return err
}

// report adds medians and 99th percentiles.
func (m *run) report(r *report.Report, subject string) {
	for _, name := range m.order {
		took := m.took[name]
		slices.Sort(took)
		for _, p := range []int{50, 99} {
			v := took[(len(took)-1)*p/100]
			if len(took) < 100 && p == 99 {
				v = took[len(took)-1]
			}
			r.Add(report.Metric{
				Case: m.name, Subject: subject, Name: fmt.Sprintf("%s p%d", name, p), Unit: "ms",
				Value: float64(v.Microseconds()) / 1000,
			})
		}
	}
	r.Add(report.Metric{
		Case: m.name, Subject: subject, Name: "rounds", Unit: "", Value: float64(len(m.took["snapshot"])),
		More: true,
	})
}
