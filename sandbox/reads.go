package sandbox

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/google/uuid"

	"snapfs/internal/readset"
	"snapfs/layers"
	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/catalog"
)

// readsDir is the directory of a home with what programs have read in workspaces that track it.
const readsDir = "reads"

func (h *Home) readsPath() string { return filepath.Join(h.dir, readsDir) }

// newReads is the record of reads of a workspace that begins to track them.
func (h *Home) newReads(w *catalog.Workspace) (*catalog.Reads, error) {
	r := &catalog.Reads{
		ID: uuid.NewString(), Since: h.now(), Base: w.Base, Late: w.Mount != nil || w.Head != w.Origin,
	}
	if err := readset.Create(h.readsPath(), r.ID); err != nil {
		return nil, classify(fmt.Errorf("a record of what programs read in workspace %s: %w", w.ID, err))
	}
	return r, nil
}

// tracking completes the options of a mount with what holds for all mounts of the workspace.
func tracking(w *catalog.Workspace, o MountOptions) MountOptions {
	o.TrackReads = o.TrackReads || w.Reads != nil
	return o
}

// beginReads gives the set of reads of a workspace that is about to be mounted, and the workspace's record of it; nil if
// none is kept.
func (h *Home) beginReads(w *catalog.Workspace, opts MountOptions) (*readset.Set, *catalog.Reads, error) {
	if !opts.TrackReads {
		return nil, nil, nil
	}
	r := w.Reads
	if r == nil {
		var err error
		if r, err = h.newReads(w); err != nil {
			return nil, nil, err
		}
	}
	s, err := readset.Begin(h.readsPath(), r.ID)
	if err != nil {
		return nil, nil, classify(fmt.Errorf("the record of what programs read in workspace %s: %w", w.ID, err))
	}
	return s, r, nil
}

// endReads writes a set that beginReads has given. What cannot be written is missing from then on, and known to be.
func (h *Home) endReads(s *readset.Set, r *catalog.Reads) {
	if s == nil {
		return
	}
	if err := readset.End(h.readsPath(), r.ID, s); err != nil {
		h.log.Warn("what programs read cannot be recorded", "error", err)
	}
}

// dropReads removes the record of a workspace that is gone.
func (h *Home) dropReads(r *catalog.Reads) {
	if r == nil {
		return
	}
	if err := readset.Remove(h.readsPath(), r.ID); err != nil {
		h.log.Warn("a record of what programs read is left over until the next start", "error", err)
	}
}

// sweepReads removes the records of workspaces that are gone.
func (h *Home) sweepReads() {
	ids := map[string]bool{}
	for _, w := range h.catalog.Workspaces() {
		if w.Reads != nil {
			ids[w.Reads.ID] = true
		}
	}
	if err := readset.Sweep(h.readsPath(), func(id string) bool { return ids[id] }); err != nil {
		h.log.Warn("records of what programs read are left over", "error", err)
	}
}

// readsOf gives what programs of a workspace have read, and why there may be more.
func (h *Home) readsOf(w *catalog.Workspace) (reads []readset.Read, gaps []string, err error) {
	if w.Reads == nil {
		return nil, []string{"workspace " + w.ID + " does not track what its programs read"}, nil
	}
	var s *readset.Set
	if l := h.liveOf(w.ID); l != nil {
		s = l.reads
	}
	if s == nil {
		if s, err = readset.Load(h.readsPath(), w.Reads.ID); err != nil {
			return nil, nil, classify(fmt.Errorf("what programs read in workspace %s: %w", w.ID, err))
		}
	}
	if w.Reads.Late {
		gaps = append(gaps, fmt.Sprintf("workspace %s was in use before it tracked what its programs read", w.ID))
	}
	if gap := s.Gap(); gap != "" {
		gaps = append(gaps, fmt.Sprintf("workspace %s: %s", w.ID, gap))
	}
	return s.Reads(), gaps, nil
}

