package catalog

import (
	"maps"
	"testing"

	"snapfs/chunkstore"
	"snapfs/sandbox/api"
)

// openStore opens a new store, closed when the test ends.
func openStore(t *testing.T) *chunkstore.Store {
	t.Helper()
	store, err := chunkstore.Open(t.TempDir(), chunkstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store
}

// open opens the catalog of a store.
func open(t *testing.T, store *chunkstore.Store) *Catalog {
	t.Helper()
	c, err := Open(t.Context(), store, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// records are all records of a store, by bucket and key, but for the newest id.
func records(t *testing.T, store *chunkstore.Store) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := store.View(t.Context(), func(tx *chunkstore.Tx) error {
		for _, bucket := range []string{bucketWorkspaces, bucketSnapshots, bucketLayers, bucketTrash, bucketEvents, bucketMerges, bucketPacking} {
			if err := tx.Scan(bucket, "", func(key string, value []byte) (bool, error) {
				all[bucket+" "+key] = string(value)
				return true, nil
			}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// put makes a change durable.
func put(t *testing.T, c *Catalog, change Change) {
	t.Helper()
	if _, err := c.Update(t.Context(), true, func(ch *Change) error { *ch = change; return nil }); err != nil {
		t.Fatal(err)
	}
}

// TestWithdrawLater: an undoing that the store could not take goes with the next change that it takes.
func TestWithdrawLater(t *testing.T) {
	store := openStore(t)
	c := open(t, store)
	w := &Workspace{ID: "w", Session: "s", Upper: 1}
	put(t, c, Change{PutWorkspaces: []*Workspace{w}, Events: []api.Event{{Workspace: "w", Kind: api.EventCreated}}})
	before := records(t, store)
	s, err := c.Stage(t.Context(), true, func(ch *Change) error {
		layer := &Layer{ID: c.NewID(), State: api.Sealed, Upper: w.Upper}
		snap := &Snapshot{ID: c.NewID(), Workspace: "w", Session: "s", Top: layer.ID}
		next := *w
		next.Upper, next.Base, next.Head = 2, layer.ID, snap.ID
		*ch = Change{
			PutWorkspaces: []*Workspace{&next}, PutLayers: []*Layer{layer}, PutSnapshots: []*Snapshot{snap}, PutTrash: []uint64{7},
			Events: []api.Event{{Workspace: "w", Kind: api.EventSnapshotted, Snapshot: snap.ID}},
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if maps.Equal(records(t, store), before) {
		t.Error("what is staged is not durable")
	}
	closed, err := chunkstore.Open(t.TempDir(), chunkstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	c.store = closed
	if err := c.Withdraw(t.Context(), s); err == nil {
		t.Error("a closed store took it")
	}
	c.store = store
	v := &Workspace{ID: "v", Session: "s", Upper: 3}
	put(t, c, Change{PutWorkspaces: []*Workspace{v}})
	after := records(t, store)
	delete(after, bucketWorkspaces+" v")
	if !maps.Equal(after, before) {
		t.Errorf("the store has\n%v, before it had\n%v", after, before)
	}
	for _, c := range []*Catalog{c, open(t, store)} {
		if n := c.Count(); n != (Counts{Workspaces: 2}) || c.Workspace("w").Upper != 1 || c.Workspace("w").Base != "" {
			t.Errorf("%+v, workspace %+v", n, c.Workspace("w"))
		}
	}
}
