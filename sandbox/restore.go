package sandbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/catalog"
)

// Restore makes a new workspace of a snapshot, named {origin}-restored-{short} if it is given no name, and mounts it if a
// mountpoint is given. The origin is not touched. If the mount fails, the workspace is gone again.
func (h *Home) Restore(ctx context.Context, r RestoreRequest) (Workspace, error) {
	return h.derive(ctx, r, "restored", EventRestored)
}

// Branch is Restore under the name {origin}-branch-{short}.
func (h *Home) Branch(ctx context.Context, r RestoreRequest) (Workspace, error) {
	return h.derive(ctx, r, "branch", EventBranched)
}

func (h *Home) derive(ctx context.Context, r RestoreRequest, how string, kind EventKind) (Workspace, error) {
	ctx, end, err := h.beginChange(ctx)
	if err != nil {
		return Workspace{}, err
	}
	defer end()
	defer h.yielder.Begin()()
	if err := errors.Join(validMountOptions(r.MountOptions), r.Labels.Valid(), r.Quota.Valid()); err != nil {
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
	s, err := h.useSnapshot(ctx, r.Access, r.Snapshot, how)
	if err != nil {
		return Workspace{}, err
	}
	if err := h.restorable(s); err != nil {
		return Workspace{}, err
	}
	name, unlock, err := h.reserveDerived(who, r.Name, s.Workspace, how)
	if err != nil {
		return Workspace{}, err
	}
	defer unlock()
	now, then := derivedEvents(r.Mountpoint, h.event(kind, s.Workspace, session, s.ID, name))
	events := append([]Event{h.event(EventCreated, name, session, s.ID, how)}, now...)
	w := h.onSnapshot(name, session, s)
	w.Labels = maps.Clone(r.Labels)
	w.Engine = engineFor(w, r.MountOptions)
	w.Quota = h.quotaFrom(ctx, r.Quota, s)
	if err := h.addMounted(ctx, w, s, r, events, then); err != nil {
		return Workspace{}, err
	}
	return h.describe(h.catalog.Workspace(name))
}

// onSnapshot is the record of a new workspace on top of a snapshot.
func (h *Home) onSnapshot(name, session string, s *catalog.Snapshot) *catalog.Workspace {
	foreign := h.foreignSnapshot(s)
	return &catalog.Workspace{
		ID: name, Session: session, Origin: s.ID, Head: s.ID, Base: s.Top, Source: "snapshot " + s.ID,
		Foreign: &foreign, CreatedAt: h.now(), First: h.catalog.NewID(),
	}
}

// addMounted adds a workspace made of a snapshot, with the events now, and mounts it if the request has a mountpoint,
// with the events then. The caller holds the lock of its name.
func (h *Home) addMounted(
	ctx context.Context, w *catalog.Workspace, s *catalog.Snapshot, r RestoreRequest, now, then []Event,
) (err error) {
	var at mountLocation
	if r.Mountpoint != "" {
		if ctx, r.MountOptions, err = mountFor(ctx, w, r.Mountpoint, r.MountOptions); err != nil {
			return err
		}
		if at, err = h.locationFor(ctx, w, r.Mountpoint, r.MakeMountpoint); err != nil {
			return err
		}
		if r.TrackReads {
			if w.Reads, err = h.newReads(w); err != nil {
				at.leave()
				return err
			}
		}
		w.Mount = h.wanted(at, r.MountOptions) // one transaction for both
	}
	if err = h.addWorkspace(ctx, w, s, now...); err != nil {
		at.leave()
		return err
	}
	if r.Mountpoint != "" {
		if err := h.mountAt(ctx, w, w.Session, at, r.MountOptions, then); err != nil {
			at.leave()
			return errors.Join(err, h.destroyUnmounted(ctx, w.ID, w.Session))
		}
	}
	return nil
}

// still gives the present record of a snapshot that may have been deleted since it was looked up.
func (h *Home) still(s *catalog.Snapshot) (*catalog.Snapshot, error) {
	now := h.catalog.Snapshot(s.ID)
	if now == nil {
		return nil, fmt.Errorf("%w: snapshot %s has just been deleted", ErrNotFound, s.ID)
	}
	return now, nil
}

// restorable refuses a snapshot that is past its time and waits for the sweep.
func (h *Home) restorable(s *catalog.Snapshot) error {
	if s.Expired(h.now()) {
		return fmt.Errorf("%w: snapshot %s expired at %s", ErrInvalid, s.ID, s.ExpiresAt.Format(time.RFC3339))
	}
	return nil
}

// derivedEvents says when what the origin's log has of a new workspace is recorded: now, with the workspace, or where
// that is to be mounted, then, with the mount, which may fail and leave nothing.
func derivedEvents(mountpoint string, events ...Event) (now, then []Event) {
	if mountpoint == "" {
		return events, nil
	}
	return nil, events
}

// mountNew mounts a workspace that was just made, if that is wanted, and destroys it again if it cannot; events are
// recorded if it can. The caller holds its lock.
func (h *Home) mountNew(
	ctx context.Context, name, session, mountpoint string, makeIt bool, opts MountOptions, events ...Event,
) (Workspace, error) {
	if mountpoint != "" {
		if err := h.mountLocked(ctx, name, session, mountpoint, makeIt, opts, events...); err != nil {
			return Workspace{}, errors.Join(err, h.destroyUnmounted(ctx, name, session))
		}
	}
	return h.describe(h.catalog.Workspace(name))
}

// destroyUnmounted removes a workspace that was just made and could not be mounted.
func (h *Home) destroyUnmounted(ctx context.Context, name, session string) error {
	e := h.event(EventDestroyed, name, session, "", "its mount failed")
	return h.destroyLocked(context.WithoutCancel(ctx), name, e)
}

// reserveDerived holds the lock of the name that is wanted for a workspace made from another, or finds a free one.
func (h *Home) reserveDerived(who asker, wanted, origin, how string) (name string, unlock func(), err error) {
	if wanted != "" {
		if err := ValidWorkspaceName(wanted); err != nil {
			return "", nil, err
		}
		unlock, err = h.reserveName(who, wanted)
		return wanted, unlock, err
	}
	for _, digits := range []int{4, 4, 4, 8, 12} {
		name = api.DerivedName(origin, how, digits)
		if unlock, err = h.reserveName(who, name); err == nil {
			return name, unlock, nil
		}
	}
	return "", nil, fmt.Errorf("no free name for a workspace made from %s: %w", origin, err)
}

// Fork makes a new workspace, named {origin}-fork-{short} if it is given no name, from the current state of
// another, without a snapshot. A workspace that is written to goes on behind a brief barrier; that of a paused one is
// paused, too, and has no control group. If a mountpoint is given the new one is mounted there.
func (h *Home) Fork(ctx context.Context, r ForkRequest) (Workspace, error) {
	ctx, end, err := h.beginChange(ctx)
	if err != nil {
		return Workspace{}, err
	}
	defer end()
	if err := errors.Join(validMountOptions(r.MountOptions), r.Labels.Valid(), r.Quota.Valid()); err != nil {
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
	origin, err := h.useChangeable(ctx, r.Access, r.Workspace, "fork")
	if err != nil {
		return Workspace{}, err
	}
	// The new name's lock is taken without waiting, so that the order of the two does not matter.
	name, unlockNew, err := h.reserveDerived(who, r.Name, origin.ID, "fork")
	if err != nil {
		return Workspace{}, err
	}
	defer unlockNew()
	unlock, err := h.ops.Lock(ctx, origin.ID)
	if err != nil {
		return Workspace{}, err
	}
	defer unlock()
	upper, err := h.uppers.CreateDurable(ctx)
	if err != nil {
		return Workspace{}, err
	}
	now, then := derivedEvents(r.Mountpoint, h.event(EventForked, origin.ID, session, "", name))
	err = h.freeze(ctx, origin.ID, false, func(ch *catalog.Change, w *catalog.Workspace, top string) error {
		w.Base = top
		foreign := w.IsForeign()
		ch.PutWorkspaces = append(ch.PutWorkspaces, &catalog.Workspace{
			ID: name, Session: session, Origin: w.Head, Head: w.Head, Base: top, Upper: upper, Paused: w.Paused,
			Source: forkSource + w.ID, Foreign: &foreign, CreatedAt: h.now(), First: h.catalog.NewID(),
			Labels: maps.Clone(r.Labels),
			Quota:  quotaLike(ctx, r.Quota, w.Quota),
			Engine: engineFor(&catalog.Workspace{}, r.MountOptions),
		})
		ch.Events = append(append(ch.Events, h.event(EventCreated, name, session, "", "fork")), now...)
		if w.Paused {
			ch.Events = append(ch.Events, h.event(EventPaused, name, session, "", "as "+w.ID))
		}
		return nil
	})
	if err != nil {
		if h.catalog.Workspace(name) == nil {
			return Workspace{}, errors.Join(err, h.uppers.Remove(upper))
		}
		return Workspace{}, err
	}
	return h.mountNew(ctx, name, session, r.Mountpoint, r.MakeMountpoint, r.MountOptions, then...)
}
