package sandbox

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"unicode/utf8"

	"snapfs/layers"
)

// tree is an open stack to be read: of a snapshot, or of a workspace with its upper on top.
type tree struct {
	lowers []layers.Lower
	close  func()
}

// openTree opens the tree of a workspace or of a snapshot, whichever is not nil; stop is as for openLayers.
func (h *Home) openTree(ctx context.Context, w *workspaceRecord, s *snapshotRecord, stop string) (*tree, error) {
	if s != nil {
		return h.openLayers(ctx, s.Top, stop)
	}
	unlock, err := h.ops.lock(ctx, w.ID)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if w = h.catalog.workspace(w.ID); w == nil {
		return nil, fmt.Errorf("%w: the workspace has just been destroyed", ErrNotFound)
	}
	o, _, done, err := h.overlayOf(ctx, w, true)
	if err != nil {
		return nil, err
	}
	lowers, err := o.Lowers()
	if err != nil {
		done()
		return nil, classify(fmt.Errorf("reading workspace %s: %w", w.ID, err))
	}
	return &tree{lowers: lowers, close: func() {
		for _, l := range lowers {
			if err := l.Close(); err != nil {
				h.log.Warn("closing a layer", "layer", l.Key(), "error", err)
			}
		}
		done()
	}}, nil
}

// openLayers opens the tree of a stack; that of "" is a root directory without entries. No tier reaches across stop, so
// that two stacks which have that layer share all lowers from there down.
func (h *Home) openLayers(ctx context.Context, top, stop string) (*tree, error) {
	if top == "" {
		return h.openNothing()
	}
	s, err := h.cache.openOver(ctx, top, stop)
	if err != nil {
		return nil, err
	}
	return &tree{lowers: s.lowers(), close: s.release}, nil
}

// openNothing opens the tree of a stack without layers.
func (h *Home) openNothing() (*tree, error) {
	low, err := layers.OpenSealed("", filepath.Join(h.dir, emptyDir), 0)
	if err != nil {
		return nil, classify(fmt.Errorf("opening the empty tree: %w", err))
	}
	return &tree{lowers: []layers.Lower{low}, close: func() {
		if err := low.Close(); err != nil {
			h.log.Warn("closing the empty tree", "error", err)
		}
	}}, nil
}

// Diff calls fn for every change that leads from A to B; with an empty B, from A's parent (a snapshot) or from its newest layer
// (a workspace) to A. An error of fn ends it. fn must not work on a workspace that is compared.
func (h *Home) Diff(ctx context.Context, r DiffRequest, fn func(Change) error) error {
	ctx, end, err := h.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	w, s, err := h.useObject(ctx, r.Access, r.A, "diff")
	if err != nil {
		return err
	}
	var from, to *tree
	if r.B != "" {
		wb, sb, err := h.useObject(ctx, r.Access, r.B, "diff")
		if err != nil {
			return err
		}
		stop := h.catalog.common(topOf(w, s), topOf(wb, sb))
		if from, err = h.openTree(ctx, w, s, stop); err != nil {
			return err
		}
		defer from.close()
		if to, err = h.openTree(ctx, wb, sb, stop); err != nil {
			return err
		}
		defer to.close()
	} else {
		stop := ""
		if s != nil {
			stop = s.ParentTop
		}
		if to, err = h.openTree(ctx, w, s, stop); err != nil {
			return err
		}
		defer to.close()
		base := ""
		if s != nil {
			base = s.ParentTop
		} else if now := h.catalog.workspace(w.ID); now != nil {
			base = now.Base
		}
		if from = to.from(base); from == nil {
			if from, err = h.openLayers(ctx, base, stop); err != nil {
				return err
			}
			defer from.close()
		}
	}
	for c, err := range layers.Diff(ctx, from.lowers, to.lowers) {
		if err != nil {
			return classify(err)
		}
		if err := fn(publicChange(c)); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// topOf is the topmost layer of a workspace or of a snapshot, whichever is not nil.
func topOf(w *workspaceRecord, s *snapshotRecord) string {
	if s != nil {
		return s.Top
	}
	return w.Base
}

// from is the tree of a layer that is one of t's lowers; nil if it is none. It is open as long as t.
func (t *tree) from(layer string) *tree {
	i := slices.IndexFunc(t.lowers, func(l layers.Lower) bool { return l.Key() == layer })
	if i < 0 || layer == "" {
		return nil
	}
	return &tree{lowers: t.lowers[i:]}
}

// publicChange is a change as JSON can hold it: the encoder spells raw paths in base64, and spoils the others' odd bytes.
func publicChange(c layers.Change) Change {
	d := Change{Kind: string(rune(c.Kind)), Path: c.Path, OldPath: c.OldPath, Mode: c.Mode, Size: c.Size}
	if !utf8.ValidString(c.Path) {
		d.RawPath = []byte(c.Path)
	}
	if !utf8.ValidString(c.OldPath) {
		d.RawOldPath = []byte(c.OldPath)
	}
	return d
}
