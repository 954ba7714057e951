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

// TestMergeAfterDelete deletes a snapshot by a record that was read before a merge changed it: later merges do not meet
// the snapshot any more.
func TestMergeAfterDelete(t *testing.T) {
	c := open(t, openStore(t))
	var ls []*Layer
	for i := range 4 {
		l := &Layer{ID: fmt.Sprint("l", i), State: api.Stored, Manifest: chunkstore.ID(101 + i)}
		if i > 0 {
			l.Parent = ls[i-1].ID
		}
		ls = append(ls, l)
	}
	put(t, c, Change{PutLayers: ls})
	put(t, c, Change{PutSnapshots: []*Snapshot{
		{ID: "s1", Workspace: "w", Top: "l3", ParentTop: "l2"}, {ID: "s2", Workspace: "w", Top: "l3", ParentTop: "l2"},
	}})
	merge := func(top, below string, id chunkstore.ID) {
		t.Helper()
		a, b := c.Layer(top), c.Layer(below)
		j := MergeJob{Top: a, Rest: []*Layer{b}}
		forms := []Form{a.Form(false), b.Form(false)}
		if _, err := c.RecordMerge(t.Context(), j, forms, chunkstore.Manifest{ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	before := c.Snapshot("s1")
	merge("l3", "l2", 111)
	put(t, c, Change{DelSnapshots: []*Snapshot{before}})
	merge("l3", "l1", 112)
	if s := c.Snapshot("s2"); s.ParentTop != "l0" {
		t.Errorf("s2 is compared with %s", s.ParentTop)
	}
}
