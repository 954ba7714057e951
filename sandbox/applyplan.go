package sandbox

import (
	"context"
	"errors"
	"fmt"

	"snapfs/chunkstore"
	"snapfs/layers"
	"snapfs/sandbox/internal/catalog"
	"snapfs/sandbox/internal/threeway"
	"snapfs/sandbox/internal/uppers"
)

// applyPlan is a plan with the trees that it was made of.
type applyPlan struct {
	*threeway.Plan
	target *tree
	free   []func()
}

// close closes the trees.
func (p *applyPlan) close() {
	for i := len(p.free) - 1; i >= 0; i-- {
		p.free[i]()
	}
}

// plan plans with the target given: the workspace as it is, or a snapshot of it.
func (a *application) plan(ctx context.Context, target subject) (_ *applyPlan, err error) {
	h := a.h
	base, ok := a.common(a.from.top(), target.top())
	if !ok {
		return nil, fmt.Errorf("%w: it is not known what %s and what is applied stem from: name a snapshot of that "+
			"(--base; in Go: Base)", ErrInvalid, a.to.ID)
	}
	p := &applyPlan{}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	open := func(s subject) (*tree, error) {
		t, err := h.openTree(ctx, s.workspace, s.snapshot, h.catalog.Common(base, s.top()))
		if err == nil {
			p.free = append(p.free, t.close)
		}
		return t, err
	}
	from, err := open(a.from)
	if err != nil {
		return nil, err
	}
	if p.target, err = open(target); err != nil {
		return nil, err
	}
	old := from.from(base)
	if old == nil {
		if old = p.target.from(base); old == nil {
			if old, err = h.openLayers(ctx, base, h.catalog.Common(a.from.top(), target.top())); err != nil {
				return nil, err
			}
			p.free = append(p.free, old.close)
		}
	}
	in := threeway.Input{Resolve: resolutions[a.req.Conflicts], OurName: a.to.ID, TheirName: a.name}
	theirs, err := p.compare(ctx, old, from, &in.FromChanges)
	if err != nil {
		return nil, err
	}
	ours, err := p.compare(ctx, old, p.target, &in.TargetChanges)
	if err != nil {
		return nil, err
	}
	in.Base, in.From, in.Target = layerTree{theirs.Old()}, layerTree{theirs.New()}, layerTree{ours.New()}
	if p.Plan, err = threeway.Make(ctx, in); err != nil {
		return p, classify(err)
	}
	parted := h.catalog.Common(a.from.top(), target.top())
	if parted == "" {
		parted = base
	}
	return p, a.findStale(ctx, in, base, parted)
}

// compare compares two trees.
func (p *applyPlan) compare(
	ctx context.Context, old, now *tree, changes *[]layers.Change,
) (*layers.Comparison, error) {
	c, err := layers.Compare(old.lowers, now.lowers)
	if err != nil {
		return nil, classify(err)
	}
	p.free = append(p.free, c.Close)
	for change, err := range c.Changes(ctx) {
		if err != nil {
			return nil, classify(err)
		}
		*changes = append(*changes, change)
	}
	return c, nil
}

// common is the layer that two stacks stem from, and false if there is none. What was applied to one of them before is
// in both.
func (a *application) common(from, to string) (string, bool) {
	h := a.h
	if a.base != nil {
		return a.base.Top, true
	}
	base := h.catalog.Common(from, to)
	higher := func(names string, own, other string) {
		if names == "" {
			return
		}
		for s := range h.catalog.ListSnapshots(catalog.Query{Workspace: names}) {
			if s.Applied == nil || h.catalog.Common(s.Top, own) != s.Top {
				continue
			}
			top := s.Applied.FromTop
			if top != "" && h.catalog.Common(top, other) == top && h.catalog.Common(base, top) == base {
				base = top
			}
		}
	}
	if base != "" {
		higher(a.to.ID, to, from)
		if a.from.workspace != nil {
			higher(a.from.workspace.ID, from, to)
		} else {
			higher(a.from.snapshot.Workspace, from, to)
		}
	}
	return base, base != ""
}

// layerTree is a layers.Tree as a plan looks at it.
type layerTree struct{ t *layers.Tree }

// Lstat implements threeway.Tree.
func (t layerTree) Lstat(path string) (threeway.File, error) {
	f, err := t.t.Lstat(path)
	if f == nil || err != nil {
		return nil, err
	}
	return layerFile{f}, nil
}

// List implements threeway.Tree.
func (t layerTree) List(path string) ([]string, error) { return t.t.List(path) }

