package sandbox

import (
	"context"
	"errors"
	"fmt"

	"snapfs/chunkstore"
	"snapfs/layers"
	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/catalog"
	"snapfs/sandbox/internal/uppers"
)

// errSame says that a capture has the tree of the one before, errCaptureGone that the snapshot of that was deleted
// meanwhile, and its layer with it.
var (
	errSame        = errors.New("nothing has changed since the last capture")
	errCaptureGone = errors.New("the last capture has just been deleted")
)

// capture is seal for a workspace that the kernel's overlayfs shows. The upper stays where it is and goes on changing;
// what has changed since the last capture becomes a layer over that, if it is known, else all of the upper one over the
// workspace's Base, on which the workspace stays. The caller holds the workspace's lock.
func (h *Home) capture(
	ctx context.Context, w *catalog.Workspace, noSync bool,
	record func(ch *catalog.Change, w *catalog.Workspace, top string) error,
) error {
	last := h.lastCapture(w)
	layer := catalog.Layer{ID: h.catalog.NewID()}
	var ch catalog.Change
	err := h.captureUpper(ctx, w, last, layer.ID, noSync, func(tx *chunkstore.Tx, m chunkstore.Manifest, onLast bool) error {
		layer.Parent = w.Base
		switch {
		case onLast:
			layer.Parent = last.ID
		case last != nil:
			layer.Follows = last.ID
		}
		stored := layer.Stored(m)
		if last != nil && stored.Digest == last.Digest {
			return errSame
		}
		ch = catalog.Change{PutLayers: []*catalog.Layer{&stored}}
		if err := h.putBeside(&ch, w.ID, layer, record); err != nil {
			return err
		}
		return h.catalog.Write(tx, &ch)
	}, func() {
		h.points.At("capture committed")
		h.catalog.Committed(&ch)
	})
	if errors.Is(err, errSame) {
		err = h.catalog.Put(ctx, !noSync, func(ch *catalog.Change) error {
			if h.catalog.Layer(last.ID) == nil {
				return errCaptureGone
			}
			return h.putBeside(ch, w.ID, *last, record)
		})
		if errors.Is(err, errCaptureGone) {
			return h.capture(ctx, w, noSync, record) // with none before, or an earlier one
		}
		return err
	}
	if err != nil {
		return err
	}
	h.merger.Kick()
	return nil
}

// putBeside adds to a change what record records of a layer with a state of a workspace, which stays where it stands. What
// the state differs from is the one that it follows.
func (h *Home) putBeside(
	ch *catalog.Change, name string, layer catalog.Layer,
	record func(ch *catalog.Change, w *catalog.Workspace, top string) error,
) error {
	now := h.catalog.Workspace(name)
	next := *now
	next.Base = h.newestState(now)
	if err := record(ch, &next, layer.ID); err != nil {
		return err
	}
	next.Base, next.Upper = now.Base, now.Upper
	ch.PutWorkspaces = append(ch.PutWorkspaces, &next)
	for _, s := range ch.PutSnapshots {
		if s.ParentTop == layer.Follows && s.Top == layer.ID {
			s.ParentTop = layer.Parent // a layer below, see comparedWith
		}
	}
	return nil
}

// sealBase is seal for a workspace that unsavedBase is about, and that has not changed since: it stands on the layer.
func (h *Home) sealBase(
	ctx context.Context, w *catalog.Workspace, noSync bool,
	record func(ch *catalog.Change, w *catalog.Workspace, top string) error,
) error {
	layer := h.catalog.Layer(w.Base)
	return h.catalog.Put(ctx, !noSync, func(ch *catalog.Change) error { return h.putBeside(ch, w.ID, *layer, record) })
}

