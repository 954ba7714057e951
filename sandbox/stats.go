package sandbox

import (
	"context"
	"fmt"

	"snapfs/chunkstore"
)

// Stats accounts for space. Of a reference: Stored and Logical are of all its stored layers; Unique and Reclaimable are of the layers that
// nobody else names, themselves or through a layer above, less the chunks that other layers share. Deleting the
// reference frees those and no more.
func (h *Home) Stats(ctx context.Context, r StatsRequest) (Stats, error) {
	ctx, end, err := h.begin(ctx)
	if err != nil {
		return Stats{}, err
	}
	defer end()
	if r.Ref == "" {
		if _, err := r.session(); err != nil {
			return Stats{}, err
		}
		return h.homeStats(ctx)
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
		st.Upper, err = h.uppers.allocated(ctx, w.Upper)
		return st, err
	}
	st, err := h.stackStats(ctx, s.ID, s.Top, holder{'s', s.ID})
	st.Snapshots = 1
	return st, err
}

// stackStats accounts for the layers from top down, as who names them.
func (h *Home) stackStats(ctx context.Context, ref, top string, who holder) (Stats, error) {
	st := Stats{Ref: ref}
	all, err := h.catalog.stack(top)
	if err != nil {
		return st, err
	}
	own := h.catalog.own(top, who)
	st.Layers = int64(len(all))
	for _, l := range all {
		if l.State == Sealed {
			n, err := h.uppers.allocated(ctx, l.Upper)
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
		n, err := h.uppers.allocated(ctx, w.Upper)
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
			n, err := h.uppers.allocated(ctx, l.Upper)
			if err != nil {
				return st, fmt.Errorf("measuring layer %s: %w", l.ID, err)
			}
			st.Sealed += n
		}
	}
	return st, nil
}
