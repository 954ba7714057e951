package sandbox

import (
	"testing"

	"snapfs/layers"
)

// TestCaptureStates: what is remembered of captures is bounded, and small workspaces do not suffer from large ones.
func TestCaptureStates(t *testing.T) {
	var s captureStates
	put := func(upper uint64, names int) { s.put(upper, "layer", &layers.CaptureState{}, names) }
	want := func(what string, uppers ...uint64) {
		t.Helper()
		for u := range uint64(10) {
			known := false
			for _, w := range uppers {
				known = known || u == w
			}
			if got := s.get(u, "layer") != nil; got != known {
				t.Errorf("%s: %d is known: %v", what, u, got)
			}
		}
	}
	put(1, 100)
	put(2, maxCaptured/2)
	put(3, maxCaptured/4)
	put(4, maxCaptured+1)
	want("all but one that is too large", 1, 2, 3)
	put(5, maxCaptured/2)
	want("another large one", 1, 3, 5)
	put(6, maxCaptured-1000)
	want("one for which those with less than their share leave no room", 1, 3)
	if s.get(3, "other") != nil {
		t.Error("it is that of another layer")
	}
	put(3, 10)
	s.forget(1)
	want("forgotten", 3)
	if s.names != 10 {
		t.Errorf("it counts %d names", s.names)
	}
}
