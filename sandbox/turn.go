package sandbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"snapfs/layers"
	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/catalog"
	"snapfs/sandbox/internal/layerstore"
)

// Turn freezes a workspace, mounted or not, as its next turn: a snapshot with a number and without a name. If nothing
// changed since the layer below, nothing is stored, and Unchanged is set. When it returns, the turn survives a loss of
// power.
func (h *Home) Turn(ctx context.Context, r TurnRequest) (TurnResult, error) {
	ctx, end, err := h.beginChange(ctx)
	if err != nil {
		return TurnResult{}, err
	}
	defer end()
	if err := api.ValidDescription(r.Message); err != nil {
		return TurnResult{}, err
	}
	session, err := r.SessionID()
	if err != nil {
		return TurnResult{}, err
	}
	w, unlock, err := h.lockChangeable(ctx, r.Access, r.Workspace, "turn")
	if err != nil {
		return TurnResult{}, err
	}
	defer unlock()
	o, push, done, err := h.overlayOf(ctx, w, false)
	if err != nil {
		return TurnResult{}, err
	}
	defer done()
	changed, err := h.changedIn(ctx, o, w.ID)
	if err != nil {
		return TurnResult{}, err
	}
	if !changed {
		return h.unchangedTurn(w)
	}
	if err := errors.Join(h.withinLimits(session), h.roomInHome(ctx)); err != nil {
		return TurnResult{}, err
	}
	defer h.yielder.Begin()()
	s, err := h.sealTurn(ctx, w, o, push, session, r.Message)
	if errors.Is(err, errNoTurn) {
		return h.unchangedTurn(w)
	}
	if err != nil {
		return TurnResult{}, err
	}
	d, err := h.describeSnapshot(s, maxPage)
	return TurnResult{Workspace: w.ID, Turn: s.Turn, Snapshot: &d}, err
}

// lockChangeable is useChangeable for a call that changes the workspace: nobody else does until unlock is called.
func (h *Home) lockChangeable(
	ctx context.Context, a Access, ref, what string,
) (w *catalog.Workspace, unlock func(), err error) {
	if w, err = h.useChangeable(ctx, a, ref, what); err != nil {
		return nil, nil, err
	}
	return h.lockWorkspace(ctx, w.ID)
}

// lockWorkspace gives the present record of a workspace, which nobody else changes until unlock is called.
func (h *Home) lockWorkspace(ctx context.Context, name string) (w *catalog.Workspace, unlock func(), err error) {
	if unlock, err = h.ops.Lock(ctx, name); err != nil {
		return nil, nil, err
	}
	if w = h.catalog.Workspace(name); w == nil {
		unlock()
		return nil, nil, fmt.Errorf("%w: workspace %s", ErrNotFound, api.Quoted(name))
	}
	if now, err := h.settled(ctx, w); err == nil { // else who needs it is refused
		w = now
	}
	return w, unlock, nil
}

// unchangedTurn tells what a workspace in which nothing has changed is the same as.
func (h *Home) unchangedTurn(w *catalog.Workspace) (TurnResult, error) {
	result := TurnResult{Workspace: w.ID, Unchanged: true}
	s := h.catalog.Snapshot(w.Head)
	if s == nil || s.Top != h.newestState(w) {
		return result, nil
	}
	d, err := h.describeSnapshot(s, maxPage)
	result.Turn, result.Snapshot = s.Turn, &d
	return result, err
}

// errNoTurn says that nothing has changed, which of a kernel mount only its capture tells.
var errNoTurn = errors.New("nothing has changed since the last turn")

// sealTurn makes the next turn of a workspace that has changed; errNoTurn if it has not. If no snapshot has what was
// before it, there is one of that from now on, for Undo. The caller holds the workspace's lock.
func (h *Home) sealTurn(
	ctx context.Context, w *catalog.Workspace, o *layers.Overlay, push func(*layerstore.Lower), session, message string,
) (*catalog.Snapshot, error) {
	now := h.now()
	s := &catalog.Snapshot{Workspace: w.ID, Session: session, Description: message, CreatedAt: now}
	err := h.seal(ctx, w, o, push, false, func(ch *catalog.Change, w *catalog.Workspace, top string) error {
		if top == w.Base {
			return errNoTurn
		}
		h.putTurn(ch, s, w, top, now)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// putTurn adds a turn to a change, as putSnapshot does.
func (h *Home) putTurn(ch *catalog.Change, s *catalog.Snapshot, w *catalog.Workspace, top string, now time.Time) {
	if head := h.catalog.Snapshot(w.Head); head == nil || head.Top != w.Base {
		start := &catalog.Snapshot{
			Workspace: w.ID, Session: s.Session, Description: fmt.Sprintf("before turn %d", w.Turn+1), CreatedAt: now,
		}
		h.putSnapshot(ch, start, w, w.Base)
		start.Parent = "" // what it came from is not among the snapshots
	}
	w.Turn++
	s.Turn = w.Turn
	h.putSnapshot(ch, s, w, top)
}
