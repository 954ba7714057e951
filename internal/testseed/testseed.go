// Package testseed gives random tests their seeds.
//
// A check of a commit must not fail by chance, so the seed is the same in every run, unless $SNAPFS_SEED has another
// one, to repeat a failure or to look for new ones ('make hunt' does). A long run, by $SNAPFS_LONG, takes a new one by
// itself. The seed is in the test's output, which go test shows when it fails.
package testseed

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// Variable is the environment variable that has the seed.
const Variable = "SNAPFS_SEED"

const (
	usual = 1
	most  = 1 << 32 // bounds seeds that are made here: they are to be typed
)

// Of gives the seed of a test, and logs it.
func Of(t testing.TB) uint64 {
	t.Helper()
	seed, err := choose(os.Getenv(Variable), os.Getenv("SNAPFS_LONG") != "")
	if err != nil {
		t.Fatalf("%s: %v", Variable, err)
	}
	t.Logf("%s=%d", Variable, seed)
	return seed
}

// choose is Of without the environment.
func choose(text string, long bool) (uint64, error) {
	switch {
	case text == "" && long:
		return rand.Uint64N(most), nil
	case text == "":
		return usual, nil
	}
	return strconv.ParseUint(text, 10, 64)
}
