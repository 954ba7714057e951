package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"

	"snapfs/layers"
	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/catalog"
)

// Create makes a workspace: empty, or from a directory, an image or a snapshot. What it is made from is read, and not
// changed. A large directory is read when the workspace is there already: see CreateRequest.
func (h *Home) Create(ctx context.Context, r CreateRequest) (Workspace, error) {
	ctx, end, err := h.beginChange(ctx)
	if err != nil {
		return Workspace{}, err
	}
	defer end()
	if err := errors.Join(ValidWorkspaceName(r.Name), r.Labels.Valid(), r.Quota.Valid(), validEngine(r.Engine)); err != nil {
		return Workspace{}, err
	}
	who, err := newAsker(ctx, r.Access)
	if err != nil {
		return Workspace{}, err
	}
	session := who.session
	if err := h.roomForWorkspace(session); err != nil {
		return Workspace{}, err
	}
	unlock, err := h.reserveName(who, r.Name)
	if err != nil {
		return Workspace{}, err
	}
	defer unlock()
	src, err := h.findSource(ctx, r)
	if err != nil {
		return Workspace{}, err
	}
	w := &catalog.Workspace{
		ID: r.Name, Session: session, Source: src.label, Foreign: &src.foreign, CreatedAt: h.now(), First: h.catalog.NewID(),
		Labels: maps.Clone(r.Labels),
		Quota:  quotaOf(r.Quota),
	}
	w.Engine = engineFor(w, MountOptions{Engine: r.Engine})
	if src.snapshot != nil {
		w.Quota = h.quotaFrom(ctx, r.Quota, src.snapshot)
		w.Origin, w.Head, w.Base = src.snapshot.ID, src.snapshot.ID, src.snapshot.Top
	}
	created := h.event(EventCreated, w.ID, session, w.Origin, src.label)
	stands := false
	if !r.WaitImported && r.Part.All() {
		if stands, err = h.mayStandOn(ctx, src); err != nil {
			return Workspace{}, err
		}
		if stands && w.Quota != nil {
			if stands, err = h.surelyFits(ctx, src.label, *w.Quota); err != nil {
				return Workspace{}, err
			}
		}
	}
	switch {
	case src.archive != nil:
		err = h.importArchive(ctx, w, src.archive, r.Progress, created)
	case src.load == nil:
		err = h.addWorkspace(ctx, w, src.snapshot, created)
	case stands:
		err = h.standOn(ctx, w, src, created)
	default:
		err = h.loadWorkspace(ctx, w, src, r.Progress, created)
	}
	if err == nil && w.Quota != nil && !stands && (src.archive != nil || src.load != nil) {
		err = h.fitsImported(ctx, w)
	}
	if errors.Is(err, layers.ErrTooLarge) {
		err = h.tooLarge(ctx, w, src)
	}
	if err != nil {
		return Workspace{}, err
	}
	return h.describe(h.catalog.Workspace(w.ID))
}

// reserveName holds the lock of a name that is to be taken; ErrConflict if it is taken or about to be, or if the asker
// knows a snapshot by it; ErrInvalid if it could be an id.
func (h *Home) reserveName(who asker, name string) (unlock func(), err error) {
	// Until 2527 ids begin with 0: dead and 2026 are no abbreviations of any.
	if api.IsID(name) || api.IsPrefix(name) && name[0] == '0' {
		return nil, fmt.Errorf("%w: workspace name %s: looks like the id of a snapshot or the beginning of one: put a "+
			"word before it, as in w-%s", ErrInvalid, api.Quoted(name), name)
	}
	if err := h.freeWord(who, name); err != nil {
		return nil, err
	}
	unlock, ok := h.ops.TryLock(name)
	if h.catalog.Workspace(name) != nil {
		err = fmt.Errorf("%w: workspace %s exists already", ErrConflict, name)
	} else if !ok {
		err = fmt.Errorf("%w: workspace %s is being created or destroyed", ErrConflict, name)
	}
	if err != nil && ok {
		unlock()
	}
	return unlock, err
}

// addWorkspace records a new workspace with an empty upper over a layer that exists; from, if not nil, must still exist
// then. The caller holds the lock of the name.
func (h *Home) addWorkspace(ctx context.Context, w *catalog.Workspace, from *catalog.Snapshot, events ...Event) error {
	upper, err := h.upperOver(ctx, w.Base)
	if err != nil {
		return err
	}
	w.Upper = upper
	if w.Base == "" {
		if err := h.ownRoot(ctx, upper); err != nil {
			return errors.Join(err, h.uppers.Remove(upper))
		}
	}
	err = h.catalog.Put(ctx, true, func(ch *catalog.Change) error {
		if from != nil && h.catalog.Snapshot(from.ID) == nil {
			return fmt.Errorf("%w: snapshot %s has just been deleted", ErrNotFound, from.ID)
		}
		ch.PutWorkspaces = append(ch.PutWorkspaces, w)
		ch.Events = append(ch.Events, events...)
		return nil
	})
	if err != nil {
		return errors.Join(err, h.uppers.Remove(upper))
	}
	return nil
}

