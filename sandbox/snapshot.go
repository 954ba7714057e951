package sandbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"snapfs/chunkstore"
	"snapfs/layers"
	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/catalog"
	"snapfs/sandbox/internal/layerstore"
	"snapfs/sandbox/internal/uppers"
)

// Snapshot freezes a workspace, mounted or not. If nothing changed since the layer below, no layer is added and
// Unchanged is set. When it returns, the snapshot survives a loss of power, unless NoSync. Storing goes on in the
// background; WaitStored waits for it: an error of storing, or the end of ctx, leaves the snapshot sealed; only the
// former is an error.
func (h *Home) Snapshot(ctx context.Context, r SnapshotRequest) (Snapshot, error) {
	ctx, end, err := h.beginChange(ctx)
	if err != nil {
		return Snapshot{}, err
	}
	defer end()
	now := h.now()
	expires, err := expiry(now, r.TTL, r.ExpiresAt)
	if err != nil {
		return Snapshot{}, err
	}
	if err := errors.Join(api.ValidSnapshotName(r.Name), api.ValidDescription(r.Description)); err != nil {
		return Snapshot{}, err
	}
	session, err := r.SessionID()
	if err != nil {
		return Snapshot{}, err
	}
	w, err := h.useChangeable(ctx, r.Access, r.Workspace, "snapshot")
	if err != nil {
		return Snapshot{}, err
	}
	if err := h.freeName(w.ID, r.Name); err != nil {
		return Snapshot{}, err
	}
	unlock, err := h.ops.Lock(ctx, w.ID)
	if err != nil {
		return Snapshot{}, err
	}
	if err := errors.Join(h.withinLimits(session), h.roomInHome(ctx)); err != nil {
		unlock()
		return Snapshot{}, err
	}
	thaw, err := h.consistent(ctx, w.ID, r)
	if err != nil {
		unlock()
		return Snapshot{}, err
	}
	s := &catalog.Snapshot{
		Workspace: w.ID, Session: session, Name: r.Name, Description: r.Description,
		CreatedAt: now, ExpiresAt: expires,
	}
	ended := h.yielder.Begin()
	err = h.freeze(ctx, w.ID, r.NoSync, func(ch *catalog.Change, w *catalog.Workspace, top string) error {
		if err := h.freeName(w.ID, r.Name); err != nil {
			return err
		}
		h.putSnapshot(ch, s, w, top)
		return nil
	})
	err = errors.Join(err, thaw())
	unlock()
	ended()
	if err != nil {
		return Snapshot{}, err
	}
	if r.WaitStored {
		// A caller that does not want to wait any longer has its snapshot all the same.
		if err := h.storer.Wait(ctx, s.Top, r.Progress); err != nil && ctx.Err() == nil {
			return Snapshot{}, fmt.Errorf("snapshot %s is sealed, but not stored yet: %w", s.ID, err)
		}
	}
	return h.describeSnapshot(s, maxPage)
}

// consistent brings the processes of a workspace to a halt until thaw is called, if the snapshot asks for it. The
// caller holds the workspace's lock.
func (h *Home) consistent(ctx context.Context, name string, r SnapshotRequest) (thaw func() error, err error) {
	w := h.catalog.Workspace(name)
	if !r.Consistent || w == nil || w.Paused {
		return func() error { return nil }, nil // paused: nothing changes
	}
	_, groups, err := h.groupsOf(ctx, w, r.Cgroup)
	if err != nil {
		return nil, err
	}
	if len(groups) == 0 {
		return nil, fmt.Errorf("%w: the control group of workspace %s is not known, and no container whose processes may be frozen "+
			"has it mounted: name the group (--cgroup DIR), or pause the workspace", ErrConflict, name)
	}
	thaw = func() error {
		if err := groups.Thaw(); err != nil {
			return err // the record stays: the next process that opens the home tries again
		}
		return h.recordFreezing(context.WithoutCancel(ctx), name, nil)
	}
	if err := h.recordFreezing(ctx, name, groups); err != nil {
		return nil, err
	}
	if err := h.stillness(ctx, h.liveOf(name), groups); err != nil {
		return nil, errors.Join(err, thaw())
	}
	return thaw, nil
}

