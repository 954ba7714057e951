package sandbox

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"

	"snapfs/layers"
	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/catalog"
	"snapfs/sandbox/internal/layerstore"
	"snapfs/sandbox/internal/uppers"
)

// Rollback moves a workspace back to a snapshot of its own history, or with Foreign to any other. What was written since
// its newest snapshot is kept for a day as a snapshot without a name, unless Discard gives it up. A mounted
// workspace stays mounted, and programs see the change at once, those of a paused one all of it when it is resumed: files
// that they have open stay as they were, apart from the tree. ErrConflict for one that is mounted read-only. When it
// returns, the change survives a loss of power.
func (h *Home) Rollback(ctx context.Context, r RollbackRequest) (RollbackResult, error) {
	ctx, end, err := h.beginChange(ctx)
	if err != nil {
		return RollbackResult{}, err
	}
	defer end()
	defer h.yielder.Begin()()
	session, err := r.SessionID()
	if err != nil {
		return RollbackResult{}, err
	}
	w, err := h.useChangeable(ctx, r.Access, r.Workspace, "roll back")
	if err != nil {
		return RollbackResult{}, err
	}
	s, err := h.useSnapshotOf(ctx, r.Access, w, r.Snapshot, "roll back to")
	if err != nil {
		return RollbackResult{}, err
	}
	if err := h.restorable(s); err != nil {
		return RollbackResult{}, err
	}
	unlock, err := h.ops.Lock(ctx, w.ID)
	if err != nil {
		return RollbackResult{}, err
	}
	defer unlock()
	if w = h.catalog.Workspace(w.ID); w == nil {
		return RollbackResult{}, fmt.Errorf("%w: workspace %s", ErrNotFound, api.Quoted(r.Workspace))
	}
	if !r.Foreign && !h.ofHistory(w, s) {
		whose := "workspace " + s.Workspace
		if s.Workspace == w.ID {
			whose = "an earlier " + whose
		}
		return RollbackResult{}, fmt.Errorf("%w: snapshot %s is of %s, and not of the history of %s: "+
			"--foreign takes it all the same", ErrConflict, fullName(s), whose, w.ID)
	}
	var result RollbackResult
	var kept *catalog.Snapshot
	e := h.event(EventRolledBack, w.ID, session, s.ID, s.Name)
	err = h.aside(ctx, w, session, r.Force, func(w *catalog.Workspace) (err error) {
		if r.Discard {
			return h.rollbackLocked(ctx, w.ID, move{to: s, event: e, held: w.Paused})
		}
		kept, err = h.rollbackKeeping(ctx, w.ID, session, move{to: s, event: e})
		return err
	})
	if err == nil && kept != nil {
		var d Snapshot
		d, err = h.describeSnapshot(kept, maxPage)
		result.Kept = &d
	}
	if err != nil {
		return RollbackResult{}, err
	}
	result.Workspace, err = h.describe(h.catalog.Workspace(w.ID))
	return result, err
}

// mayRollBack refuses to move the tree beneath a mount that cannot have the one of a snapshot; l may be nil.
func (h *Home) mayRollBack(l *live, s *catalog.Snapshot) error {
	switch {
	case l == nil:
		return nil
	case l.frozen:
		return fmt.Errorf("%w: workspace %s is %s: unmount it first", ErrConflict, l.workspace(), l.readOnly())
	}
	if err := l.admits(h.foreignSnapshot(s)); err != nil {
		return err
	}
	return h.keepsNested(l, s)
}

// move is where a workspace goes in place. Held says that its changes are held back, and that the caller has the kernel
// look again when it lets them go on. Redo is where the line of turns that are undone then leads, as in the record.
type move struct {
	to    *catalog.Snapshot
	event Event
	held  bool
	redo  string
}

