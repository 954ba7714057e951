package sandbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"snapfs/layers"
	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/catalog"
)

// keptFor is for how long what a rollback takes away can be had back.
const keptFor = 24 * time.Hour

// rollbackKeeping is rollbackLocked after it has kept what the workspace has that no snapshot has, as a snapshot
// without a name, which expires; nil if there was nothing. Changes are held back from before the one until after the
// other, so that none is in neither.
func (h *Home) rollbackKeeping(
	ctx context.Context, name, session string, m move,
) (kept *catalog.Snapshot, err error) {
	w, l := h.catalog.Workspace(name), h.liveOf(name)
	if w == nil {
		return nil, fmt.Errorf("%w: workspace %s", ErrNotFound, api.Quoted(name))
	}
	if err := h.mayRollBack(l, m.to); err != nil {
		return nil, err
	}
	if l == nil && !h.uppers.Exists(w.Upper) { // lost: a rollback mends it
		m.held = w.Paused
		return nil, h.rollbackLocked(ctx, name, m)
	}
	if l != nil && !w.Paused {
		if err := h.uppers.Flush(w.Upper); err != nil { // the bulk, before anybody waits
			return nil, fmt.Errorf("flushing %s: %w", name, err)
		}
		l.hold()
		defer func() { err = errors.Join(err, h.release(l, nil)) }()
	}
	m.held = true
	kept, err = h.keepUnsaved(ctx, w, session, m.to)
	if err != nil {
		return nil, fmt.Errorf("what is unsaved cannot be kept (--discard gives it up): %w", err)
	}
	if kept == nil {
		return nil, h.rollbackLocked(ctx, name, m)
	}
	// A call that is cancelled leaves nothing behind: from here on it is done.
	if err := h.rollbackLocked(context.WithoutCancel(ctx), name, m); err != nil {
		return nil, fmt.Errorf("%w; what was unsaved is snapshot %s", err, kept.ID)
	}
	return kept, nil
}

// changedIn reports whether a workspace has changed since its newest layer, or may have.
func (h *Home) changedIn(ctx context.Context, o *layers.Overlay, workspace string) (bool, error) {
	w := h.catalog.Workspace(workspace)
	switch {
	case w != nil && h.unsavedBase(w):
		return true, nil
	case h.liveOf(workspace).kernel() == nil:
	case w == nil || h.lastCapture(w) != nil:
		return true, nil // a capture tells
	default:
		return h.changedByKernel(ctx, w)
	}
	changed, err := o.Changed()
	if err != nil {
		err = classify(fmt.Errorf("looking for changes in %s: %w", workspace, err))
	}
	return changed, err
}

// keepUnsaved takes a snapshot without a name of a workspace that is about to be rolled back to another one; nil if
// nothing has changed since its newest one. The caller holds the workspace's lock.
func (h *Home) keepUnsaved(
	ctx context.Context, w *catalog.Workspace, session string, to *catalog.Snapshot,
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
	if !changed {
		return nil, nil
	}
	if err := h.withinLimits(session); err != nil {
		return nil, err
	}
	now := h.now()
	expires := now.Add(keptFor)
	s := &catalog.Snapshot{
		Workspace: w.ID, Session: session, Description: "unsaved before the rollback to " + fullName(to),
		CreatedAt: now, ExpiresAt: &expires, Unsaved: true,
	}
	err = h.seal(ctx, w, o, push, false, func(ch *catalog.Change, w *catalog.Workspace, top string) error {
		h.putSnapshot(ch, s, w, top)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// putSnapshot adds a new snapshot of a workspace, whose topmost layer is top, to a change.
func (h *Home) putSnapshot(ch *catalog.Change, s *catalog.Snapshot, w *catalog.Workspace, top string) {
	s.ID = h.catalog.NewID() // in the order in which snapshots become visible
	s.Parent, s.Top, s.ParentTop, s.Unchanged = w.Head, top, w.Base, top == w.Base
	w.Base, w.Head = top, s.ID
	if !s.Unchanged {
		w.Redo = "" // it goes another way now
	}
	foreign := w.IsForeign()
	s.Foreign = &foreign
	detail := s.Name
	if s.Turn > 0 {
		detail = fmt.Sprintf("turn %d", s.Turn)
	}
	ch.PutSnapshots = append(ch.PutSnapshots, s)
	ch.Events = append(ch.Events, h.event(EventSnapshotted, w.ID, s.Session, s.ID, detail))
}

// fullName is how a snapshot is called in messages: by its workspace and its name, if it has one that anybody can use,
// else by its id.
func fullName(s *catalog.Snapshot) string {
	if s.Name == "" || api.ValidSnapshotName(s.Name) != nil {
		return s.ID
	}
	return s.Workspace + ":" + s.Name
}
