package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"snapfs/sandbox/internal/catalog"
)

// aside runs a change of the tree of a workspace that the kernel's overlayfs may show. That cannot follow, so the mount
// is taken away and made again: ErrConflict if programs, or copies of the mount, would be left with the old tree, unless
// force leaves it to them. The caller holds the workspace's lock.
func (h *Home) aside(
	ctx context.Context, w *catalog.Workspace, session string, force bool, change func(w *catalog.Workspace) error,
) error {
	l := h.liveOf(w.ID)
	state := Unmounted
	if l.kernel() != nil {
		mounts, err := readMounts()
		if err != nil {
			return err
		}
		state = l.state(mounts)
	}
	if state == Unmounted { // also what FUSE shows
		now, err := h.leaveTree(ctx, h.catalog.Workspace(w.ID), force)
		if err != nil {
			return err
		}
		return change(now)
	}
	how, made := l.shown.Load(), w.Mount != nil && w.Mount.Made
	if err := h.takeAside(ctx, l, w, state, force); err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx)
	now, err := h.leaveTree(ctx, h.catalog.Workspace(w.ID), force)
	if err == nil {
		err = change(now)
	}
	if state == Detached {
		return err
	}
	if !how.at.view.own() {
		ctx = context.WithValue(ctx, viewKey{}, how.at.view)
	}
	if e := h.mountLocked(ctx, w.ID, session, how.at.path, made, how.asked); e != nil {
		err = errors.Join(err, fmt.Errorf("workspace %s is not mounted any more: %w", w.ID, e))
	}
	return err
}

// takeAside takes the mount of a workspace by the kernel's overlayfs away. With force it is given up where programs hold it.
func (h *Home) takeAside(ctx context.Context, l *live, w *catalog.Workspace, state WorkspaceState, force bool) error {
	if force {
		if err := l.shown.Load().attached.Unmount(true); err != nil {
			return classify(fmt.Errorf("unmounting %s: %w", l.at().path, err))
		}
		l.kernel().ended() // for this process; leaveTree finds out whether it has
		if !l.waitGone(context.WithoutCancel(ctx), endWait) {
			return fmt.Errorf("%w: the mount of workspace %s does not end", ErrUnavailable, w.ID)
		}
		return nil
	}
	const leave = "use force (--force), which leaves the old tree to it"
	const do = "end that, " + leave + ", or mount it with --engine fuse"
	if state == Detached {
		return fmt.Errorf("%w: workspace %s is detached: %s, or %s", ErrConflict, w.ID, h.detachedHolder(l), leave)
	}
	if by := h.copiesOf(l); by != "" {
		return fmt.Errorf("%w: workspace %s is mounted by the kernel's overlayfs, and %s would keep the old tree: %s",
			ErrConflict, w.ID, by, do)
	}
	err := l.shown.Load().attached.Unmount(false)
	if errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("%w: workspace %s is mounted by the kernel's overlayfs, and used%s, which would keep the old tree: %s",
			ErrConflict, w.ID, cmp.Or(h.holdsInside(l), usedBy(l)), do)
	}
	if err != nil {
		return classify(fmt.Errorf("unmounting %s: %w", l.at().path, err))
	}
	if !l.waitGone(ctx, detachWait) && l.mount.Ended() {
		l.waitGone(ctx, endWait)
	}
	if !l.mount.Ended() {
		h.leaveDetached(h.catalog.Workspace(w.ID))
		return fmt.Errorf("%w: workspace %s is unmounted, but programs still use its mount: end them, and mount it again",
			ErrConflict, w.ID)
	}
	return nil
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
		by = copyOf(v)
		return false
	})
	return by
}
