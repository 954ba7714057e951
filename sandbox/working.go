package sandbox

import (
	"runtime"

	"snapfs/sandbox/internal/places"
)

// Imports, exports, comparisons and checks each take memory that grows with a tree, and a processor for long, and so do
// large documents that are saved. So a few of a kind work at a time, and the others wait in line.

const (
	// fewPlaces is how many imports, exports, and large documents, work at a time on a machine with few processors; else as
	// many as there are.
	fewPlaces = 4
	// diffPlaces is more: a comparison also waits for its caller to read it.
	diffPlaces = 8
	// checkPlaces are two: one for those that read all data, and one for those that do not.
	checkPlaces = 2
)

// working are the places of a home.
type working struct {
	imports, exports, diffs, checks, documents *places.Places
}

func newWorking() working {
	most := max(fewPlaces, runtime.GOMAXPROCS(0))
	return working{
		imports: places.New(most), exports: places.New(most), diffs: places.New(diffPlaces),
		checks: places.New(checkPlaces), documents: places.New(most),
	}
}
