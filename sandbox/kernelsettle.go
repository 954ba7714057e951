package sandbox

import (
	"context"
	"errors"
	"fmt"

	"snapfs/chunkstore"
	"snapfs/layers"
	"snapfs/sandbox/internal/catalog"
)

// settled gives the present record of a workspace after its upper, if it was that of a kernel mount which has ended, has
// become a layer. The caller holds the workspace's lock. ErrConflict while programs still use the mount.
func (h *Home) settled(ctx context.Context, w *catalog.Workspace) (*catalog.Workspace, error) {
	if w.Kernel == nil || h.liveOf(w.ID) != nil {
		return w, nil
	}
	if err := h.mayTakeUpper(ctx, w); err != nil {
		return nil, err
	}
	if err := h.settleUpper(ctx, w); err != nil {
		return nil, err
	}
	h.leaveLower(ctx, w.Kernel.View)
	if w = h.catalog.Workspace(w.ID); w == nil {
		return nil, fmt.Errorf("%w: the workspace has just been destroyed", ErrNotFound)
	}
	return w, nil
}

// mayTakeUpper refuses to work on the upper of a workspace without a mount that an overlay of the kernel still has.
func (h *Home) mayTakeUpper(ctx context.Context, w *catalog.Workspace) error {
	if w.Kernel == nil {
		return nil
	}
	used, err := h.upperInUse(ctx, w.Upper)
	if err != nil {
		return classify(fmt.Errorf("workspace %s was mounted by the kernel's overlayfs: %w", w.ID, err))
	}
	if used {
		return fmt.Errorf("%w: workspace %s: %w%s: end them", ErrConflict, w.ID, errUpperHeld, h.heldBy(ctx, w))
	}
	return nil
}

// isSettled refuses to work on the upper of a kernel mount that has ended and is not settled yet: who asks has an earlier
// record. The caller holds the workspace's lock.
func (h *Home) isSettled(ctx context.Context, w *catalog.Workspace) error {
	now, err := h.settled(ctx, w)
	if err == nil && now.Upper != w.Upper {
		err = fmt.Errorf("%w: the mount of workspace %s has just ended: try again", ErrConflict, w.ID)
	}
	return err
}

// kernelEnds is called when a kernel mount has ended. It gives what settles its workspace, unless who has its lock does.
func (h *Home) kernelEnds(name string) (after func()) {
	ctx, end, err := h.begin(h.ctx) // Close waits for it
	if err != nil {
		return func() {} // the next process does
	}
	return func() {
		defer end()
		unlock, err := h.ops.Lock(ctx, name)
		if err != nil {
			return
		}
		defer unlock()
		h.settleLogged(ctx, name)
	}
}

// settleLogged settles a workspace if it can be. The caller holds its lock, or nothing uses the home yet.
func (h *Home) settleLogged(ctx context.Context, name string) {
	w := h.catalog.Workspace(name)
	if w == nil {
		return
	}
	if _, err := h.settled(ctx, w); err != nil {
		h.log.Warn("the upper of a kernel mount that has ended is not a layer yet", "workspace", name, "error", err)
	}
}

// settleUpper makes a layer of the upper of a workspace, which no overlay of the kernel has, and gives the workspace an empty
// one. Nothing moves. If the newest snapshot has the same tree, its layer is that.
func (h *Home) settleUpper(ctx context.Context, w *catalog.Workspace) error {
	ctx = context.WithoutCancel(ctx)
	changed, err := h.changedByKernel(ctx, w)
	if err != nil {
		return err
	}
	base, layer := w.Base, (*catalog.Layer)(nil)
	last := h.lastCapture(w)
	switch {
	case !changed:
	case last != nil && h.sameAs(ctx, w, last):
		base = last.ID
	default:
		if err := h.finishUpper(ctx, w); err != nil {
			return err
		}
		layer = &catalog.Layer{ID: h.catalog.NewID(), Parent: w.Base, State: Sealed, Upper: w.Upper, Follows: h.followed(w)}
		base = layer.ID
	}
	upper, err := h.upperOver(ctx, base)
	if err != nil {
		return err
	}
	err = h.catalog.Put(ctx, true, func(ch *catalog.Change) error {
		if base != "" && layer == nil && h.catalog.Layer(base) == nil {
			return errCaptureGone
		}
		next := *h.catalog.Workspace(w.ID)
		next.Base, next.Upper, next.Kernel = base, upper, nil
		ch.PutWorkspaces = append(ch.PutWorkspaces, &next)
		if layer != nil {
			ch.PutLayers = append(ch.PutLayers, layer)
		} else {
			ch.PutTrash = append(ch.PutTrash, w.Upper)
		}
		return nil
	})
	if err != nil {
		err = errors.Join(err, h.removeUnnamed(upper, err))
		if errors.Is(err, errCaptureGone) {
			return h.settleUpper(ctx, w)
		}
		return err
	}
	h.points.At("upper of the kernel settled")
	h.captured.forget(w.Upper)
	if layer != nil {
		h.storer.Add(layer.ID)
	} else {
		h.uppers.Discard(w.Upper)
	}
	return nil
}

// changedByKernel reports whether anything was written to the upper of a kernel mount.
func (h *Home) changedByKernel(ctx context.Context, w *catalog.Workspace) (bool, error) {
	stack, err := h.cache.Open(ctx, w.Base)
	if err != nil {
		return false, err
	}
	defer stack.Release()
	upper, err := h.openUpper(w)
	if err != nil {
		return false, err
	}
	defer func() { _ = upper.Close() }() // nothing is written
	changed, err := layers.UpperChanged(upper, stack.Lowers())
	if err != nil {
		return false, classify(fmt.Errorf("the upper of workspace %s: %w", w.ID, err))
	}
	return changed, nil
}

// finishUpper completes what the kernel does not write into an upper, durably.
func (h *Home) finishUpper(ctx context.Context, w *catalog.Workspace) error {
	stack, err := h.cache.Open(ctx, w.Base)
	if err != nil {
		return err
	}
	defer stack.Release()
	upper, err := h.openUpper(w)
	if err != nil {
		return err
	}
	err = errors.Join(layers.FinishUpper(ctx, upper, stack.Lowers()), upper.Close())
	if err != nil {
		return classify(fmt.Errorf("the upper of workspace %s: %w", w.ID, err))
	}
	h.uppers.Leave(w.Upper)
	return h.uppers.SyncAll()
}

// sameAs reports whether the upper of a workspace, which has ended to change, is what a layer has captured.
func (h *Home) sameAs(ctx context.Context, w *catalog.Workspace, last *catalog.Layer) bool {
	other := errors.New("another tree")
	err := h.captureUpper(ctx, w, last, "", true, func(_ *chunkstore.Tx, m chunkstore.Manifest, _ bool) error {
		if (catalog.Layer{}).Stored(m).Digest == last.Digest {
			return errSame
		}
		return other
	}, nil)
	return errors.Is(err, errSame)
}
