package sandbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"snapfs/chunkstore"
	"snapfs/sandbox/internal/catalog"
)

// A rollback by force leaves the overlay that programs hold to them, with its upper and what it stands on: they read and
// write the old tree, and the workspace goes on without it. What the upper has then is captured first. The upper is in the
// trash from that moment on, with a note that an overlay may have it (catalog.Abandoned), which also later processes find:
// its directory, and the view below it, stay until the kernel says that no overlay has it any more.

// errUpperHeld says that an overlay of the kernel has an upper that nothing shows any more.
var errUpperHeld = errors.New("programs still use a mount by the kernel's overlayfs that was taken away, or a copy of it")

// abandonedUpper is an upper that programs go on with.
type abandonedUpper struct {
	catalog.Abandoned
	release func() // lets it be removed
}

// leaveTree is settled for a workspace that is about to have another tree. With force, what programs hold is left to them.
func (h *Home) leaveTree(ctx context.Context, w *catalog.Workspace, force bool) (*catalog.Workspace, error) {
	now, err := h.settled(ctx, w)
	if !force || !errors.Is(err, errUpperHeld) {
		return now, err
	}
	ctx = context.WithoutCancel(ctx)
	if err := h.abandonUpper(ctx, w); err != nil {
		return nil, fmt.Errorf("leaving the old tree of workspace %s to the programs that use it: %w", w.ID, err)
	}
	h.watchKernels()
	h.leaveLower(ctx, w.Kernel.View) // stays; but the programs may have ended meanwhile
	return h.catalog.Workspace(w.ID), nil
}

// abandonUpper makes a layer of what the upper of a workspace has now, which an overlay of the kernel has and goes on
// changing, and gives the workspace an empty one over that.
func (h *Home) abandonUpper(ctx context.Context, w *catalog.Workspace) error {
	changed, err := h.changedByKernel(ctx, w)
	if err != nil {
		return err
	}
	last := h.lastCapture(w)
	layer := catalog.Layer{ID: h.catalog.NewID(), Parent: w.Base, Follows: h.followed(w)}
	upper, err := h.upperOver(ctx, layer.ID)
	if err != nil {
		return err
	}
	gone := catalog.Abandoned{Upper: w.Upper, View: w.Kernel.View}
	a := abandonedUpper{Abandoned: gone, release: h.uppers.Hold(w.Upper)}
	moved := func(ch *catalog.Change, base string) {
		next := *h.catalog.Workspace(w.ID)
		next.Base, next.Upper, next.Kernel = base, upper, nil
		ch.PutWorkspaces = append(ch.PutWorkspaces, &next)
		ch.PutAbandoned = append(ch.PutAbandoned, gone)
	}
	base := w.Base
	if changed {
		var ch catalog.Change
		err = h.captureUpper(ctx, w, last, layer.ID, false, func(tx *chunkstore.Tx, m chunkstore.Manifest, onLast bool) error {
			if onLast {
				layer.Parent = last.ID
			}
			stored := layer.Stored(m)
			if last != nil && stored.Digest == last.Digest {
				return errSame
			}
			ch = catalog.Change{PutLayers: []*catalog.Layer{&stored}}
			moved(&ch, layer.ID)
			return h.catalog.Write(tx, &ch)
		}, func() { h.catalog.Committed(&ch) })
		if errors.Is(err, errSame) {
			base, changed = last.ID, false
		}
		h.captured.forget(w.Upper)
	}
	if !changed {
		err = h.catalog.Put(ctx, true, func(ch *catalog.Change) error {
			if base != "" && h.catalog.Layer(base) == nil {
				return errCaptureGone
			}
			moved(ch, base)
			return nil
		})
	}
	if err != nil {
		a.release()
		err = errors.Join(err, h.removeUnnamed(upper, err))
		if errors.Is(err, errCaptureGone) {
			return h.abandonUpper(ctx, w)
		}
		return err
	}
	h.points.At("upper of the kernel abandoned")
	h.addAbandoned(a)
	h.merger.Kick()
	return nil
}

// addAbandoned keeps an upper that is in the trash until no overlay of the kernel has it any more.
func (h *Home) addAbandoned(a abandonedUpper) {
	h.abandoned.Store(a.Upper, a)
	h.uppers.Discard(a.Upper)
}

// findAbandoned finds what earlier processes have abandoned.
func (h *Home) findAbandoned(ctx context.Context) error {
	all, err := h.catalog.Abandoned(ctx)
	if err != nil {
		return err
	}
	for _, a := range all {
		h.addAbandoned(abandonedUpper{Abandoned: a, release: h.uppers.Hold(a.Upper)})
	}
	if len(all) > 0 {
		h.watchKernels()
	}
	return nil
}

// lookAtAbandoned has the uppers be removed that programs have gone on with, and that no overlay has any more.
func (h *Home) lookAtAbandoned(ctx context.Context, probed map[uint64]time.Time) {
	h.abandoned.Range(func(_, value any) bool {
		a := value.(abandonedUpper)
		if time.Since(probed[a.Upper]) < kernelProbe {
			return true
		}
		probed[a.Upper] = time.Now()
		used, err := h.upperInUse(ctx, a.Upper)
		if err != nil {
			h.log.Debug("looking for an overlay of an abandoned upper", "upper", a.Upper, "error", err)
		}
		if used || err != nil && h.uppers.Exists(a.Upper) {
			return true
		}
		h.abandoned.Delete(a.Upper)
		delete(probed, a.Upper)
		a.release()
		h.leaveLower(ctx, a.View)
		return true
	})
}

// holdsAbandoned reports whether an overlay that was left to programs stands on a view.
func (h *Home) holdsAbandoned(view string) (holds bool) {
	h.abandoned.Range(func(_, value any) bool {
		holds = value.(abandonedUpper).View == view
		return !holds
	})
	return holds
}
