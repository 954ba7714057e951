package layers

import (
	"cmp"
	"math/rand/v2"
	"strings"
	"testing"

	"snapfs/internal/testseed"
)

// TestThingPaths compares things with their paths as strings.
func TestThingPaths(t *testing.T) {
	rng := rand.New(rand.NewPCG(testseed.Of(t), 1))
	root := &thing{}
	all := []*thing{root}
	paths := []string{""}
	for range 60 {
		i := rng.IntN(len(all))
		name := strings.Repeat("a", rng.IntN(3)) + []string{"-", "a", "0", "\xff", "b", "\x01"}[rng.IntN(6)]
		all = append(all, all[i].child(name, hit{}))
		paths = append(paths, strings.TrimPrefix(paths[i]+"/"+name, "/"))
	}
	for i, a := range all {
		if got := a.path(); got != paths[i] || a.size != len(got) {
			t.Fatalf("path %q of %d bytes, want %q", got, a.size, paths[i])
		}
		for k, b := range all {
			want := cmp.Compare(paths[i], paths[k])
			if got := cmp.Compare(comparePaths(a, b), 0); got != want {
				t.Fatalf("%q and %q compare as %d, want %d", paths[i], paths[k], got, want)
			}
			if got := samePath(a, b); got != (want == 0) {
				t.Fatalf("%q and %q are the same: %v", paths[i], paths[k], got)
			}
		}
	}
}
