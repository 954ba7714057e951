package sandbox

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestReadyUppers takes uppers that were made in advance, which are nobody's strays while they wait, and go with the home.
func TestReadyUppers(t *testing.T) {
	h, err := Open(t.Context(), filepath.Join(t.TempDir(), "home"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	waitReady := func() {
		t.Helper()
		for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
			h.ready.mu.Lock()
			n := len(h.ready.ready)
			h.ready.mu.Unlock()
			if n == readyMost {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%d uppers are ready", n)
			}
		}
	}
	if _, ok := h.ready.take(); ok {
		t.Error("an upper was ready before any was asked for")
	}
	seen := map[uint64]bool{}
	for range 2 * readyMost {
		waitReady()
		if left, err := h.strangers(nil); err != nil || len(left) != len(seen) {
			t.Errorf("strays %v, %v; %d were taken", left, err, len(seen))
		}
		n, ok := h.ready.take()
		if !ok || seen[n] || !h.uppers.exists(n) {
			t.Errorf("upper %d: %v, taken before %v", n, ok, seen[n])
		}
		seen[n] = true
	}
	waitReady()
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(h.uppers.dir); err != nil || len(left) != len(seen) {
		t.Errorf("left %v, %v; %d were taken", left, err, len(seen))
	}
}
