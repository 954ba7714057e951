package catalog

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"snapfs/chunkstore"
	"snapfs/sandbox/api"
)

// TestCollect checks which layers go with their last name.
func TestCollect(t *testing.T) {
	c := newCatalog(nil, Options{})
	// base <- one <- two, base <- side
	w, v := &Workspace{ID: "w", Base: "two"}, &Workspace{ID: "v", Base: "side"}
	s := &Snapshot{ID: "s", Top: "one"}
	c.apply(&Change{
		PutLayers: []*Layer{
			{ID: "base", State: api.Stored},
			{ID: "one", Parent: "base", State: api.Stored},
			{ID: "two", Parent: "one", State: api.Sealed, Upper: 7},
			{ID: "side", Parent: "base", State: api.Stored},
		},
		PutWorkspaces: []*Workspace{w, v}, PutSnapshots: []*Snapshot{s},
	})
	gone := func(ch *Change) string {
		c.collect(ch)
		var ids []string
		for _, l := range ch.delLayers {
			ids = append(ids, l.ID)
		}
		return strings.Join(ids, " ")
	}
	for _, test := range []struct {
		name string
		ch   *Change
		want string
	}{
		{"a snapshot below others", &Change{DelSnapshots: []*Snapshot{s}}, ""},
		{"a workspace alone on its layer", &Change{DelWorkspaces: []*Workspace{w}}, "two"},
		{"the snapshot with it", &Change{DelWorkspaces: []*Workspace{w}, DelSnapshots: []*Snapshot{s}}, "two one"},
		{"everything", &Change{DelWorkspaces: []*Workspace{w, v}, DelSnapshots: []*Snapshot{s}}, "two side one base"},
		{"a workspace that moves", &Change{PutWorkspaces: []*Workspace{{ID: "w", Base: "one"}}}, "two"},
		{"a workspace that moves up", &Change{
			PutWorkspaces: []*Workspace{{ID: "w", Base: "three"}},
			PutLayers:     []*Layer{{ID: "three", Parent: "two"}},
		}, ""},
	} {
		if got := gone(test.ch); got != test.want {
			t.Errorf("%s: gone %q, want %q", test.name, got, test.want)
		}
	}
	ch := &Change{DelWorkspaces: []*Workspace{w}}
	if gone(ch); !slices.Equal(ch.PutTrash, []uint64{7}) {
		t.Errorf("trash %v", ch.PutTrash)
	}
	c.pinned["two"] = true
	if got := gone(&Change{DelWorkspaces: []*Workspace{w}}); got != "" {
		t.Errorf("pinned: gone %q", got)
	}
	own := func(top string, who Holder) int { return len(c.Own(top, who)) }
	if own("two", w.Holder()) != 1 || own("one", s.Holder()) != 0 || own("side", v.Holder()) != 1 {
		t.Error("own")
	}
}

// TestUnswept: layers that an error has kept go with a change whose caller looks at what is gone, and with no other.
func TestUnswept(t *testing.T) {
	c := open(t, openStore(t))
	put(t, c, Change{PutLayers: []*Layer{
		{ID: "left", State: api.Stored, Manifest: 101}, {ID: "also", State: api.Stored, Manifest: 102},
	}})
	c.unswept = []string{"left", "also"}
	put(t, c, Change{Events: []api.Event{{Workspace: "w", Kind: api.EventCreated}}})
	if len(c.Layers()) != 2 {
		t.Errorf("%d layers after a change that removes nothing", len(c.Layers()))
	}
	gone, err := c.Unpin(t.Context(), "other")
	if err != nil || len(gone) != 2 || len(c.Layers()) != 0 || len(c.unswept) != 0 {
		t.Errorf("%d layers are gone, %d are left, of which %d are known: %v",
			len(gone), len(c.Layers()), len(c.unswept), err)
	}
}

// TestLongStackGoes removes a workspace over so many layers that their removal does not fit into one transaction.
func TestLongStackGoes(t *testing.T) {
	s, err := chunkstore.Open(t.TempDir(), chunkstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	c, err := Open(t.Context(), s, Options{})
	if err != nil {
		t.Fatal(err)
	}
	put := func(fn func(ch *Change)) []*Layer {
		gone, err := c.Update(t.Context(), false, func(ch *Change) error {
			fn(ch)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return gone
	}
	const layers, each = 12_000, 2000
	name := func(i int) string { return fmt.Sprintf("l%06d", i) }
	var w *Workspace
	for first := 0; first < layers; first += each {
		put(func(ch *Change) {
			for i := first; i < first+each; i++ {
				l := &Layer{ID: name(i), State: api.Sealed, Upper: uint64(i + 1)}
				if i > 0 {
					l.Parent = name(i - 1)
				}
				ch.PutLayers = append(ch.PutLayers, l)
			}
			w = &Workspace{ID: "w", Base: name(first + each - 1), Upper: layers + 1}
			ch.PutWorkspaces = append(ch.PutWorkspaces, w)
		})
	}
	gone := put(func(ch *Change) { ch.DelWorkspaces = append(ch.DelWorkspaces, w) })
	if len(gone) != layers {
		t.Errorf("%d layers are gone", len(gone))
	}
	trash, err := c.Trash(t.Context())
	if err != nil || len(trash) != layers || len(c.Layers()) != 0 {
		t.Errorf("%d uppers in the trash, %d layers left, %v", len(trash), len(c.Layers()), err)
	}
	again, err := Open(t.Context(), s, Options{})
	if err != nil || len(again.Layers()) != 0 {
		t.Errorf("%d layers after opening again, %v", len(again.Layers()), err)
	}
}
