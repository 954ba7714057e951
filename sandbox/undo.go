package sandbox

import (
	"context"
	"errors"
	"fmt"

	"snapfs/sandbox/internal/catalog"
)

// Undo moves a workspace back along its turns, in place, mounted or not, as Rollback does. What has changed since the
// newest snapshot becomes a turn first, and counts as a step. Redo leads back until something else changes.
// ErrConflict if there are not so many steps, or if the workspace is mounted read-only.
func (h *Home) Undo(ctx context.Context, r UndoRequest) (UndoResult, error) {
	return h.step(ctx, r, "undo", h.undoLocked)
}

// Redo moves a workspace forward again to turns that were undone. What has changed since is kept for a day, as a
// snapshot without a name. Errors are as of Undo.
func (h *Home) Redo(ctx context.Context, r UndoRequest) (UndoResult, error) {
	return h.step(ctx, r, "redo", h.redoLocked)
}

// step is what Undo and Redo have in common.
func (h *Home) step(
	ctx context.Context, r UndoRequest, what string,
	do func(ctx context.Context, w *catalog.Workspace, session string, steps int) (*catalog.Snapshot, error),
) (UndoResult, error) {
	ctx, end, err := h.beginChange(ctx)
	if err != nil {
		return UndoResult{}, err
	}
	defer end()
	defer h.yielder.Begin()()
	session, err := r.SessionID()
	if err != nil {
		return UndoResult{}, err
	}
	if r.Steps < 0 {
		return UndoResult{}, fmt.Errorf("%w: %d steps: at least one", ErrInvalid, r.Steps)
	}
	w, unlock, err := h.lockChangeable(ctx, r.Access, r.Workspace, what)
	if err != nil {
		return UndoResult{}, err
	}
	defer unlock()
	if r.Force { // what cannot be done is refused before programs lose the tree
		unsaved, err := h.unsavedInUpper(ctx, w)
		if err == nil {
			err = h.stepsThere(w, what, max(r.Steps, 1), unsaved)
		}
		if err != nil {
			return UndoResult{}, err
		}
	}
	var kept *catalog.Snapshot
	err = h.aside(ctx, w, session, r.Force, func(w *catalog.Workspace) (err error) {
		kept, err = do(ctx, w, session, max(r.Steps, 1))
		return err
	})
	if err != nil {
		return UndoResult{}, err
	}
	w = h.catalog.Workspace(w.ID)
	line, at := h.position(w)
	result := UndoResult{Turn: line[at].turn, CanUndo: len(line) - 1 - at, CanRedo: at}
	if kept != nil {
		d, err := h.describeSnapshot(kept, maxPage)
		if err != nil {
			return UndoResult{}, err
		}
		result.KeptTurn, result.Kept = kept.Turn, &d
	}
	result.Workspace, err = h.describe(w)
	return result, err
}

// undoLocked is Undo under the workspace's lock. Changes are held back from before the one look until after the other,
// so that none is in neither the turn that is kept nor the workspace.
func (h *Home) undoLocked(
	ctx context.Context, w *catalog.Workspace, session string, steps int,
) (kept *catalog.Snapshot, err error) {
	if err := h.stepsThere(w, "undo", steps, true); err != nil {
		return nil, err
	}
	l, held := h.liveOf(w.ID), w.Paused
	if l != nil && !w.Paused {
		if err := h.uppers.Flush(w.Upper); err != nil { // the bulk, before anybody waits
			return nil, fmt.Errorf("flushing %s: %w", w.ID, err)
		}
		l.hold()
		held = true
		defer func() { err = errors.Join(err, h.release(l, nil)) }()
	}
	if kept, err = h.keepTurn(ctx, w, session, steps); err != nil {
		return nil, err
	}
	w = h.catalog.Workspace(w.ID)
	line, at := h.position(w)
	if at+steps >= len(line) || line[0].snapshot == nil {
		return kept, fmt.Errorf("%w: turns of workspace %s were deleted meanwhile: try again", ErrConflict, w.ID)
	}
	to := line[at+steps]
	e := h.event(EventRolledBack, w.ID, session, to.snapshot.ID, "undo to "+to.String())
	// A call that is cancelled leaves nothing behind: once something is kept, it is done.
	if kept != nil {
		ctx = context.WithoutCancel(ctx)
	}
	err = h.rollbackLocked(ctx, w.ID, move{to: to.snapshot, event: e, held: held, redo: line[0].snapshot.ID})
	if err != nil && kept != nil {
		err = fmt.Errorf("%w; what was unsaved is turn %d", err, kept.Turn)
	}
	return kept, err
}

