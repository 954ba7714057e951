package storage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"snapfs/bench/internal/cost"
	"snapfs/bench/internal/subject"
	"snapfs/bench/internal/tree"
)

// verified restores state i with k and compares it with the original; only the restoring is timed.
func (m *measurement) verified(ctx context.Context, k subject.Store, i int) (cost.Cost, error) {
	if m.p.Keeps == subject.KeepsFiles && m.infos[i].Special > 0 {
		m.r.Note(
			"%s: devices, pipes and repositories in a tree are not kept, and not looked for in what it restores",
			m.p.Name,
		)
	}
	return verifyRestore(ctx, k, i, filepath.Join(m.dir, "restored"), m.h.States[i], m.infos[i], m.p)
}

// verifyRestore restores one state and compares it with the original; only the restore is timed.
func verifyRestore(
	ctx context.Context, k subject.Store, i int, dest, state string, want tree.Info, p subject.Subject[subject.Store],
) (cost.Cost, error) {
	if err := os.Mkdir(dest, 0o755); err != nil {
		return cost.Cost{}, fmt.Errorf("make directory: %w", err)
	}
	c, err := cost.Measure(func() error { return k.Restore(ctx, i, dest) })
	if err == nil {
		var got tree.Info
		got, err = tree.Inspect(ctx, dest)
		switch {
		case err != nil:
		case got.Plain != want.Plain || p.Keeps != subject.KeepsFiles && got.Contents != want.Contents:
			err = fmt.Errorf("contents differ from what was stored%s", tree.FirstDifference(state, dest, false))
		case p.Keeps == subject.KeepsAll && got.Exact != want.Exact:
			err = fmt.Errorf(
				"modes, owners, times or links differ from what was stored%s", tree.FirstDifference(state, dest, true),
			)
		}
	}
	return c, errors.Join(err, os.RemoveAll(dest))
}