// upperOver gives an empty upper, durably, for what stands on a layer; without one it is made now, for its root's times
// are then those of the tree.
func (h *Home) upperOver(ctx context.Context, base string) (uint64, error) {
	if base != "" {
		if upper, ok := h.uppers.TakeReady(); ok {
			return upper, nil
		}
	}
	return h.uppers.CreateDurable(ctx)
}

// Destroy removes a workspace. What it has that no snapshot has is kept as a snapshot without a name, which expires,
// unless Now gives it up. ErrConflict while it is mounted or detached.
func (h *Home) Destroy(ctx context.Context, r DestroyRequest) (DestroyResult, error) {
	ctx, end, err := h.beginChange(ctx)
	if err != nil {
		return DestroyResult{}, err
	}
	defer end()
	if r.KeepFor < 0 {
		return DestroyResult{}, fmt.Errorf("%w: to keep it for %s: the time is negative", ErrInvalid, r.KeepFor)
	}
	session, err := r.SessionID()
	if err != nil {
		return DestroyResult{}, err
	}
	w, err := h.useWorkspace(ctx, r.Access, r.Ref, "destroy")
	if err != nil {
		return DestroyResult{}, err
	}
	w, unlock, err := h.lockWorkspace(ctx, w.ID)
	if err != nil {
		return DestroyResult{}, err
	}
	defer unlock()
	if l := h.liveOf(w.ID); l != nil {
		mounts, err := readMounts()
		if err != nil {
			return DestroyResult{}, err
		}
		switch l.state(mounts) {
		case Detached:
			return DestroyResult{}, fmt.Errorf("%w: workspace %s is detached: %s",
				ErrConflict, w.ID, h.detachedHolder(l))
		case Mounted:
			return DestroyResult{}, fmt.Errorf("%w: workspace %s is mounted at %s: unmount it first, or destroy it with --force",
				ErrConflict, w.ID, l.where())
		}
	}
	result := DestroyResult{Workspace: w.ID}
	if !r.Now {
		kept, err := h.keepDestroyed(ctx, w, cmp.Or(r.KeepFor, api.DefaultKeepFor))
		if err != nil {
			return DestroyResult{}, fmt.Errorf("what is unsaved cannot be kept (--now, in Go Now, gives it up): %w", err)
		}
		if kept != nil {
			d, err := h.describeSnapshot(kept, maxPage)
			if err != nil {
				return DestroyResult{}, err
			}
			result.Kept = &d
			ctx = context.WithoutCancel(ctx) // from here on it is done
		}
	}
	return result, h.destroyLocked(ctx, w.ID, h.event(EventDestroyed, w.ID, session, "", ""))
}

// destroyLocked removes a workspace that has no connection. The caller holds its lock.
func (h *Home) destroyLocked(ctx context.Context, name string, e Event) error {
	if w := h.catalog.Workspace(name); w != nil {
		if err := h.mayTakeUpper(ctx, w); err != nil {
			return err
		}
	}
	if w := h.catalog.Workspace(name); w != nil && w.Paused {
		// Nobody could let its processes go on afterwards.
		if err := frozenFor(w).Thaw(); err != nil {
			return err
		}
	}
	var (
		upper  uint64
		mount  *catalog.Mount
		kernel *catalog.Kernel
		reads  *catalog.Reads
	)
	gone, err := h.catalog.Update(ctx, true, func(ch *catalog.Change) error {
		w := h.catalog.Workspace(name)
		if w == nil {
			return fmt.Errorf("%w: workspace %s", ErrNotFound, api.Quoted(name))
		}
		upper, mount, kernel, reads = w.Upper, w.Mount, w.Kernel, w.Reads
		ch.DelWorkspaces = append(ch.DelWorkspaces, w)
		ch.PutTrash = append(ch.PutTrash, w.Upper)
		ch.Events = append(ch.Events, e)
		return nil
	})
	if err != nil {
		return err
	}
	if mount != nil && mount.Mounted {
		h.vacate(mount)
	}
	if kernel != nil {
		h.leaveLower(ctx, kernel.View)
	}
	h.dropReads(reads)
	h.accounts.drop(name)
	h.uppers.Discard(upper)
	h.cache.Forget(gone)
	h.storer.Abandon()
	h.merger.Kick()
	return nil
}
