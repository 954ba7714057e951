package sandbox

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"snapfs/sandbox/internal/catalog"
)

// aside runs a change of the tree of a workspace that the kernel's overlayfs may show. That cannot follow, so the mount
// is taken away and made again: ErrConflict if programs, or copies of the mount, would be left with the old tree. The
// caller holds the workspace's lock.
func (h *Home) aside(
	ctx context.Context, w *catalog.Workspace, session string, change func(w *catalog.Workspace) error,
) error {
	l := h.liveOf(w.ID)
	if l.kernel() == nil {
		now, err := h.settled(ctx, w)
		if err != nil {
			return err
		}
		return change(now)
	}
	mounts, err := readMounts()
	if err != nil {
		return err
	}
	switch l.state(mounts) {
	case Unmounted: // it has ended
		now, err := h.settled(ctx, h.catalog.Workspace(w.ID))
		if err != nil {
			return err
		}
		return change(now)
	case Detached:
		return fmt.Errorf("%w: workspace %s is detached: %s", ErrConflict, w.ID, h.detachedHolder(l))
	}
	if by := h.copiesOf(l); by != "" {
		return fmt.Errorf("%w: workspace %s is mounted by the kernel's overlayfs, and %s would keep the old tree: end that, "+
			"or mount it with --engine fuse", ErrConflict, w.ID, by)
	}
	how, made := l.shown.Load(), w.Mount != nil && w.Mount.Made
	if err := h.unmount(ctx, l, false); err != nil {
		return err
	}
	if !l.mount.Ended() {
		h.leaveDetached(h.catalog.Workspace(w.ID))
		return fmt.Errorf("%w: workspace %s is unmounted, but programs still use its mount: end them, and mount it again",
			ErrConflict, w.ID)
	}
	ctx = context.WithoutCancel(ctx)
	now, err := h.settled(ctx, h.catalog.Workspace(w.ID))
	if err == nil {
		err = change(now)
	}
	if !how.at.view.own() {
		ctx = context.WithValue(ctx, viewKey{}, how.at.view)
	}
	if e := h.mountLocked(ctx, w.ID, session, how.at.path, made, how.asked); e != nil {
		err = errors.Join(err, fmt.Errorf("workspace %s is not mounted any more: %w", w.ID, e))
	}
	return err
}

// copiesOf names a process that sees another mount of a connection than the one that is recorded; "" if there is none.
func (h *Home) copiesOf(l *live) (by string) {
	own := 0
	if mounts, err := l.at().view.mounts(); err == nil {
		own = len(l.entries(mounts))
	}
	if own > 1 {
		return "another mount of it"
	}
	h.eachNamespace(func(v view, mounts mountTable) bool {
		stays := func(e mountEntry) bool { return l.is(e) && e.apart }
		if sameNamespace(v, l.at().view) || !slices.ContainsFunc(mounts, stays) {
			return true
		}
		by = "a copy of the mount in the mount namespace of " + processName(fmt.Sprintf("/proc/%d", v.pid), v.pid)
		return false
	})
	return by
}