// captureUpper stores what the upper of a workspace has now, over the layers below or as what has changed since the last
// capture, and commits with what fn writes; then it calls committed, which may be nil. errSame if nothing has changed, or
// if fn says so. The layer is to be that with this id.
func (h *Home) captureUpper(
	ctx context.Context, w *catalog.Workspace, last *catalog.Layer, id string, noSync bool,
	fn func(tx *chunkstore.Tx, m chunkstore.Manifest, onLast bool) error, committed func(),
) (err error) {
	stack, err := h.cache.Open(ctx, w.Base)
	if err != nil {
		return err
	}
	defer stack.Release()
	upper, err := h.openUpper(w)
	if err != nil {
		return err
	}
	defer func() { _ = upper.Close() }() // nothing is written
	seen := h.newNotes(ctx, h.uppers.Path(w.Upper), api.Part{})
	opts := layers.StoreOptions{
		Home: h.number, NoSync: noSync, Seen: seen.begin, SeenSince: seen.older, Scratch: h.uppers.Root(w.Upper),
	}
	if last != nil {
		if opts.Since = h.captured.get(w.Upper, last.ID); opts.Since != nil {
			unpin, ok := h.pinLayer(ctx, last.ID)
			if !ok {
				opts.Since = nil
			} else {
				defer unpin()
				on, err := h.cache.Open(ctx, last.ID)
				if err != nil {
					return err
				}
				defer on.Release()
				opts.Last = on.Lowers()
			}
		}
	}
	_, found, err := layers.Capture(ctx, h.store, upper, stack.Lowers(), opts, fn)
	if err == nil && found.Same {
		err = errSame
	}
	seen.end(err == nil || errors.Is(err, errSame))
	if err != nil && !errors.Is(err, errSame) {
		return classify(fmt.Errorf("snapshot of workspace %s: %w", w.ID, err))
	}
	if err != nil {
		id = last.ID
	} else if committed != nil {
		committed()
	}
	h.captured.put(w.Upper, id, found.State, found.State.Names())
	if !found.Quiet {
		h.log.Warn("names moved all the time while a snapshot was taken: some may be missing, or there twice",
			"workspace", w.ID)
	}
	if found.TornFiles > 0 {
		h.log.Warn("files were written all the time while a snapshot was taken: they may be mixtures", "workspace", w.ID,
			"files", found.TornFiles, "some", found.Torn)
	}
	return err
}

// openUpper opens the upper of a workspace as the layer that it will be.
func (h *Home) openUpper(w *catalog.Workspace) (*layers.Lower, error) {
	upper, err := layers.OpenSealed("", h.uppers.Path(w.Upper), uppers.InoBase(w.Upper), h.uppers.WideIno)
	if err != nil {
		return nil, classify(fmt.Errorf("reading the upper of workspace %s: %w", w.ID, err))
	}
	return upper, nil
}

// lastCapture is the layer of a workspace's newest snapshot if it is a capture of the upper that the workspace has; nil if
// it is none.
func (h *Home) lastCapture(w *catalog.Workspace) *catalog.Layer {
	s := h.catalog.Snapshot(w.Head)
	if s == nil || w.Kernel == nil || s.Top == w.Base {
		return nil
	}
	l := h.catalog.Layer(s.Top)
	if l == nil || l.State != Stored || !w.Took(s) || !h.liesOn(l, w.Base) {
		return nil
	}
	return l
}

// liesOn reports whether a layer lies on another one, which is none if base is "".
func (h *Home) liesOn(l *catalog.Layer, base string) bool {
	for l != nil && l.Parent != base {
		l = h.catalog.Layer(l.Parent)
	}
	return l != nil
}

// comparedWith is the layer with which a snapshot is compared that is compared with what it came from. Captures of one
// upper lie beside each other, not on each other.
func (h *Home) comparedWith(s *catalog.Snapshot) string {
	if s.Top != s.ParentTop {
		if l := h.catalog.Layer(s.Top); l != nil && l.Follows != "" && h.catalog.Layer(l.Follows) != nil {
			return l.Follows
		}
	}
	return s.ParentTop
}

// followed is the layer with the state of a workspace's newest snapshot, which the layer of an upper that no snapshot has
// follows; "" if there is none.
func (h *Home) followed(w *catalog.Workspace) string {
	if last := h.lastCapture(w); last != nil {
		return last.ID
	}
	if head := h.catalog.Snapshot(w.Head); head != nil {
		return head.Top
	}
	return ""
}

// unsavedInUpper reports whether the kernel's overlayfs has left something in the upper of a workspace, or below it, that
// no snapshot has. Of a workspace that it does not show, something may be.
func (h *Home) unsavedInUpper(ctx context.Context, w *catalog.Workspace) (bool, error) {
	if w.Kernel == nil {
		return true, nil
	}
	changed, err := h.changedByKernel(ctx, w)
	if err != nil || !changed {
		return h.unsavedBase(w), err
	}
	last := h.lastCapture(w)
	return last == nil || !h.sameAs(ctx, w, last), nil
}

// newestState is the layer with the newest state of a workspace that a snapshot has, or that the upper stands on.
func (h *Home) newestState(w *catalog.Workspace) string {
	if last := h.lastCapture(w); last != nil {
		return last.ID
	}
	if h.unsavedBase(w) {
		return h.catalog.Layer(w.Base).Follows
	}
	return w.Base
}

// unsavedBase reports whether a workspace stands on what a kernel mount has left, which is newer than its newest
// snapshot.
func (h *Home) unsavedBase(w *catalog.Workspace) bool {
	l, head := h.catalog.Layer(w.Base), h.catalog.Snapshot(w.Head)
	return l != nil && head != nil && l.Follows != "" && head.Top == l.Follows && h.catalog.Layer(l.Follows) != nil
}
