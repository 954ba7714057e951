package catalog

import (
	"testing"

	"snapfs/sandbox/api"
)

// TestRename exchanges the names of two workspaces, with snapshots before, between and after, and reads them again.
func TestRename(t *testing.T) {
	store := openStore(t)
	c := open(t, store)
	take := func(workspace, name string) {
		t.Helper()
		put(t, c, Change{PutSnapshots: []*Snapshot{{ID: c.NewID(), Workspace: workspace, Name: name}}})
	}
	rename := func(old, name string) {
		t.Helper()
		w := *c.Workspace(old)
		w.ID = name
		put(t, c, Change{
			PutWorkspaces: []*Workspace{&w}, DelWorkspaces: []*Workspace{c.Workspace(old)},
			Rename: &Rename{ID: c.NewID(), Old: old, New: name},
			Events: []api.Event{{Workspace: name, Kind: api.EventRenamed}},
		})
	}
	put(t, c, Change{PutWorkspaces: []*Workspace{{ID: "a"}, {ID: "b"}, {ID: "idle"}}})
	take("a", "a1")
	take("b", "b1")
	rename("a", "tmp")
	take("tmp", "a2")
	rename("b", "a")
	take("a", "b2")
	rename("tmp", "b")
	take("b", "a3")
	rename("idle", "still")
	// A record that is written again keeps its names.
	s := *c.SnapshotCalled("b", "a1")
	s.ParentTop = "other"
	put(t, c, Change{PutSnapshots: []*Snapshot{&s}})
	named := *c.SnapshotCalled("a", "b1")
	named.Name = "b0"
	put(t, c, Change{PutSnapshots: []*Snapshot{&named}})

	check := func(c *Catalog) {
		t.Helper()
		for name, workspace := range map[string]string{"a1": "b", "a2": "b", "a3": "b", "b0": "a", "b2": "a"} {
			s := c.SnapshotCalled(workspace, name)
			if s == nil || s.Workspace != workspace {
				t.Errorf("%s:%s: %+v", workspace, name, s)
				continue
			}
			was := map[string]string{"a1": "a", "a2": "tmp", "b0": "b"}[name]
			if was != "" && !c.WasOf(s, was) || !c.WasOf(s, workspace) || c.WasOf(s, "idle") {
				t.Errorf("%s: names that its workspace had", name)
			}
			if name == "a3" && (c.WasOf(s, "a") || c.WasOf(s, "tmp")) {
				t.Errorf("%s: was taken after the renames", name)
			}
		}
		n := 0
		for range c.ListSnapshots(Query{}) {
			n++
		}
		if n != 5 || c.SnapshotCalled("a", "b1") != nil || c.SnapshotCalled("a", "a1") != nil || c.Workspace("tmp") != nil {
			t.Errorf("%d snapshots, or names that are gone", n)
		}
	}
	check(c)
	c = open(t, store)
	check(c)
	if len(c.index.renames) != 3 || len(c.unusedRenames) != 1 {
		t.Errorf("%d renames, %d unused", len(c.index.renames), len(c.unusedRenames))
	}
	rename("still", "idle") // takes the unused one away
	rename("idle", "still")
	c = open(t, store)
	check(c)
	if len(c.unusedRenames) != 2 {
		t.Errorf("%d unused renames", len(c.unusedRenames))
	}
}
