package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestIdle: a home that is left alone is packed anew by itself, and a call ends the work.
func TestIdle(t *testing.T) {
	work := t.TempDir()
	src := filepath.Join(work, "src")
	if err := os.Mkdir(src, 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range idleChunks + 10 {
		if err := os.WriteFile(filepath.Join(src, fmt.Sprint(i)), fmt.Appendf(nil, "file %d\n", i), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	h, err := Open(t.Context(), filepath.Join(work, "home"), Options{IdleAfter: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	if _, err := h.Create(t.Context(), CreateRequest{Name: "w", Source: src}); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(2 * time.Minute)
	for h.store.Unoptimized() > 0 || h.Background() != "" {
		if time.Now().After(deadline) {
			t.Fatalf("%d chunks are not packed anew, %q", h.store.Unoptimized(), h.Background())
		}
		time.Sleep(time.Millisecond)
	}
	r, err := h.Check(t.Context(), CheckRequest{ReadData: true})
	if err != nil || len(r.Problems) > 0 {
		t.Errorf("check: %v, %v", r.Problems, err)
	}

	before := time.Now()
	if _, err := h.Workspaces(t.Context(), ListRequest{}); err != nil {
		t.Fatal(err)
	}
	h.idler.mu.Lock()
	last := h.idler.last
	h.idler.mu.Unlock()
	if last.Before(before) {
		t.Error("a call went unnoticed")
	}
	i := newIdler(h, 0)
	ended := false
	i.cancel = func() { ended = true }
	i.enter()
	if !ended {
		t.Error("a call does not end the work")
	}
}