// Reads calls fn for what programs of a workspace have read.
func (h *Home) Reads(ctx context.Context, r RefRequest, fn func(Read) error) (ReadsResult, error) {
	ctx, end, err := h.begin(ctx)
	if err != nil {
		return ReadsResult{}, err
	}
	defer end()
	w, err := h.useWorkspace(ctx, r.Access, r.Ref, "list reads")
	if err != nil {
		return ReadsResult{}, err
	}
	reads, gaps, err := h.readsOf(w)
	if err != nil {
		return ReadsResult{}, err
	}
	res := ReadsResult{Workspace: w.ID, Tracked: w.Reads != nil, Gaps: append([]string{}, gaps...)}
	if w.Reads != nil {
		since := w.Reads.Since
		res.Since = &since
	}
	for _, x := range reads {
		if err := ctx.Err(); err != nil {
			return res, err
		}
		if err := fn(Read{Path: x.Path, RawPath: api.RawPath(x.Path), Kinds: readKinds(x.Kinds), Whole: x.Whole}); err != nil {
			return res, err
		}
	}
	return res, nil
}

// readKinds are kinds of reads in the words of the API.
func readKinds(k readset.Kind) []string {
	var words []string
	for _, x := range []struct {
		kind readset.Kind
		word string
	}{
		{readset.Content, api.ReadContent},
		{readset.Listing, api.ReadListing},
		{readset.Missing, api.ReadMissing},
		{readset.Attributes, api.ReadAttributes},
	} {
		if k&x.kind != 0 {
			words = append(words, x.word)
		}
	}
	return words
}

// nextReads tells a set of reads what tree comes in place of the present one: that of a layer.
func (h *Home) nextReads(ctx context.Context, s *readset.Set, r *catalog.Reads, top string) {
	moves, err := h.movesBetween(ctx, r.Base, top)
	if err != nil {
		h.log.Debug("what a set-back tree has renamed is not known", "error", err)
	}
	s.Next(moves, err == nil)
}

// movesBetween lists what has moved between two layers.
func (h *Home) movesBetween(ctx context.Context, from, to string) ([]readset.Move, error) {
	changes, free, err := h.changesBetween(ctx, from, to)
	if err != nil {
		return nil, err
	}
	defer free()
	var moves []readset.Move
	for _, c := range changes.list {
		if c.Kind == layers.Renamed {
			moves = append(moves, readset.Move{From: c.OldPath, To: c.Path})
		}
	}
	return moves, nil
}

// compared is what leads from the tree of one layer to that of another.
type compared struct {
	*layers.Comparison
	list []layers.Change
}

// changesBetween compares the trees of two layers; free closes them.
func (h *Home) changesBetween(ctx context.Context, from, to string) (_ *compared, free func(), err error) {
	common := h.catalog.Common(from, to)
	old, err := h.openLayers(ctx, from, common)
	if err != nil {
		return nil, nil, err
	}
	now, err := h.openLayers(ctx, to, common)
	if err != nil {
		old.close()
		return nil, nil, err
	}
	c, err := layers.Compare(old.lowers, now.lowers)
	if err != nil {
		now.close()
		old.close()
		return nil, nil, classify(err)
	}
	free = func() {
		c.Close()
		now.close()
		old.close()
	}
	d := &compared{Comparison: c}
	for change, err := range c.Changes(ctx) {
		if err != nil {
			free()
			return nil, nil, classify(err)
		}
		d.list = append(d.list, change)
	}
	return d, free, nil
}

// restartReads is for a workspace that is not mounted and whose tree is to be set back to that of a layer. The caller
// says by end whether it was. Should the process end before, reads are missing, and that is known.
func (h *Home) restartReads(ctx context.Context, w *catalog.Workspace, top string) (end func(done bool), err error) {
	if w.Reads == nil {
		return func(bool) {}, nil
	}
	s, err := readset.Begin(h.readsPath(), w.Reads.ID)
	if err != nil {
		return nil, classify(fmt.Errorf("the record of what programs read in workspace %s: %w", w.ID, err))
	}
	h.nextReads(ctx, s, w.Reads, top)
	return func(done bool) {
		if done {
			s.Restart()
		}
		h.endReads(s, w.Reads)
	}, nil
}
