package sandbox

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"snapfs/layers"
)

// Rollback moves a workspace back to a snapshot, its own or another. What was written since is gone, unless a snapshot has it. A mounted
// workspace stays mounted, and programs see the change at once, those of a paused one all of it when it is resumed: files that they
// have open stay as they were, apart from the tree. ErrConflict for one that is mounted read-only. When it returns, the change survives a loss of power.
func (h *Home) Rollback(ctx context.Context, r RollbackRequest) (Workspace, error) {
	ctx, end, err := h.begin(ctx)
	if err != nil {
		return Workspace{}, err
	}
	defer end()
	session, err := r.session()
	if err != nil {
		return Workspace{}, err
	}
	w, err := h.useWorkspace(ctx, r.Access, r.Workspace, "roll back")
	if err != nil {
		return Workspace{}, err
	}
	s, err := h.useSnapshot(ctx, r.Access, r.Snapshot, "roll back to")
	if err != nil {
		return Workspace{}, err
	}
	if err := restorable(s); err != nil {
		return Workspace{}, err
	}
	unlock, err := h.ops.lock(ctx, w.ID)
	if err != nil {
		return Workspace{}, err
	}
	defer unlock()
	if err := h.rollbackLocked(ctx, w.ID, s, h.event(EventRolledBack, w.ID, session, s.ID, s.Name)); err != nil {
		return Workspace{}, err
	}
	return h.describe(h.catalog.workspace(w.ID))
}

// rollbackLocked is Rollback under the workspace's lock.
func (h *Home) rollbackLocked(ctx context.Context, name string, s *snapshotRecord, e Event) error {
	w := h.catalog.workspace(name)
	if w == nil {
		return fmt.Errorf("%w: workspace %s", ErrNotFound, shown(name))
	}
	upper, err := h.newUpper(ctx)
	if err != nil {
		return err
	}
	var gone []*layerRecord
	recorded := false
	record := func() error {
		var err error
		gone, err = h.catalog.update(ctx, true, func(ch *change) error {
			now := h.catalog.workspace(name)
			if h.catalog.snapshot(s.ID) == nil {
				return fmt.Errorf("%w: snapshot %s has just been deleted", ErrNotFound, s.ID)
			}
			next := *now // its mount may have been recorded as gone meanwhile
			next.Base, next.Head, next.Upper = s.Top, s.ID, upper
			ch.putWorkspaces = append(ch.putWorkspaces, &next)
			ch.putTrash = append(ch.putTrash, now.Upper)
			ch.events = append(ch.events, e)
			return nil
		})
		recorded = err == nil
		return err
	}
	l := h.liveOf(name)
	var done func()
	if l != nil {
		var ok bool
		if done, ok = l.use(); !ok {
			<-l.gone // it has just died, and its watcher is closing it
			l = nil
		}
	}
	if l == nil {
		if err = record(); err == nil {
			h.janitor.add(w.Upper)
		}
	} else {
		defer done()
		err = h.rollbackLive(ctx, l, w, s.Top, upper, record)
	}
	if !recorded {
		return errors.Join(err, h.uppers.remove(upper))
	}
	h.cache.forget(gone)
	return err
}

// rollbackLive moves the tree beneath a mount. The caller uses the overlay.
func (h *Home) rollbackLive(ctx context.Context, l *live, w *workspaceRecord, top string, upper uint64, record func() error) error {
	if l.options.ReadOnly {
		return fmt.Errorf("%w: workspace %s is mounted read-only: unmount it first", ErrConflict, l.workspace)
	}
	stale, err := func() (layers.Stale, error) {
		l.stackMu.Lock()
		defer l.stackMu.Unlock()
		next, err := h.stackDownTo(ctx, l.stack, top)
		if err != nil {
			return layers.Stale{}, err
		}
		old := l.stack
		stale, err := l.overlay.Rollback(ctx, next.lowers(), h.uppers.path(upper), h.uppers.work(upper), inoBase(upper), record, func() {
			// Nothing open stands on them any more.
			old.release()
			h.janitor.add(w.Upper)
		})
		if err != nil {
			next.release()
			return layers.Stale{}, classify(fmt.Errorf("workspace %s: %w", l.workspace, err))
		}
		l.stack = next
		if w.Paused {
			// A program that waits at the gate may hold the lock of its directory, and would never let it go.
			l.stale = append(l.stale, stale)
			stale = layers.Stale{}
		}
		return stale, nil
	}()
	if err != nil {
		return err
	}
	if err := l.invalidate(stale); err != nil {
		return fmt.Errorf("workspace %s is rolled back, but programs may see old names until it is mounted again: %w", l.workspace, err)
	}
	return nil
}

// invalidate makes the kernel forget what a rollback has made untrue, one by one: names first, so that what is looked up anew
// meets directories whose listings are asked for again.
func (l *live) invalidate(s layers.Stale) error {
	for _, e := range s.Entries {
		if err := l.mount.InvalidateEntry(e.Parent, e.Name); err != nil {
			return err
		}
	}
	for _, dir := range s.Dirs {
		if err := l.mount.InvalidateNode(dir); err != nil {
			return err
		}
	}
	return nil
}

// invalidateLater makes the kernel forget what rollbacks have made untrue during a pause that is over now.
func (l *live) invalidateLater() error {
	l.stackMu.Lock()
	stale := l.stale
	l.stale = nil
	l.stackMu.Unlock()
	for _, s := range stale {
		if err := l.invalidate(s); err != nil {
			return fmt.Errorf("programs in workspace %s may see names from before a rollback until it is mounted again: %w", l.workspace, err)
		}
	}
	return nil
}

// stackDownTo opens the stack below and with a layer, sharing what an open one has of it.
func (h *Home) stackDownTo(ctx context.Context, have *stack, top string) (*stack, error) {
	at := slices.IndexFunc(have.of, func(l *lower) bool { return l.layer == top })
	if at < 0 {
		return h.cache.open(ctx, top)
	}
	s := &stack{cache: h.cache, of: slices.Clone(have.of[at:])}
	for _, l := range s.of {
		h.cache.retain(l)
	}
	return s, nil
}
