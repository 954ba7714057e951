package chunkstore

import "testing"

// raceEnabled says that the race detector is on.
var raceEnabled bool

// unraced leaves a long test of what one goroutine does to the run without the race detector, under which it takes several
// times as long. Other tests fill disks and damage stores there, too.
func unraced(t *testing.T) {
	t.Helper()
	if raceEnabled {
		t.Skip("one goroutine does it")
	}
}