// freeze makes the present state of a workspace the layer top, or finds that it is its base layer already, and records
// it: record changes the workspace, whose upper freeze has set, and adds what else is to be recorded in the same
// transaction. The caller holds the workspace's lock.
func (h *Home) freeze(ctx context.Context, name string, noSync bool,
	record func(ch *catalog.Change, w *catalog.Workspace, top string) error,
) error {
	w := h.catalog.Workspace(name)
	if w == nil {
		return fmt.Errorf("%w: workspace %s", ErrNotFound, api.Quoted(name))
	}
	w, err := h.settled(ctx, w)
	if err != nil {
		return err
	}
	o, push, done, err := h.overlayOf(ctx, w, false)
	if err != nil {
		return err
	}
	defer done()
	changed, err := h.changedIn(ctx, o, name)
	if err != nil {
		return err
	}
	if !changed {
		err := h.catalog.Put(ctx, !noSync, func(ch *catalog.Change) error {
			next := *h.catalog.Workspace(name)
			ch.PutWorkspaces = append(ch.PutWorkspaces, &next)
			return record(ch, &next, next.Base)
		})
		if err != nil || noSync {
			return err
		}
		return unsafeIf(errors.Join(o.SyncSource(), h.syncBelow(w.Base, h.uppers.SyncSealed)))
	}
	return h.seal(ctx, w, o, push, noSync, record)
}

// seal is freeze for a workspace that has changed. The records are durable before the gate closes, and become visible
// when it has opened: a crash in between leaves what was the upper as the layer, with every write until then, below an
// upper that is empty.
func (h *Home) seal(
	ctx context.Context, w *catalog.Workspace, o *layers.Overlay, push func(*layerstore.Lower), noSync bool,
	record func(ch *catalog.Change, w *catalog.Workspace, top string) error,
) error {
	if h.liveOf(w.ID).kernel() != nil {
		return h.capture(ctx, w, noSync, record)
	}
	if h.unsavedBase(w) {
		if changed, err := o.Changed(); err != nil {
			return classify(err)
		} else if !changed {
			return h.sealBase(ctx, w, noSync, record)
		}
	}
	upper, err := h.uppers.Create(ctx)
	if err != nil {
		return classify(fmt.Errorf("making a new upper for %s: %w", w.ID, err))
	}
	// The bulk goes to the disk before the gate closes, the new directories with it: they are on the same file system.
	if !noSync {
		if err := h.uppers.Flush(w.Upper); err != nil {
			return errors.Join(fmt.Errorf("flushing %s: %w", w.ID, err), h.uppers.Remove(upper))
		}
	}
	h.points.At("upper flushed")
	layer := &catalog.Layer{ID: h.catalog.NewID(), Parent: w.Base, State: Sealed, Upper: w.Upper, NoSync: noSync}
	s, err := h.catalog.Stage(ctx, !noSync, func(ch *catalog.Change) error {
		next := *h.catalog.Workspace(w.ID) // its mount may have been recorded as gone meanwhile
		next.Upper = upper
		ch.PutWorkspaces = append(ch.PutWorkspaces, &next)
		ch.PutLayers = append(ch.PutLayers, layer)
		return record(ch, &next, layer.ID)
	})
	if err != nil {
		return errors.Join(err, h.removeUnnamed(upper, err))
	}
	low, err := o.Seal(ctx, layer.ID, h.uppers.Path(upper), h.uppers.Work(upper), uppers.InoBase(upper))
	if err != nil {
		return errors.Join(classify(fmt.Errorf("sealing %s: %w", w.ID, err)), h.withdraw(ctx, s, upper))
	}
	h.points.At("gate opened")
	h.uppers.Leave(w.Upper)
	h.catalog.Show(s)
	push(h.cache.Add(layer.ID, low, layer.Upper))
	if l := h.liveOf(w.ID); l != nil {
		l.upper.Store(upper)
		h.keep(l)
	}
	h.storer.Add(layer.ID)
	// What was written between the flush and the gate is in the snapshot, and must be on the disk before that is
	// acknowledged. So is what was read of a directory on which the workspace stands.
	if noSync {
		return nil
	}
	below := func(below []uint64) error { return h.uppers.SyncUpper(w.Upper, below) }
	return unsafeIf(errors.Join(o.SyncSource(), h.syncBelow(w.Base, below)))
}

