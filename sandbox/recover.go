package sandbox

import (
	"context"
	"path/filepath"
)

// recover brings a home that was just opened to a clean state: what a crash left half-done is finished or taken away.
// Nothing uses the home yet. Mounts are gone on with first: programs wait for that.
func (h *Home) recover(ctx context.Context) error {
	if err := h.takeOver(ctx); err != nil {
		return err
	}
	if err := h.takeOverKernels(ctx); err != nil {
		return err
	}
	if err := h.catalog.SweepMerges(ctx); err != nil {
		return err
	}
	if err := h.catalog.SweepTied(ctx); err != nil {
		return err
	}
	gone, err := h.catalog.SweepLayers(ctx)
	if err != nil {
		return err
	}
	h.cache.Forget(gone)
	if err := h.remakeLost(); err != nil {
		return err
	}
	if err := h.findAbandoned(ctx); err != nil {
		return err
	}
	trash, err := h.catalog.Trash(ctx)
	if err != nil {
		return err
	}
	for n := range trash {
		h.uppers.Discard(n)
	}
	if err := h.uppers.SetAside(trash, filepath.Join(h.dir, "lost+found")); err != nil {
		return err
	}
	if err := h.thawFrozen(ctx); err != nil {
		return err
	}
	h.sweepReads()
	h.sweepLowers()
	mounts, err := readMounts()
	if err != nil {
		return err
	}
	for _, w := range h.catalog.Workspaces() {
		if h.liveOf(w.ID) == nil {
			h.detachStale(w, mounts)
			h.settleLogged(ctx, w.ID)
		}
	}
	for _, l := range h.catalog.Layers() {
		if l.State != Stored {
			if err := h.storer.Resume(ctx, l.ID); err != nil {
				return err
			}
		}
	}
	return nil
}

// remakeLost makes the directories again that a loss of power took because a snapshot was not to wait for the disk: its
// records are durable, the directories of its layer and of the upper above may not be. What was in them is lost, the
// workspace is not.
func (h *Home) remakeLost() error {
	lost := map[uint64]bool{}
	for _, l := range h.catalog.Layers() {
		if l.NoSync && !h.uppers.Exists(l.Upper) {
			lost[l.Upper] = true
		}
	}
	for _, w := range h.catalog.Workspaces() {
		if base := h.catalog.Layer(w.Base); base != nil && base.NoSync && !h.uppers.Exists(w.Upper) {
			lost[w.Upper] = true
		}
	}
	for n := range lost {
		h.log.Warn("what a snapshot without sync left in an upper is lost", "upper", h.uppers.Path(n))
		if err := h.uppers.Remake(n); err != nil {
			return err
		}
	}
	return nil
}