// rollbackLocked is Rollback under the workspace's lock. As with a seal, the records are durable before the gate closes:
// a crash in between leaves the workspace rolled back.
func (h *Home) rollbackLocked(ctx context.Context, name string, m move) error {
	s := m.to
	w := h.catalog.Workspace(name)
	if w == nil {
		return fmt.Errorf("%w: workspace %s", ErrNotFound, api.Quoted(name))
	}
	l, done := h.useLive(name)
	defer done()
	if err := errors.Join(h.mayRollBack(l, s), h.isSettled(ctx, w)); err != nil {
		return err
	}
	foreign := h.foreignSnapshot(s)
	upper, err := h.upperOver(ctx, s.Top)
	if err != nil {
		return err
	}
	endReads := func(bool) {}
	if l == nil {
		if endReads, err = h.restartReads(ctx, w, s.Top); err != nil {
			return errors.Join(err, h.uppers.Remove(upper))
		}
	}
	h.beginMove(l)
	st, err := h.catalog.Stage(ctx, true, func(ch *catalog.Change) error {
		if h.catalog.Snapshot(s.ID) == nil {
			return fmt.Errorf("%w: snapshot %s has just been deleted", ErrNotFound, s.ID)
		}
		next := *h.catalog.Workspace(name) // its mount may have been recorded as gone meanwhile
		next.Base, next.Head, next.Upper, next.Foreign = s.Top, s.ID, upper, &foreign
		next.Redo = m.redo
		ch.PutWorkspaces = append(ch.PutWorkspaces, &next)
		ch.PutTrash = append(ch.PutTrash, w.Upper)
		ch.Events = append(ch.Events, m.event)
		return nil
	})
	endReads(err == nil)
	if err != nil {
		h.endMove(l, w.Upper, true)
		return errors.Join(err, h.removeUnnamed(upper, err))
	}
	var stale layers.Stale
	if l != nil {
		if stale, err = h.rollbackLive(ctx, l, w, s.Top, upper); err != nil {
			err = errors.Join(err, h.withdraw(ctx, st, upper))
			h.endMove(l, w.Upper, true)
			return err
		}
	}
	h.catalog.Show(st)
	if l != nil {
		err = h.rolledBack(l, stale, m.held)
		h.endMove(l, upper, !m.held && err == nil)
	} else {
		h.uppers.Discard(w.Upper)
		h.recountNew(ctx, h.catalog.Workspace(name))
	}
	h.reconsider(ctx, w.Base)
	h.storer.Abandon()
	return err
}

// reconsider removes a layer that may have lost its last name.
func (h *Home) reconsider(ctx context.Context, layer string) {
	gone, err := h.catalog.Reconsider(context.WithoutCancel(ctx), layer)
	if err != nil {
		h.log.Warn("a layer that nobody needs is still there", "layer", layer, "error", err)
	}
	h.cache.Forget(gone)
}

// useLive gives the connection of a workspace, kept open until done is called, or nil. The caller holds the workspace's
// lock.
func (h *Home) useLive(name string) (l *live, done func()) {
	if l = h.liveOf(name); l != nil {
		done, ok := l.use()
		if ok {
			return l, done
		}
		<-l.gone // it has just died, and its watcher is closing it
	}
	return nil, func() {}
}

// rollbackLive moves the tree beneath a mount. The caller uses the overlay.
func (h *Home) rollbackLive(
	ctx context.Context, l *live, w *catalog.Workspace, top string, upper uint64,
) (layers.Stale, error) {
	defer l.lockStack()()
	if err := l.stack.Split(ctx, l.overlay, top); err != nil {
		h.log.Warn("files that stay the same will be other ones to programs", "workspace", w.ID, "error", err)
	}
	next, err := l.stack.DownTo(ctx, top)
	if err != nil {
		return layers.Stale{}, err
	}
	if l.reads != nil {
		h.nextReads(ctx, l.reads, l.record, top)
	}
	old := l.stack
	mounted := layerstore.Hold{Workspace: w.ID}
	old.Hold(layerstore.Hold{Workspace: w.ID, Deleted: true})
	released := func() { // nothing open stands on them any more
		old.Release()
		h.uppers.Discard(w.Upper)
	}
	stale, err := l.overlay.Rollback(
		ctx, next.Lowers(), h.uppers.Path(upper), h.uppers.Work(upper), uppers.InoBase(upper), released,
	)
	if err != nil {
		old.Hold(mounted)
		next.Release()
		return layers.Stale{}, classify(fmt.Errorf("workspace %s: %w", l.workspace(), err))
	}
	h.points.At("tree rolled back")
	l.stack = next
	return stale, nil
}

