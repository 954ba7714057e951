package sandbox

import (
	"context"
	"fmt"
	"slices"

	"snapfs/chunkstore"
	"snapfs/sandbox/api"
)

// Stats accounts for space. Of a reference: Stored and Logical are of all its stored layers; Unique and Reclaimable are of the layers that
// nobody else names, themselves or through a layer above, less the chunks that other layers share. Deleting the
// reference frees those. What a layer above hides of a layer that it stands on goes later, when that is merged into it.
func (h *Home) Stats(ctx context.Context, r StatsRequest) (Stats, error) {
	ctx, end, err := h.begin(ctx)
	if err != nil {
		return Stats{}, err
	}
	defer end()
	if r.Ref == "" {
		session, err := r.SessionID()
		switch {
		case err != nil:
			return Stats{}, err
		case r.OfSession:
			return h.sessionStats(ctx, session)
		}
		return h.homeStats(ctx)
	}
	if r.OfSession {
		return Stats{}, fmt.Errorf("%w: stats of %s, or of a session: not both", ErrInvalid, api.Quoted(r.Ref))
	}
	w, s, err := h.useObject(ctx, r.Access, r.Ref, "stats")
	if err != nil {
		return Stats{}, err
	}
	if w != nil {
		st, err := h.stackStats(ctx, w.ID, w.Base, holder{'w', w.ID})
		if err != nil {
			return st, err
		}
		st.Workspaces = 1
		st.Upper, err = h.uppers.Allocated(ctx, w.Upper)
		return st, err
	}
	st, err := h.stackStats(ctx, s.ID, s.Top, holder{'s', s.ID})
	st.Snapshots = 1
	return st, err
}

// stackStats accounts for the layers from top down, as who names them.
func (h *Home) stackStats(ctx context.Context, ref, top string, who holder) (Stats, error) {
	all, err := h.catalog.stack(top)
	if err != nil {
		return Stats{Ref: ref}, err
	}
	st, err := h.layerStats(ctx, all, h.catalog.own(top, who))
	st.Ref = ref
	return st, err
}

// sessionStats accounts for the snapshots and workspaces of a session, as if they were one.
func (h *Home) sessionStats(ctx context.Context, session string) (Stats, error) {
	var uppers []uint64
	var tops []string
	holders := map[holder]bool{}
	for _, w := range h.catalog.allWorkspaces() {
		if w.Session == session {
			holders[holder{'w', w.ID}] = true
			tops, uppers = append(tops, w.Base), append(uppers, w.Upper)
		}
	}
	workspaces := len(holders)
	h.catalog.eachSnapshot("", func(s *snapshotRecord) bool {
		if s.Session == session {
			holders[holder{'s', s.ID}] = true
			tops = append(tops, s.Top)
		}
		return true
	})
	st, err := h.layerStats(ctx, h.catalog.union(tops), h.catalog.ownOf(holders))
	st.Session, st.Workspaces, st.Snapshots = session, int64(workspaces), int64(len(holders)-workspaces)
	for _, n := range uppers {
		if err != nil {
			break
		}
		var bytes int64
		bytes, err = h.uppers.Allocated(ctx, n)
		st.Upper += bytes
	}
	return st, err
}

// layerStats accounts for layers, of which those in own go with who asks.
func (h *Home) layerStats(ctx context.Context, all, own []*layerRecord) (Stats, error) {
	st := Stats{Layers: int64(len(all))}
	for _, l := range all {
		if l.State == Sealed {
			n, err := h.uppers.Allocated(ctx, l.Upper)
			if err != nil {
				return st, fmt.Errorf("measuring layer %s: %w", l.ID, err)
			}
			st.Sealed += n
		}
	}
	if ids := manifests(all, false); len(ids) > 0 {
		u, err := h.store.Usage(ctx, ids...)
		if err != nil {
			return st, classify(err)
		}
		st.Logical, st.Stored = u.Logical, u.Stored
	}
	if ids := manifests(own, true); len(ids) > 0 {
		u, err := h.store.Usage(ctx, ids...)
		if err != nil {
			return st, classify(err)
		}
		st.Unique, st.Reclaimable = u.Unique, u.Reclaimable
	}
	st.Shared = max(0, st.Stored-st.Unique)
	return st, nil
}

