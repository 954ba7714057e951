package storage

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"snapfs/bench/internal/cost"
	"snapfs/bench/internal/scratch"
	"snapfs/bench/internal/subject"
)

// leftToVerify are the states that are restored once more after those before from were deleted: with all every one of
// them, else the oldest, which most stood on what is gone, one in the middle, and the newest.
func leftToVerify(from, to int, all bool) []int {
	left := []int{from, (from + to) / 2, to - 1}
	if all {
		left = nil
		for i := from; i < to; i++ {
			left = append(left, i)
		}
	}
	return slices.Compact(left)
}

// half deletes the older half of the states and checks that others are still whole.
func (m *measurement) half(ctx context.Context) error {
	states := len(m.h.States)
	if states < 2 {
		return nil
	}
	m.e.Bar.Step(m.p.Name+" deletes half of "+m.h.Name, 0, 0)
	c, err := cost.Measure(func() error { return m.k.Drop(ctx, 0, states/2) })
	if errors.Is(err, subject.ErrNotOffered) {
		m.r.Note("%s: deleting states is not offered: each stands on those before it", m.p.Name)
		return nil
	}
	if err != nil {
		return fmt.Errorf("delete half: %w", err)
	}
	n, err := m.k.Size(ctx)
	if err != nil {
		return err
	}
	left := leftToVerify(states/2, states, m.e.Full)
	for n, i := range left {
		m.e.Bar.Step(m.p.Name+" restores what is left of "+m.h.Name, n, len(left))
		if _, err := m.verified(ctx, m.k, i); err != nil {
			return fmt.Errorf("restore state %d after deleting half: %w", i, err)
		}
		m.did(workOf(m.infos[i]))
	}
	m.add("half deleted", "MB", float64(n)/1e6)
	m.add("delete cpu", "s", c.CPU.Seconds())
	return nil
}

// newest deletes all but the newest state, and stores that one alone in a repository of its own beside it.
func (m *measurement) newest(ctx context.Context) (err error) {
	last := len(m.h.States) - 1
	if last < 1 {
		return nil
	}
	m.e.Bar.Step(m.p.Name+" keeps the newest of "+m.h.Name, 0, 0)
	if err := m.k.Drop(ctx, len(m.h.States)/2, last); errors.Is(err, subject.ErrNotOffered) {
		return nil
	} else if err != nil {
		return fmt.Errorf("delete all but the newest: %w", err)
	}
	left, err := m.k.Size(ctx)
	if err != nil {
		return err
	}
	if _, err := m.verified(ctx, m.k, last); err != nil {
		return fmt.Errorf("restore the only state left: %w", err)
	}
	fresh, err := m.open(ctx, "fresh")
	if err != nil {
		return err
	}
	defer func() {
		clean, cancel := scratch.CleanUp(ctx)
		defer cancel()
		err = errors.Join(err, fresh.Close(clean))
	}()
	if err := fresh.Store(ctx, 0, "", m.h.States[last]); err != nil {
		return fmt.Errorf("store the newest state alone: %w", err)
	}
	if err := fresh.Settle(ctx); err != nil {
		return fmt.Errorf("settle the newest state: %w", err)
	}
	alone, err := fresh.Size(ctx)
	if err != nil {
		return err
	}
	m.add("only newest kept", "MB", float64(left)/1e6)
	m.add("newest alone", "MB", float64(alone)/1e6)
	return nil
}
