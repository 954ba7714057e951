package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/catalog"
	"snapfs/sandbox/internal/peer"
)

// remountLocked changes the options of a mount, as mount -o remount does: words are in their order, and what none of
// them is about stays. A mountpoint that is not empty must be that of the mount. The caller holds the lock of the
// workspace.
func (h *Home) remountLocked(
	ctx context.Context, w *catalog.Workspace, session, mountpoint string, words []string,
) error {
	mounts, err := readMounts()
	if err != nil {
		return err
	}
	l := h.liveOf(w.ID)
	if l == nil || l.state(mounts) != Mounted {
		return fmt.Errorf("%w: workspace %s is not mounted: what is to be remounted must be", ErrConflict, w.ID)
	}
	if u := peer.From(ctx); u != nil && (l.by == nil || l.by.UID != u.UID) {
		return fmt.Errorf("%w: %s did not mount workspace %s: unmount it first", ErrRefused, u, w.ID)
	}
	if err := h.follow(ctx, w, l); err != nil {
		return err
	}
	how := l.shown.Load()
	if mountpoint != "" {
		at, _, err := h.mountTarget(ctx, w, mountpoint)
		if err != nil {
			return err
		}
		if at.path != how.at.path || !sameNamespace(at.view, how.at.view) {
			return fmt.Errorf("%w: workspace %s is mounted at %s, not at %s", ErrConflict, w.ID, l.where(),
				api.Quoted(mountpoint))
		}
	}
	asked := how.asked
	asked.Engine = cmp.Or(asked.Engine, api.EngineFUSE) // as it is mounted, whatever it may be next time
	for _, word := range words {
		if !asked.Apply(word) {
			return fmt.Errorf("%w: mount option %s", ErrInvalid, api.Quoted(word))
		}
	}
	if !asked.ReadOnly {
		if err := h.changeable(w); err != nil {
			return err
		}
	}
	ctx, asked, err = mountFor(ctx, w, how.at.path, asked)
	if err != nil {
		return err
	}
	opts := guarded(w, asked)
	if opts.Writeback != how.options.Writeback || opts.AllowOther != how.options.AllowOther ||
		opts.TrackReads != how.options.TrackReads || opts.Engine != how.options.Engine || opts.Transport != how.options.Transport &&
		opts.Transport != "auto" && opts.Transport != l.mount.Transport() {
		return fmt.Errorf("%w: workspace %s: engine, transport, writeback, allow_other and track_reads of a mount cannot be "+
			"changed: unmount it first",
			ErrConflict, w.ID)
	}
	if l.frozen && !opts.ReadOnly {
		return h.thawMount(ctx, w, l, session, asked)
	}
	if err := h.setAttributes(ctx, l, opts); err != nil {
		if errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("%w: %s is in use%s: files are open for writing", ErrConflict, l.where(), usedBy(l))
		}
		return classify(fmt.Errorf("remounting %s: %w", l.where(), err))
	}
	l.shown.Store(&shown{at: how.at, options: opts, asked: asked, attached: how.attached})
	h.recordMounted(ctx, w.ID, session, l, nil)
	return nil
}

// thawMount mounts a workspace anew that was read-only from the start: its overlay takes no changes.
func (h *Home) thawMount(
	ctx context.Context, w *catalog.Workspace, l *live, session string, asked MountOptions,
) error {
	at := l.at()
	if err := h.unmount(ctx, l, false); err != nil {
		return err
	}
	if !l.waitGone(ctx, endWait) {
		return fmt.Errorf("%w: workspace %s: a copy of its read-only mount lives on: %s",
			ErrConflict, w.ID, h.detachedHolder(l))
	}
	ctx = context.WithValue(ctx, viewKey{}, at.view)
	return h.mountLocked(ctx, w.ID, session, at.path, at.made, asked)
}
