package sandbox

import "testing"

// TestSyncBelowUnknown: of a layer that is gone it is not known what lies below, and everything is synced.
func TestSyncBelowUnknown(t *testing.T) {
	synced := 0
	h, err := Open(t.Context(), t.TempDir(), Options{points: func(point string) {
		if point == "file system synced" {
			synced++
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}()
	known := func([]uint64) error { return nil }
	if err := h.syncBelow("", known); err != nil || synced != 0 {
		t.Errorf("without layers: %d syncs, %v", synced, err)
	}
	if err := h.syncBelow("gone", known); err != nil || synced != 1 {
		t.Errorf("of a layer that is gone: %d syncs, %v", synced, err)
	}
}
