package sandbox

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"snapfs/sandbox/internal/catalog"
)

// Conflicts tells what would be in conflict if A were applied to B. Neither changes, and both may be snapshots.
func (h *Home) Conflicts(ctx context.Context, r ConflictsRequest) (ConflictsResult, error) {
	ctx, end, err := h.begin(ctx)
	if err != nil {
		return ConflictsResult{}, err
	}
	defer end()
	session, err := r.SessionID()
	if err != nil {
		return ConflictsResult{}, err
	}
	a := &application{h: h, session: session}
	if a.base, err = h.useSnapshot(ctx, r.Access, r.Base, "compare"); err != nil {
		return ConflictsResult{}, err
	}
	var target subject
	var name string
	for _, side := range []struct {
		ref  string
		s    *subject
		name *string
	}{{r.A, &a.from, &a.name}, {r.B, &target, &name}} {
		w, s, err := h.useObject(ctx, r.Access, side.ref, "compare")
		if err != nil {
			return ConflictsResult{}, err
		}
		*side.s = subject{workspace: w, snapshot: s}
		if s != nil {
			*side.name = fullName(s)
		} else {
			*side.name = w.ID
		}
	}
	a.to = &catalog.Workspace{ID: name}
	leave, err := h.working.diffs.Enter(ctx, session, nil)
	if err != nil {
		return ConflictsResult{}, err
	}
	defer leave()
	for try := 1; ; try++ {
		p, err := a.plan(ctx, target)
		if err == nil {
			a.tell(p.Plan)
			p.close()
			return ConflictsResult{Conflicts: a.res.Conflicts, Merged: a.res.Merged}, nil
		}
		// As in Diff.
		if try == diffAttempts || !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ESTALE) {
			return ConflictsResult{}, classify(err)
		}
	}
}
