package sandbox

import (
	"os"
	"path/filepath"
	"testing"

	"snapfs/sandbox/internal/catalog"
)

// TestSourceCopiesStay: what was read of a source stays until nobody has its layer open, also if the image has come in its
// place: a file may just be being copied.
func TestSourceCopiesStay(t *testing.T) {
	h := openTest(t, filepath.Join(t.TempDir(), "home"))
	src := t.TempDir()
	if err := os.WriteFile(filepath.Join(src, "file"), []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	upper, err := h.uppers.CreateDurable(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	l := &catalog.Layer{ID: h.catalog.NewID(), State: Importing, Upper: upper, Source: &catalog.Source{Path: src}}
	if err := h.identify(l.Source); err != nil {
		t.Fatal(err)
	}
	low, err := h.openSourceNow(l)
	if err != nil {
		t.Fatal(err)
	}
	h.uppers.Discard(upper)
	if err := h.uppers.WaitDiscarded(t.Context()); err != nil || !h.uppers.Exists(upper) {
		t.Error("the copies are gone while the layer is open", err)
	}
	if err := low.Close(); err != nil {
		t.Error(err)
	}
	if err := h.uppers.WaitDiscarded(t.Context()); err != nil || h.uppers.Exists(upper) {
		t.Error("the copies are left when the layer is closed", err)
	}
}
