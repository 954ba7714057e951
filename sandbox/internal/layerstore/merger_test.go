package layerstore

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"snapfs/sandbox/internal/catalog"
)

// grow seals layers one upon the other, until they are stored and nothing more is to be done for them.
func (x *fixture) grow(top string, layers int) (newTop string, snapshots []*catalog.Snapshot) {
	x.t.Helper()
	for i := range layers {
		var s *catalog.Snapshot
		top, s = x.seal(top, fmt.Sprint("file", i))
		snapshots = append(snapshots, s)
	}
	if err := x.storer.Wait(x.t.Context(), top, nil); err != nil {
		x.t.Fatal(err)
	}
	// Who waits for a layer goes on a moment before its storing has quite ended.
	for slices.ContainsFunc(x.Catalog.Layers(), func(l *catalog.Layer) bool { return x.Catalog.Pinned(l.ID) }) {
		time.Sleep(time.Millisecond)
	}
	return top, snapshots
}

// TestMergeWaitsForStoring holds that a layer whose storing has not quite ended gets no tier: the cache may still have
// its directory, of which partial files would be merged without what lies below.
func TestMergeWaitsForStoring(t *testing.T) {
	x := newFixture(t, true) // nothing is merged meanwhile
	x.grow("", catalog.TierFan+1)
	x.merger.mu.Lock()
	defer x.merger.mu.Unlock()
	due, ok := x.merger.merges.Next(catalog.BaseShare)
	if !ok || due.Tier == 0 {
		t.Fatalf("got %+v, %v, want a tier", due, ok)
	}
	if !x.Catalog.Pin(due.Top.ID) {
		t.Fatal("the layer is gone")
	}
	if j, ok := x.merger.merges.Next(catalog.BaseShare); ok && j.Top.ID == due.Top.ID {
		t.Errorf("a layer that is being stored is merged: %+v", j)
	}
	if _, err := x.Catalog.Unpin(t.Context(), due.Top.ID); err != nil {
		t.Fatal(err)
	}
	if j, ok := x.merger.merges.Next(catalog.BaseShare); !ok || j.Top.ID != due.Top.ID {
		t.Errorf("got %+v, %v after storing, want layer %s", j, ok, due.Top.ID)
	}
}

// TestMergeLooksAtWhatChanged holds that looking only at layers that have changed finds what looking at all finds.
func TestMergeLooksAtWhatChanged(t *testing.T) {
	x := newFixture(t, true)
	settled := func(when string) {
		t.Helper()
		if err := x.merger.All(t.Context(), catalog.BaseShare); err != nil {
			t.Fatal(err)
		}
		if j, ok := x.Catalog.Merges().Next(catalog.BaseShare); ok { // which looks at all layers
			t.Errorf("%s: %+v was due and not found", when, j)
		}
	}
	top, snapshots := x.grow("", catalog.TierFan+4)
	settled("at first")
	if !slices.ContainsFunc(x.Catalog.Layers(), func(l *catalog.Layer) bool { return l.Tier != nil }) {
		t.Error("no layer has got a tier")
	}
	x.grow(top, 1)
	settled("after a snapshot")
	for _, i := range []int{3, catalog.TierFan, 9, 10} {
		x.delete(snapshots[i])
		settled(fmt.Sprint("after deleting ", i))
	}
}