// manifests lists the images of the stored layers, with tiers also those of their tiers.
func manifests(of []*layerRecord, tiers bool) []chunkstore.ID {
	var ids []chunkstore.ID
	for _, l := range of {
		if l.State == Stored {
			ids = append(ids, l.Manifest)
		}
		if tiers && l.Tier != nil {
			ids = append(ids, l.Tier.Manifest)
		}
	}
	return ids
}

// ownManifests lists, for every snapshot and workspace that has some, the stored layers that only it needs.
func (h *Home) ownManifests() [][]chunkstore.ID {
	var sets [][]chunkstore.ID
	add := func(top string, who holder) {
		if ids := manifests(h.catalog.own(top, who), true); len(ids) > 0 {
			sets = append(sets, ids)
		}
	}
	for _, w := range h.catalog.allWorkspaces() {
		add(w.Base, holder{'w', w.ID})
	}
	var snapshots []*snapshotRecord // the catalog cannot be asked from within its own loop
	h.catalog.eachSnapshot("", func(s *snapshotRecord) bool { snapshots = append(snapshots, s); return true })
	for _, s := range snapshots {
		add(s.Top, holder{'s', s.ID})
	}
	return sets
}

// homeStats accounts for everything. Unique is the sum of what each snapshot and each workspace alone needs.
func (h *Home) homeStats(ctx context.Context) (Stats, error) {
	store, err := h.store.Stats(ctx)
	if err != nil {
		return Stats{}, classify(err)
	}
	all := h.catalog.allLayers()
	st := Stats{
		Layers: int64(len(all)), Logical: store.Logical, Stored: store.Payload, Reclaimable: store.Garbage,
		Packs: store.Packs, Index: store.Index,
	}
	unique, err := h.store.Unique(ctx, h.ownManifests())
	if err != nil {
		return st, classify(err)
	}
	for _, n := range unique {
		st.Unique += n
	}
	st.Shared = max(0, st.Stored-st.Unique) // both are measured while the store goes on
	for _, w := range h.catalog.allWorkspaces() {
		st.Workspaces++
		n, err := h.uppers.Allocated(ctx, w.Upper)
		if err != nil {
			return st, fmt.Errorf("measuring workspace %s: %w", w.ID, err)
		}
		st.Upper += n
	}
	h.catalog.eachSnapshot("", func(*snapshotRecord) bool { st.Snapshots++; return true })
	for _, l := range all {
		if l.Tier != nil {
			st.Logical -= l.Tier.Size // a second image of what other layers have
		}
		if l.State == Sealed {
			n, err := h.uppers.Allocated(ctx, l.Upper)
			if err != nil {
				return st, fmt.Errorf("measuring layer %s: %w", l.ID, err)
			}
			st.Sealed += n
		}
	}
	return st, nil
}

// union lists the layers from all of the tops down, each once.
func (c *catalog) union(tops []string) []*layerRecord {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var all []*layerRecord
	met := map[string]bool{}
	for _, id := range tops {
		for l := c.layers[id]; l != nil && !met[l.ID]; l = c.layers[l.Parent] {
			met[l.ID] = true
			all = append(all, l)
		}
	}
	return all
}

// ownOf lists the layers that nothing but these holders needs: those that go when they do.
func (c *catalog) ownOf(who map[holder]bool) []*layerRecord {
	var own []*layerRecord
	mine := map[string]bool{}
	all := c.allLayers()
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, l := range slices.Backward(all) { // what lies on a layer before the layer
		mine[l.ID] = len(c.holders[l.ID]) > 0
		for h := range c.holders[l.ID] {
			mine[l.ID] = mine[l.ID] && (who[h] || h.kind == 'l' && mine[h.id])
		}
		if mine[l.ID] {
			own = append(own, l)
		}
	}
	return own
}