// keepTurn makes a turn of what is unsaved in a workspace that is about to be moved back, nil if there is nothing, and
// sees to it that a snapshot has its state in any case. Before that it makes sure that there are so many steps to go. The
// caller holds the workspace's lock.
func (h *Home) keepTurn(
	ctx context.Context, w *catalog.Workspace, session string, steps int,
) (*catalog.Snapshot, error) {
	o, push, done, err := h.overlayOf(ctx, w, false)
	if err != nil {
		return nil, err
	}
	defer done()
	changed, err := h.changedIn(ctx, o, w.ID)
	if err != nil {
		return nil, err
	}
	line, at := h.position(w)
	target := at + steps
	if changed {
		target--
	}
	if target >= len(line) {
		return nil, h.tooFar(w, "undo", len(line)-1-at)
	}
	to := line[target].snapshot
	if l := h.liveOf(w.ID); to != nil || l != nil && l.frozen {
		if err := h.mayRollBack(l, to); err != nil {
			return nil, err
		}
	}
	if to != nil {
		if err := h.restorable(to); err != nil {
			return nil, err
		}
	}
	if !changed && line[at].snapshot != nil {
		return nil, nil
	}
	if err := h.withinLimits(session); err != nil {
		return nil, err
	}
	if !changed {
		return nil, h.nameBase(ctx, w.ID, session)
	}
	s, err := h.sealTurn(ctx, w, o, push, session, "unsaved before an undo")
	if err != nil {
		return nil, fmt.Errorf("what is unsaved cannot be kept: %w", err)
	}
	return s, nil
}

// nameBase takes a snapshot of a workspace in which nothing has changed, because the one of its state is deleted.
func (h *Home) nameBase(ctx context.Context, name, session string) error {
	return h.catalog.Put(ctx, true, func(ch *catalog.Change) error {
		next := *h.catalog.Workspace(name)
		s := &catalog.Snapshot{
			Workspace: name, Session: session, Description: "before an undo", CreatedAt: h.now(),
		}
		h.putSnapshot(ch, s, &next, next.Base)
		ch.PutWorkspaces = append(ch.PutWorkspaces, &next)
		return nil
	})
}

// redoLocked is Redo under the workspace's lock.
func (h *Home) redoLocked(
	ctx context.Context, w *catalog.Workspace, session string, steps int,
) (kept *catalog.Snapshot, err error) {
	if err := h.stepsThere(w, "redo", steps, false); err != nil {
		return nil, err
	}
	line, at := h.position(w)
	to := line[at-steps].snapshot
	if err := h.restorable(to); err != nil {
		return nil, err
	}
	e := h.event(EventRolledBack, w.ID, session, to.ID, "redo to "+line[at-steps].String())
	return h.rollbackKeeping(ctx, w.ID, session, move{to: to, event: e, redo: line[0].snapshot.ID})
}

// stepsThere refuses what is too far. What is unsaved counts as a step to undo.
func (h *Home) stepsThere(w *catalog.Workspace, what string, steps int, unsaved bool) error {
	line, at := h.position(w)
	most := len(line) - 1 - at
	if what == "redo" {
		most, unsaved = max(at, 0), false
	}
	if steps > most && (!unsaved || steps > most+1) {
		return h.tooFar(w, what, most)
	}
	return nil
}

// tooFar says that there are not so many steps.
func (h *Home) tooFar(w *catalog.Workspace, what string, steps int) error {
	switch {
	case steps > 0:
		return fmt.Errorf("%w: workspace %s has %d turns to %s", ErrConflict, w.ID, steps, what)
	case what == "redo":
		return fmt.Errorf("%w: workspace %s has nothing to redo: nothing was undone since it last changed, or that was "+
			"deleted", ErrConflict, w.ID)
	}
	return fmt.Errorf("%w: workspace %s has nothing to undo: it has no turn before the present state",
		ErrConflict, w.ID)
}

// String is how a state is called in messages.
func (s lineState) String() string {
	if s.turn > 0 {
		return fmt.Sprintf("turn %d", s.turn)
	}
	return "snapshot " + fullName(s.snapshot)
}
