package sandbox

import (
	"context"
	"fmt"

	"snapfs/internal/readset"
	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/catalog"
	"snapfs/sandbox/internal/threeway"
)

// staleReads is what an apply knows of reads that the target has made untrue.
type staleReads struct {
	list []StaleRead
	more int
	gaps []string
}

// add notes those of one workspace.
func (s *staleReads) add(workspace string, list []threeway.StaleRead) {
	for _, x := range list {
		if len(s.list) == api.MaxStaleReads {
			s.more++
			continue
		}
		s.list = append(s.list, StaleRead{
			Workspace: workspace, Path: x.Path, RawPath: api.RawPath(x.Path), Kinds: readKinds(x.Kinds),
			Change: string(rune(x.Change)), Coarse: x.Coarse,
		})
	}
}

// refused reports whether reads stand against the apply.
func (a *application) refused() bool {
	return a.req.Serializable && len(a.stale.list)+len(a.stale.gaps) > 0
}

// findStale finds out what the target has changed since the base, a layer, that programs have read whose work is
// applied: those of the workspace that made it, and of those that it was branched from since both sides parted, with
// another layer, below the base if something was applied since.
func (a *application) findStale(ctx context.Context, in threeway.Input, base, parted string) error {
	a.stale = staleReads{}
	if a.req.Undo {
		return nil
	}
	h := a.h
	w := a.from.workspace
	if s := a.from.snapshot; w == nil {
		if w = h.catalog.Workspace(s.Workspace); w != nil && !w.Took(s) {
			w = nil
		}
	}
	if (w == nil || w.Reads == nil) && !a.req.Serializable || len(in.TargetChanges) == 0 {
		return nil
	}
	for depth := 0; ; depth++ {
		if w == nil {
			a.stale.gaps = append(a.stale.gaps, "a workspace in which a part of the work was done is gone, and with it "+
				"what its programs read")
			return nil
		}
		if err := a.findStaleOf(ctx, in, base, w); err != nil {
			return err
		}
		if w.Reads == nil || depth == maxOrigins {
			return nil
		}
		began := w.Reads.Base
		common := h.catalog.Common(began, parted)
		if began == parted || common == began {
			return nil
		}
		if common != parted {
			a.stale.gaps = append(a.stale.gaps, fmt.Sprintf("it is not known what workspace %s was made of", w.ID))
			return nil
		}
		name, err := h.cameFrom(subject{workspace: w})
		w = nil
		if err == nil {
			w = h.catalog.Workspace(name)
		}
	}
}

// maxOrigins bounds how many workspaces, each made of the next, are looked at.
const maxOrigins = 1000

// findStaleOf is findStale for the programs of one workspace.
func (a *application) findStaleOf(ctx context.Context, in threeway.Input, base string, w *catalog.Workspace) error {
	reads, gaps, err := a.h.readsOf(w)
	if err != nil {
		return err
	}
	a.stale.gaps = append(a.stale.gaps, gaps...)
	if len(reads) == 0 {
		return nil
	}
	name, free, err := a.readNames(ctx, base, w.Reads.Base)
	if err != nil {
		return err
	}
	if name == nil {
		a.stale.gaps = append(a.stale.gaps, fmt.Sprintf("it is not known how the tree that workspace %s was made with "+
			"differs from what both sides stem from", w.ID))
		return nil
	}
	defer free()
	list, err := threeway.StaleReads(ctx, in, threeway.Reads{Index: readset.NewIndex(reads), Name: name})
	if err != nil {
		return classify(err)
	}
	a.stale.add(w.ID, list)
	return nil
}

// readNames gives the paths that entities of one layer's tree have in another's, which is that of a layer above or below
// it; nil if it is neither. free ends its use.
func (a *application) readNames(
	ctx context.Context, base, began string,
) (name func(string) (string, bool), free func(), err error) {
	common := a.h.catalog.Common(base, began)
	switch {
	case base == began:
		return func(path string) (string, bool) { return path, true }, func() {}, nil
	case common == "" || common != base && common != began:
		return nil, nil, nil
	case common == base: // the workspace was made of a later state
		d, free, err := a.h.changesBetween(ctx, base, began)
		if err != nil {
			return nil, nil, err
		}
		return threeway.Now(layerTree{d.New()}, d.list), free, nil
	}
	// Something was applied since.
	d, free, err := a.h.changesBetween(ctx, began, base)
	if err != nil {
		return nil, nil, err
	}
	return threeway.Before(layerTree{d.New()}, d.list), free, nil
}
