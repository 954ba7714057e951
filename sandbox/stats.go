package sandbox

import (
	"context"
	"fmt"
	"slices"

	"snapfs/chunkstore"
	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/catalog"
)

// Stats accounts for space. Of a reference: Stored and Logical are of all its stored layers; Unique and Reclaimable are
// of the layers that nobody else names, themselves or through a layer above, less the chunks that other layers share.
// Deleting the reference frees those. What a layer above hides of a layer that it stands on goes later, when that is
// merged into it.
func (h *Home) Stats(ctx context.Context, r StatsRequest) (Stats, error) {
	ctx, end, err := h.begin(ctx)
	if err != nil {
		return Stats{}, err
	}
	defer end()
	if r.Ref == "" {
		who, err := newAsker(ctx, r.Access)
		switch {
		case err != nil:
			return Stats{}, err
		case r.OfSession:
			return h.sessionStats(ctx, who.session)
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
		st, err := h.stackStats(ctx, w.ID, w.Base, w.Holder())
		if err != nil {
			return st, err
		}
		st.Workspaces, st.Quota = 1, h.describeQuota(w)
		st.Upper, err = h.uppers.Allocated(ctx, w.Upper)
		return st, err
	}
	documents, err := h.catalog.TiedDocuments(ctx, s.ID)
	if err != nil {
		return Stats{}, err
	}
	st, err := h.stackStats(ctx, s.ID, s.Top, s.Holder(), contents(documents)...)
	st.Snapshots = 1
	return st, err
}

// contents are the streams of documents.
func contents(documents []catalog.KeyedDocument) []chunkstore.ID {
	var all []chunkstore.ID
	for _, d := range documents {
		all = append(all, d.Manifest)
	}
	return all
}

// stackStats accounts for the layers from top down, as who names them, and for the contents of documents.
func (h *Home) stackStats(
	ctx context.Context, ref, top string, who catalog.Holder, documents ...chunkstore.ID,
) (Stats, error) {
	all, err := h.catalog.Stack(top)
	if err != nil {
		return Stats{Ref: ref}, err
	}
	st, err := h.layerStats(ctx, all, h.catalog.Own(top, who), documents)
	st.Ref = ref
	return st, err
}

// sessionStats accounts for the snapshots and workspaces of a session, as if they were one.
func (h *Home) sessionStats(ctx context.Context, session string) (Stats, error) {
	own := h.catalog.Holding(session)
	var documents []catalog.KeyedDocument
	if err := h.catalog.EachDocument(ctx, session, func(d catalog.KeyedDocument) error {
		documents = append(documents, d)
		return nil
	}); err != nil {
		return Stats{Session: session}, err
	}
	st, err := h.layerStats(ctx, own.Layers, own.Own, contents(documents))
	st.Session, st.Workspaces, st.Snapshots = session, int64(len(own.Uppers)), int64(own.Snapshots)
	for _, n := range own.Uppers {
		if err != nil {
			break
		}
		var bytes int64
		bytes, err = h.uppers.Allocated(ctx, n)
		st.Upper += bytes
	}
	return st, err
}

// layerStats accounts for layers, of which those in own go with what is asked for, and for documents, which do, too.
func (h *Home) layerStats(
	ctx context.Context, all, own []*catalog.Layer, documents []chunkstore.ID,
) (Stats, error) {
	st := Stats{Layers: int64(len(all)), Documents: int64(len(documents))}
	for _, l := range all {
		if l.State != Stored {
			n, err := h.uppers.Allocated(ctx, l.Upper)
			if err != nil {
				return st, fmt.Errorf("measuring layer %s: %w", l.ID, err)
			}
			st.Sealed += n
		}
	}
	if ids := append(catalog.ImagesOf(all, false), documents...); len(ids) > 0 {
		u, err := h.store.Usage(ctx, ids...)
		if err != nil {
			return st, classify(err)
		}
		st.Logical, st.Stored = u.Logical, u.Stored
	}
	if ids := append(catalog.ImagesOf(own, true), documents...); len(ids) > 0 {
		u, err := h.store.Usage(ctx, ids...)
		if err != nil {
			return st, classify(err)
		}
		st.Unique, st.Reclaimable = u.Unique, u.Reclaimable
	}
	st.Shared = max(0, st.Stored-st.Unique)
	return st, nil
}

// ownManifests lists, for every snapshot and workspace that has some, the stored layers that only it needs, and the
// documents of every scope.
func (h *Home) ownManifests(documents []catalog.KeyedDocument) [][]chunkstore.ID {
	var sets [][]chunkstore.ID
	add := func(top string, who catalog.Holder) {
		if ids := catalog.ImagesOf(h.catalog.Own(top, who), true); len(ids) > 0 {
			sets = append(sets, ids)
		}
	}
	for _, w := range h.catalog.Workspaces() {
		add(w.Base, w.Holder())
	}
	for s := range h.catalog.ListSnapshots(catalog.Query{}) {
		add(s.Top, s.Holder())
	}
	for len(documents) > 0 {
		n := slices.IndexFunc(documents, func(d catalog.KeyedDocument) bool {
			d.Name = documents[0].Name
			return d.DocumentKey != documents[0].DocumentKey
		})
		if n < 0 {
			n = len(documents)
		}
		sets = append(sets, contents(documents[:n]))
		documents = documents[n:]
	}
	return sets
}

// homeStats accounts for everything. Unique is the sum of what each snapshot, each workspace and each scope of documents
// alone needs.
func (h *Home) homeStats(ctx context.Context) (Stats, error) {
	store, err := h.store.Stats(ctx)
	if err != nil {
		return Stats{}, classify(err)
	}
	all := h.catalog.Layers()
	st := Stats{
		Layers: int64(len(all)), Logical: store.Logical, Stored: store.Payload, Reclaimable: store.Garbage,
		Packs: store.Packs, Index: store.Index, IndexCache: store.IndexCache, Written: store.Written, Moved: store.Moved,
	}
	var documents []catalog.KeyedDocument
	if err := h.catalog.EachDocument(ctx, "", func(d catalog.KeyedDocument) error {
		documents = append(documents, d)
		return nil
	}); err != nil {
		return st, err
	}
	st.Documents = int64(len(documents))
	unique, err := h.store.Unique(ctx, h.ownManifests(documents))
	if err != nil {
		return st, classify(err)
	}
	for _, n := range unique {
		st.Unique += n
	}
	if st.Pinned, st.PinnedBytes, err = h.pinned(ctx); err != nil {
		return st, err
	}
	st.Shared = max(0, st.Stored-st.Unique) // both are measured while the store goes on
	for _, w := range h.catalog.Workspaces() {
		st.Workspaces++
		n, err := h.uppers.Allocated(ctx, w.Upper)
		if err != nil {
			return st, fmt.Errorf("measuring workspace %s: %w", w.ID, err)
		}
		st.Upper += n
	}
	st.Snapshots = int64(h.catalog.Count().Snapshots)
	for _, l := range all {
		if l.Tier != nil {
			st.Logical -= l.Tier.Size // a second image of what other layers have
		}
		if l.State != Stored {
			n, err := h.uppers.Allocated(ctx, l.Upper)
			if err != nil {
				return st, fmt.Errorf("measuring layer %s: %w", l.ID, err)
			}
			st.Sealed += n
		}
	}
	return st, nil
}