// unsafeIf says what an error of a sync means.
func unsafeIf(err error) error {
	if err != nil {
		err = fmt.Errorf("the snapshot is taken, but may not survive a loss of power: %w", err)
	}
	return err
}

// syncBelow calls sync with the uppers of the sealed layers from one down. If that layer is gone, merged perhaps, it is
// not known which are not stored: everything is synced.
func (h *Home) syncBelow(base string, sync func(below []uint64) error) error {
	sealed, err := h.catalog.SealedOf(base)
	if err != nil {
		return h.uppers.SyncAll()
	}
	list := make([]uint64, len(sealed))
	for i, l := range sealed {
		list[i] = l.Upper
	}
	return sync(list)
}

// withdraw undoes a staged change and removes the new upper that it names.
func (h *Home) withdraw(ctx context.Context, s *catalog.Staged, upper uint64) error {
	if err := h.catalog.Withdraw(ctx, s); err != nil {
		return fmt.Errorf("undoing the records: %w", err) // a crash may still make them true: the upper stays
	}
	return h.uppers.Remove(upper)
}

// removeUnnamed removes a new upper whose records could not be written, unless the disk may have them all the same:
// then the next Open knows.
func (h *Home) removeUnnamed(upper uint64, err error) error {
	if errors.Is(err, chunkstore.ErrUnwritable) {
		return nil
	}
	return h.uppers.Remove(upper)
}

// expiry is when a snapshot taken now expires; nil = never.
func expiry(now time.Time, ttl time.Duration, at *time.Time) (*time.Time, error) {
	switch {
	case ttl != 0 && at != nil:
		return nil, fmt.Errorf("%w: give a time to live or a time of expiry, not both", ErrInvalid)
	case ttl < 0:
		return nil, fmt.Errorf("%w: time to live %s is negative", ErrInvalid, ttl)
	case ttl > 0:
		t := now.Add(ttl)
		return &t, nil
	case at == nil:
		return nil, nil
	case !at.After(now):
		return nil, fmt.Errorf("%w: time of expiry %s is past", ErrInvalid, at.Format(time.RFC3339))
	}
	t := at.UTC()
	return &t, nil
}

// Delete deletes a snapshot and frees the layers that nothing else needs; workspaces made from it are not touched. A
// complete id that is not there is a success: it may have been deleted before. ErrConflict for what an apply to a
// directory needs that is under way or was interrupted.
func (h *Home) Delete(ctx context.Context, r RefRequest) error {
	ctx, end, err := h.beginChange(ctx)
	if err != nil {
		return err
	}
	defer end()
	s, err := h.useSnapshot(ctx, r.Access, r.Ref, "delete")
	if errors.Is(err, ErrNotFound) && api.CompleteID(r.Ref) != "" {
		return nil
	}
	if errors.Is(err, ErrNotFound) && h.catalog.Workspace(r.Ref) != nil {
		return fmt.Errorf("%w: to remove one, destroy it", err)
	}
	if err != nil {
		return err
	}
	session, err := r.SessionID()
	if err != nil {
		return err
	}
	return h.deleteSnapshot(ctx, s, h.event(EventSnapshotDeleted, s.Workspace, session, s.ID, s.Name))
}

// deleteSnapshot removes a record and what only it kept. ErrConflict if an apply to a directory needs it.
func (h *Home) deleteSnapshot(ctx context.Context, s *catalog.Snapshot, e Event) error {
	gone, err := h.catalog.Update(ctx, true, func(ch *catalog.Change) error {
		if err := h.notApplying(s); err != nil {
			return err
		}
		if h.catalog.Snapshot(s.ID) != nil {
			ch.DelSnapshots = append(ch.DelSnapshots, s)
			ch.Events = append(ch.Events, e)
		}
		return nil
	})
	if err != nil {
		return err
	}
	h.cache.Forget(gone)
	h.storer.Abandon()
	h.merger.Kick()
	return nil
}