// rolledBack tells the kernel what a rollback has made untrue; of a workspace whose changes are held when they go on: a
// program that waits at the gate may hold the lock of its directory, and would never let it go.
func (h *Home) rolledBack(l *live, stale layers.Stale, held bool) error {
	if held {
		defer l.lockStack()()
		l.stale = append(l.stale, stale)
		return nil
	}
	if err := l.invalidate(stale); err != nil {
		return fmt.Errorf("workspace %s is rolled back, but programs may see old names until it is mounted again: %w",
			l.workspace(), err)
	}
	h.dropLater(l, stale)
	return nil
}

// dropLater is dropOrphans in the background.
func (h *Home) dropLater(l *live, stale layers.Stale) {
	if len(stale.Orphans) == 0 {
		return
	}
	// The caller is a call of the home or its Close, which wait for each other: the group cannot have been waited for.
	h.work.Go(func() {
		if err := l.dropOrphans(h.ctx, stale); err != nil {
			h.log.Warn("what was rolled back takes room until the mount ends", "workspace", l.workspace(), "error", err)
		}
	})
}

// invalidate makes the kernel look again at what a rollback has made untrue: names first, so that what is looked up
// anew meets directories whose listings are asked for again. It does not wait for the kernel to drop what the names led
// to, which takes three times as long.
func (l *live) invalidate(s layers.Stale) error {
	if err := l.expire(s.Entries); err != nil {
		return err
	}
	for _, dir := range s.Dirs {
		if err := l.mount.InvalidateNode(dir); err != nil {
			return err
		}
	}
	return nil
}

// expireShare is how many names are worth a goroutine of their own: the kernel does most of a notification's work on
// different processors at once.
const expireShare = 64

// expire makes the kernel look names up again, on all processors if they are many.
func (l *live) expire(entries []layers.StaleEntry) error {
	workers := max(1, min(runtime.GOMAXPROCS(0), len(entries)/expireShare))
	errs := make([]error, workers)
	var all sync.WaitGroup
	for i := range workers {
		part := entries[len(entries)*i/workers : len(entries)*(i+1)/workers]
		all.Go(func() {
			for _, e := range part {
				if errs[i] = l.mount.ExpireEntry(e.Parent, e.Name); errs[i] != nil {
					return
				}
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// dropOrphans makes the kernel give up what it keeps of files that a rollback has taken away and that nobody uses, so
// that the host gets their room back. What somebody has open stays.
func (l *live) dropOrphans(ctx context.Context, s layers.Stale) error {
	for _, n := range s.Orphans {
		if ctx.Err() != nil {
			return nil // with the mount, they go, too
		}
		done, ok := l.use()
		if !ok {
			return nil
		}
		known := l.overlay.Known(n.Node)
		done()
		if !known {
			continue // the request that found the name has made the kernel drop it
		}
		if err := l.mount.InvalidateEntry(n.Parent, n.Name); err != nil {
			return err
		}
	}
	return nil
}

// invalidateLater makes the kernel forget what rollbacks have made untrue during a pause that is over now.
func (h *Home) invalidateLater(l *live) error {
	unlock := l.lockStack()
	stale := l.stale
	l.stale = nil
	unlock()
	for _, s := range stale {
		if err := l.invalidate(s); err != nil {
			return fmt.Errorf("programs in workspace %s may see names from before a rollback "+
				"until it is mounted again: %w", l.workspace(), err)
		}
		h.dropLater(l, s)
	}
	if l.moving.Load() {
		h.endMove(l, l.upper.Load(), true)
	}
	return nil
}
