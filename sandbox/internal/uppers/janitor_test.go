package uppers

import (
	"os"
	"path/filepath"
	"testing"
)

// TestDiscard holds that a discarded upper is removed with its record, one that is held not before it is released.
func TestDiscard(t *testing.T) {
	s, r, _ := openSet(t, t.TempDir())
	var all [2]uint64
	for i := range all {
		n, err := s.Create(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(s.Path(n), "file"), []byte("data"), 0o644); err != nil {
			t.Fatal(err)
		}
		all[i] = n
		r.mu.Lock()
		r.trash[n] = true
		r.mu.Unlock()
	}
	wait := func() {
		t.Helper()
		if err := s.WaitDiscarded(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	state := func(n uint64, want bool) {
		t.Helper()
		trash, err := r.Trash(t.Context())
		if err != nil || s.Exists(n) != want || trash[n] != want {
			t.Errorf("upper %d: there %v, in the trash %v, %v, want %v", n, s.Exists(n), trash[n], err, want)
		}
	}
	first, second := s.Hold(all[0]), s.Hold(all[0])
	s.Discard(all[0])
	s.Discard(all[1])
	wait()
	state(all[0], true)
	state(all[1], false)
	first()
	wait()
	state(all[0], true)
	second()
	wait()
	state(all[0], false)
}