// layerFile is a layers.TreeFile as a plan looks at it.
type layerFile struct{ *layers.TreeFile }

// Stat implements threeway.File.
func (f layerFile) Stat() layers.Attr { return f.Attr }

// Shares reports whether two files have the same data because it is the same in both trees.
func (f layerFile) Shares(other threeway.File) (bool, error) {
	o, ok := other.(layerFile)
	if !ok {
		return false, nil
	}
	return f.TreeFile.Shares(o.TreeFile)
}

// make makes the target's next state a layer and a snapshot, of which the target knows nothing yet. nil if there are
// conflicts, or nothing to do.
func (a *application) make(ctx context.Context, before *catalog.Snapshot) (*catalog.Snapshot, error) {
	h := a.h
	p, err := a.plan(ctx, subject{snapshot: before})
	if err != nil {
		return nil, err
	}
	defer p.close()
	a.tell(p.Plan)
	if len(p.Conflicts) > 0 || p.Empty() || a.refused() {
		return nil, nil
	}
	foreign := a.to.IsForeign() || h.foreignSnapshot(a.from.snapshot)
	s := &catalog.Snapshot{
		Workspace: a.to.ID, Description: a.name + " applied", Parent: before.ID, Foreign: &foreign,
		Applied: &catalog.Applied{FromTop: a.from.snapshot.Top, Before: before.ID},
	}
	return s, a.lay(ctx, s, before.Top, p.Plan)
}

// lay makes a snapshot, and a layer for it, of what a plan makes out of the tree of a stack.
func (a *application) lay(ctx context.Context, s *catalog.Snapshot, below string, p *threeway.Plan) error {
	h := a.h
	upper, err := h.uppers.Create(ctx)
	if err != nil {
		return classify(fmt.Errorf("making an upper for %s: %w", a.targetName(), err))
	}
	// What a crash leaves of it is nobody's work: it is in the trash until it is complete.
	err = h.catalog.Put(ctx, true, func(ch *catalog.Change) error {
		ch.PutTrash = append(ch.PutTrash, upper)
		return nil
	})
	if err != nil {
		return errors.Join(err, h.removeUnnamed(upper, err))
	}
	if err := a.write(ctx, p, below, upper); err != nil {
		h.uppers.Discard(upper)
		return classify(err)
	}
	layer := &catalog.Layer{ID: h.catalog.NewID(), Parent: below, State: Sealed, Upper: upper}
	s.CreatedAt = h.now()
	expires := s.CreatedAt.Add(appliedFor)
	s.ID, s.Session, s.ExpiresAt = h.catalog.NewID(), a.session, &expires
	s.Top, s.ParentTop = layer.ID, below
	if a.dir != "" {
		h.applying.Store(s.ID, a.dir)
	}
	err = h.catalog.Put(ctx, true, func(ch *catalog.Change) error {
		ch.DelTrash = append(ch.DelTrash, upper)
		ch.PutLayers = append(ch.PutLayers, layer)
		ch.PutSnapshots = append(ch.PutSnapshots, s)
		ch.Events = append(ch.Events, h.event(EventSnapshotted, s.Workspace, a.session, s.ID, s.Name))
		return nil
	})
	if errors.Is(err, chunkstore.ErrUnwritable) { // the disk may have the records all the same
		return err
	}
	if err != nil {
		h.uppers.Discard(upper)
		return err
	}
	h.storer.Add(layer.ID)
	return nil
}

// write writes the upper of a new layer, durably.
func (a *application) write(ctx context.Context, p *threeway.Plan, below string, upper uint64) error {
	h := a.h
	s, err := h.cache.Open(ctx, below)
	if err != nil {
		return err
	}
	defer s.Release()
	// It counts in an account of its own, for what the target may still take: in that of the target it counts when it is kept.
	o, err := layers.New(h.uppers.Path(upper), h.uppers.Work(upper), s.Lowers(), layers.Options{
		InoBase: uppers.InoBase(upper), WideIno: h.uppers.WideIno, Reserve: h.reserve, Account: h.roomOf(a.to),
	})
	if err != nil {
		return classify(fmt.Errorf("opening an upper for %s: %w", a.targetName(), lacking(err, "")))
	}
	err = newLayerWriter(ctx, o).run(p)
	if err := errors.Join(err, o.Close()); err != nil {
		return err
	}
	h.points.At("upper of an apply written")
	h.uppers.Leave(upper)
	if err := h.uppers.Flush(upper); err != nil {
		return err
	}
	return h.syncBelow(below, func(below []uint64) error { return h.uppers.SyncUpper(upper, below) })
}
