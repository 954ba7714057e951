package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/internal/lockorder"
)

const (
	// detachWait is how long after an unmount the end of the connection is awaited before copies of the mount elsewhere
	// must be the reason that it lives.
	detachWait = time.Second
	abortWait  = 5 * time.Second
	// endWait is for how long what is left to do for a connection that has ended is awaited.
	endWait = 10 * time.Second
)

// Unmount ends the mount of a workspace. ErrConflict while programs use it, naming some of them, and for a workspace
// that is not mounted. If a copy of the mount lives in another mount namespace, the workspace is detached afterwards.
func (h *Home) Unmount(ctx context.Context, r UnmountRequest) (Workspace, error) {
	begin := h.beginChange
	if r.Force { // it is to end what hangs
		begin = h.begin
	}
	ctx, end, err := begin(ctx)
	if err != nil {
		return Workspace{}, err
	}
	defer end()
	w, err := h.useWorkspace(ctx, r.Access, r.Workspace, "unmount")
	if err != nil {
		return Workspace{}, err
	}
	if w.Lower {
		return Workspace{}, isLower(w)
	}
	unlock, err := h.ops.Lock(ctx, w.ID)
	if err != nil {
		return Workspace{}, err
	}
	defer unlock()
	l := h.liveOf(w.ID)
	if l == nil {
		if w = h.catalog.Workspace(w.ID); w == nil || w.Mount == nil || !w.Mount.Mounted {
			return Workspace{}, fmt.Errorf("%w: workspace %s is not mounted", ErrConflict, r.Workspace)
		}
		h.giveUp(w) // a mount of an earlier process, which could not be made again
		return h.describe(w)
	}
	mounts, err := readMounts()
	if err != nil {
		return Workspace{}, err
	}
	switch state := l.state(mounts); {
	case state == Unmounted && l.kernel() != nil: // it has ended
		h.settleLogged(ctx, w.ID)
		return h.describe(h.catalog.Workspace(w.ID))
	case state == Detached && !r.Force:
		return Workspace{}, fmt.Errorf("%w: workspace %s is detached: %s",
			ErrConflict, w.ID, h.detachedHolder(l))
	}
	if !r.Force {
		if err := h.copiedWhere(ctx, l); err != nil {
			return Workspace{}, err
		}
	}
	if err := h.follow(ctx, w, l); err != nil {
		return Workspace{}, err
	}
	if r.Force {
		// Requests that wait at the gate would keep the connection from ending.
		l.overlay.Resume()
	}
	if err := h.unmount(ctx, l, r.Force); err != nil {
		return Workspace{}, err
	}
	if mounts, err = readMounts(); err == nil && l.reported(mounts) == Detached {
		h.leaveDetached(h.catalog.Workspace(w.ID))
	}
	h.settleLogged(ctx, w.ID)
	now, err := h.describe(h.catalog.Workspace(w.ID))
	if err == nil && now.State == Mounted {
		return now, fmt.Errorf("%w: workspace %s is still mounted at %s: that is a copy of its mount, or where it was moved to",
			ErrConflict, w.ID, now.Mountpoint)
	}
	h.dropSnapshotView(context.WithoutCancel(ctx), w.ID)
	return now, err
}

// unmount detaches a mount here; with force it ends the connection everywhere.
func (h *Home) unmount(ctx context.Context, l *live, force bool) error {
	err := l.shown.Load().attached.Unmount(force)
	if errors.Is(err, unix.EBUSY) {
		do := "end the programs or leave the directory, or unmount with force"
		if l.kernel() != nil {
			do += ", which leaves the mount to them: the workspace is detached until they end"
		}
		return fmt.Errorf("%w: %s is in use%s: %s", ErrConflict, l.where(), cmp.Or(h.holdsInside(l), usedBy(l)), do)
	}
	if err != nil && !force {
		return classify(fmt.Errorf("unmounting %s: %w", l.at().path, err))
	}
	if !force {
		if !l.waitGone(ctx, detachWait) && l.mount.Ended() {
			l.waitGone(ctx, endWait)
		}
		return nil
	}
	if l.waitGone(ctx, detachWait/10) {
		return nil
	}
	if err := l.mount.Abort(); err != nil {
		return classify(fmt.Errorf("ending the connection of %s: %w", l.at().path, err))
	}
	// Programs have their errors once the connection has ended. The rest may have to wait for a disk that takes no
	// changes.
	if !l.waitGone(ctx, abortWait) && !l.mount.Ended() {
		return fmt.Errorf("%w: the connection of %s does not end", ErrUnavailable, l.at().path)
	}
	return nil
}

// unmountAll ends every connection: gently, then lazily, after the grace period by force.
func (h *Home) unmountAll(grace time.Duration) error {
	var (
		wg   sync.WaitGroup
		mu   lockorder.Mutex[lockorder.UnmountErrors]
		errs []error
	)
	all := h.allLive()
	// What is mounted inside another mount goes first, and what stands on it.
	outer, inner := map[*live][]*live{}, map[*live]*sync.WaitGroup{}
	for _, l := range all {
		inner[l] = &sync.WaitGroup{}
	}
	for _, l := range all {
		for _, o := range all {
			if isInside(l, o) || h.standsOn(l, o) {
				outer[l] = append(outer[l], o)
				inner[o].Add(1)
			}
		}
	}
	for _, l := range all {
		wg.Go(func() {
			defer func() {
				for _, o := range outer[l] {
					inner[o].Done()
				}
			}()
			inner[l].Wait()
			ctx, cancel := context.WithTimeout(context.Background(), grace)
			defer cancel()
			if done, ok := l.use(); ok {
				l.overlay.Resume()
				done()
			}
			if err := l.shown.Load().attached.Unmount(false); err != nil {
				if err := l.shown.Load().attached.Unmount(true); err != nil {
					h.log.Warn("unmounting", "mountpoint", l.at().path, "error", err)
				}
			}
			if l.waitGone(ctx, grace/2) {
				return
			}
			if k := l.kernel(); k != nil { // it goes on without this process, for who still uses it
				k.ended()
				l.waitGone(context.Background(), endWait)
				return
			}
			h.log.Warn("ending a connection by force", "workspace", l.workspace(), "mountpoint", l.at().path)
			err := l.mount.Abort()
			if !l.waitGone(context.Background(), abortWait) {
				mu.Lock()
				errs = append(errs, fmt.Errorf("the connection of %s does not end: %w",
					l.at().path, errors.Join(err, unix.EBUSY)))
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// isInside reports whether a mount is inside another one.
func isInside(l, outer *live) bool {
	a, b := l.at(), outer.at()
	return a.path != b.path && below(a.path, b.path) && sameNamespace(a.view, b.view)
}

// standsOn reports whether a mount is an overlay of the kernel over what another one shows.
func (h *Home) standsOn(l, lower *live) bool {
	if l.kernel() == nil {
		return false
	}
	w := h.catalog.Workspace(l.workspace())
	return w != nil && w.Kernel != nil && w.Kernel.View == lower.workspace()
}

// holdsInside names the workspaces that are mounted inside a mount, for a message; "" if there are none.
func (h *Home) holdsInside(l *live) string {
	text := ""
	for _, inner := range h.allLive() {
		if isInside(inner, l) {
			text += fmt.Sprintf(" by workspace %s, which is mounted inside", inner.workspace())
		}
	}
	return text
}
