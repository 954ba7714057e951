package sandbox

import (
	"context"
	"fmt"

	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/catalog"
)

// Base tells what some workspaces and snapshots stem from, as a snapshot. ErrNotFound if nothing is known that they do.
func (h *Home) Base(ctx context.Context, r BaseRequest) (BaseResult, error) {
	ctx, end, err := h.beginChange(ctx)
	if err != nil {
		return BaseResult{}, err
	}
	defer end()
	session, err := r.SessionID()
	if err != nil {
		return BaseResult{}, err
	}
	if len(r.Of) == 0 {
		return BaseResult{}, fmt.Errorf("%w: it is not said what the base is wanted of", ErrInvalid)
	}
	var of []subject
	for _, ref := range r.Of {
		w, s, err := h.useObject(ctx, r.Access, ref, "find the base of")
		if err != nil {
			return BaseResult{}, err
		}
		of = append(of, subject{workspace: w, snapshot: s})
	}
	layer, err := h.baseLayer(of)
	if err != nil {
		return BaseResult{}, err
	}
	if err := h.waitImported(ctx, layer.ID, r.Progress); err != nil {
		return BaseResult{}, err
	}
	s := h.snapshotOn(layer.ID, session)
	if s == nil {
		if s, err = h.putBase(ctx, of[0], layer, session); err != nil {
			return BaseResult{}, err
		}
	}
	res := BaseResult{Path: layer.Imported, RawPath: api.RawPath(layer.Imported)}
	res.Snapshot, err = h.describeSnapshot(s, maxPage)
	return res, err
}

// baseLayer is the topmost layer of what trees stem from.
func (h *Home) baseLayer(of []subject) (*catalog.Layer, error) {
	if len(of) == 1 {
		stack, err := h.catalog.Stack(of[0].top())
		if err != nil {
			return nil, err
		}
		if n := len(stack); n > 0 && stack[n-1].Imported != "" {
			return stack[n-1], nil
		}
		return nil, fmt.Errorf("%w: it is not known which directory this began with: name the snapshot that it is to be "+
			"compared with (--base, in Go A)", ErrNotFound)
	}
	base := of[0].top()
	for _, s := range of[1:] {
		base = h.catalog.Common(base, s.top())
	}
	if l := h.catalog.Layer(base); l != nil {
		return l, nil
	}
	return nil, fmt.Errorf("%w: they stem from nothing in common: name the snapshot that they are to be compared with "+
		"(--base, in Go A)", ErrNotFound)
}

// snapshotOn is a snapshot of a session that is a layer's tree, and not about to expire; nil if there is none.
func (h *Home) snapshotOn(layer, session string) *catalog.Snapshot {
	soon := h.now().Add(appliedFor / 7)
	for _, s := range h.catalog.SnapshotsOn(layer) {
		if s.Session == session && !s.Expired(soon) {
			return s
		}
	}
	return nil
}

// putBase makes the tree of a layer below a tree a snapshot.
func (h *Home) putBase(
	ctx context.Context, of subject, layer *catalog.Layer, session string,
) (*catalog.Snapshot, error) {
	if err := h.withinLimits(session); err != nil {
		return nil, err
	}
	name, foreign := "", false
	if of.snapshot != nil {
		name, foreign = of.snapshot.Workspace, h.foreignSnapshot(of.snapshot)
	} else {
		name, foreign = of.workspace.ID, of.workspace.IsForeign()
	}
	now := h.now()
	expires := now.Add(appliedFor)
	s := &catalog.Snapshot{
		Workspace: name, Session: session, Description: "what " + name + " stems from", Top: layer.ID,
		ParentTop: layer.Parent, CreatedAt: now, ExpiresAt: &expires, Foreign: &foreign, Unsaved: true,
	}
	err := h.catalog.Put(ctx, true, func(ch *catalog.Change) error {
		if h.catalog.Layer(layer.ID) == nil {
			return fmt.Errorf("%w: what %s stems from has just been deleted", ErrNotFound, api.Quoted(name))
		}
		s.ID = h.catalog.NewID()
		ch.PutSnapshots = append(ch.PutSnapshots, s)
		ch.Events = append(ch.Events, h.event(EventSnapshotted, name, session, s.ID, ""))
		return nil
	})
	return s, err
}
