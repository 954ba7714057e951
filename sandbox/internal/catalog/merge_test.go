package catalog

import (
	"fmt"
	"testing"

	"snapfs/chunkstore"
	"snapfs/sandbox/api"
)

// TestMergeOfManyCompared merges a layer away that more snapshots are compared with than one transaction can change.
func TestMergeOfManyCompared(t *testing.T) {
	store := openStore(t)
	c := open(t, store)
	base := &Layer{ID: "base", State: api.Stored, Manifest: 101}
	mid := &Layer{ID: "mid", State: api.Stored, Manifest: 102, Parent: base.ID}
	top := &Layer{ID: "top", State: api.Stored, Manifest: 103, Parent: mid.ID}
	put(t, c, Change{PutLayers: []*Layer{base, mid, top}})
	const snapshots, each = 12_000, 1000
	for first := 0; first < snapshots; first += each {
		var ch Change
		for i := first; i < first+each; i++ {
			ch.PutSnapshots = append(ch.PutSnapshots, &Snapshot{
				ID: fmt.Sprintf("s%06d", i), Workspace: "w", Top: top.ID, ParentTop: mid.ID,
			})
		}
		put(t, c, ch)
	}
	j := MergeJob{Top: c.Layer(top.ID), Rest: []*Layer{c.Layer(mid.ID)}}
	m, err := c.RecordMerge(t.Context(), j, []Form{top.Form(false), mid.Form(false)}, chunkstore.Manifest{ID: 104})
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Gone) != 1 || m.Gone[0].ID != mid.ID {
		t.Errorf("%d layers are gone", len(m.Gone))
	}
	for _, c := range []*Catalog{c, open(t, store)} {
		if l := c.Layer(top.ID); l.Parent != base.ID || l.Manifest != 104 || c.Layer(mid.ID) != nil {
			t.Errorf("merged layer %+v, former one %v", l, c.Layer(mid.ID))
		}
		moved := 0
		for i := range snapshots {
			if s := c.Snapshot(fmt.Sprintf("s%06d", i)); s != nil && s.ParentTop == base.ID {
				moved++
			}
		}
		if moved != snapshots {
			t.Errorf("%d of %d snapshots are compared with the layer below", moved, snapshots)
		}
	}
}
