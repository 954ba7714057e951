package sandbox

import (
	"context"
	"fmt"

	"snapfs/sandbox/internal/catalog"
)

// A view of a snapshot is a workspace that is there for one read-only mount, and is destroyed with that: when it is
// unmounted, by whatever, and what a crash has left of it when the home is opened, unless it is mounted again then. It
// has a name and a log as any workspace, and lists leave it out. The log of the snapshot's workspace does not have it: to
// look is no change.

// mountSnapshot mounts a view of a snapshot. One that is at the mountpoint already, with the same options, does.
func (h *Home) mountSnapshot(ctx context.Context, r MountRequest, s *catalog.Snapshot) (Workspace, error) {
	if r.Mountpoint == "" {
		return Workspace{}, fmt.Errorf("%w: snapshot %s: name a mountpoint", ErrInvalid, fullName(s))
	}
	if r.TrackReads {
		return Workspace{}, fmt.Errorf("%w: %s is a snapshot: what programs read is tracked in workspaces "+
			"('snapfs branch --track-reads')", ErrInvalid, fullName(s))
	}
	who, err := newAsker(ctx, r.Access)
	if err != nil {
		return Workspace{}, err
	}
	if err := h.restorable(s); err != nil {
		return Workspace{}, err
	}
	there, err := h.snapshotViewAt(ctx, who.session, s, r.Mountpoint)
	if err != nil {
		return Workspace{}, err
	}
	if there != "" {
		unlock, err := h.ops.Lock(ctx, there)
		if err != nil {
			return Workspace{}, err
		}
		defer unlock()
		if h.catalog.Workspace(there) != nil {
			return h.mountNamed(ctx, there, who.session, r)
		}
	}
	name, unlock, err := h.reserveDerived(who, "", s.Workspace, "view")
	if err != nil {
		return Workspace{}, err
	}
	defer unlock()
	w := h.onSnapshot(name, who.session, s)
	w.View = true
	created := h.event(EventCreated, name, who.session, s.ID, "view")
	where := RestoreRequest{Mountpoint: r.Mountpoint, MakeMountpoint: r.MakeMountpoint, MountOptions: r.MountOptions}
	if err := h.addMounted(ctx, w, s, where, []Event{created}, nil); err != nil {
		return Workspace{}, err
	}
	return h.describe(h.catalog.Workspace(name))
}

// snapshotViewAt finds the view of a snapshot that a session has mounted at a place, "" if there is none.
func (h *Home) snapshotViewAt(
	ctx context.Context, session string, s *catalog.Snapshot, mountpoint string,
) (string, error) {
	var at location
	for _, l := range h.allLive() {
		w := h.catalog.Workspace(l.workspace())
		if w == nil || !w.View || w.Origin != s.ID || w.Session != session {
			continue
		}
		if at.path == "" {
			var err error
			if at, _, err = h.mountTarget(ctx, w, mountpoint); err != nil {
				return "", err
			}
		}
		if at.path == l.at().path && sameNamespace(at.view, l.at().view) {
			return w.ID, nil
		}
	}
	return "", nil
}

// useChangeable is useWorkspace for a call that a view of a snapshot does not take.
func (h *Home) useChangeable(ctx context.Context, a Access, name, what string) (*catalog.Workspace, error) {
	w, err := h.useWorkspace(ctx, a, name, what)
	if err != nil {
		return nil, err
	}
	return w, h.changeable(w)
}

// changeable refuses a view of a snapshot.
func (h *Home) changeable(w *catalog.Workspace) error {
	if !w.View {
		return nil
	}
	if w.Lower {
		return isLower(w)
	}
	name := w.Origin
	if s := h.catalog.Snapshot(name); s != nil {
		name = fullName(s)
	}
	return fmt.Errorf("%w: %s is a read-only view of snapshot %s, and goes with its mount: "+
		"make a workspace of the snapshot ('snapfs branch %s')", ErrConflict, w.ID, name, name)
}

// dropSnapshotView destroys a view that is not mounted any more, and is not to be mounted again. The caller holds its
// lock, or nothing uses the home yet.
func (h *Home) dropSnapshotView(ctx context.Context, name string) {
	w := h.catalog.Workspace(name)
	if w == nil || !w.View || w.Mount != nil && w.Mount.Mounted || h.liveOf(name) != nil {
		return
	}
	e := h.event(EventDestroyed, name, "", w.Origin, "its mount has ended")
	if err := h.destroyLocked(ctx, name, e); err != nil {
		h.log.Warn("a view of a snapshot stays until the home is opened again", "workspace", name, "error", err)
	}
}

// dropSnapshotViews destroys the views that a crash has left after their mounts had ended.
func (h *Home) dropSnapshotViews(ctx context.Context) {
	for _, w := range h.catalog.Workspaces() {
		h.dropSnapshotView(ctx, w.ID)
	}
}

// viewEnds is called when nothing of a connection is left but that its end is not told yet. It gives what is to be
// called after that.
func (h *Home) viewEnds(name string) (after func()) {
	if w := h.catalog.Workspace(name); w == nil || !w.View {
		return func() {}
	}
	ctx, end, err := h.begin(h.ctx) // Close waits for it
	if err != nil {
		return func() {} // the next process mounts it again, or drops it
	}
	return func() {
		defer end()
		// Who unmounts it waits for its end under the lock, and drops it.
		if unlock, err := h.ops.Lock(ctx, name); err == nil {
			h.dropSnapshotView(ctx, name)
			unlock()
		}
	}
}
