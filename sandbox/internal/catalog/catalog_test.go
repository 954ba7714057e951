package catalog

import (
	"slices"
	"strings"
	"testing"

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
