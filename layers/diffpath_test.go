package layers

import (
	"cmp"
	"math/rand/v2"
	"strings"
	"testing"

	"snapfs/internal/testseed"
)

// TestEntryPaths compares entries with their paths as strings.
func TestEntryPaths(t *testing.T) {
	rng := rand.New(rand.NewPCG(testseed.Of(t), 1))
	root := &treeEntry{}
	all := []*treeEntry{root}
	names := []string{""}
	for range 60 {
		i := rng.IntN(len(all))
		name := strings.Repeat("a", rng.IntN(3)) + []string{"-", "a", "0", "\xff", "b", "\x01"}[rng.IntN(6)]
		all = append(all, all[i].child(name, hit{}))
		names = append(names, strings.TrimPrefix(names[i]+"/"+name, "/"))
	}
	at := paths{}
	for i, a := range all {
		if got := a.path(); got != names[i] || a.size != len(got) {
			t.Fatalf("path %q of %d bytes, want %q", got, a.size, names[i])
		}
		for k, b := range all {
			want := cmp.Compare(names[i], names[k])
			if got := cmp.Compare(comparePaths(at.of(a), at.of(b)), 0); got != want {
				t.Fatalf("%q and %q compare as %d, want %d", names[i], names[k], got, want)
			}
			if got := at.of(a) == at.of(b); got != (want == 0) {
				t.Fatalf("%q and %q are the same: %v", names[i], names[k], got)
			}
		}
	}
}

// TestDeepThingPaths counts the steps from a deep path to those above it, and compares deep ones.
func TestDeepThingPaths(t *testing.T) {
	const depth, most = 30_000, 64
	at := paths{}
	one, other := &treeEntry{}, &treeEntry{} // the same chain, found in two trees
	for range depth {
		one, other = one.child("d", hit{}), other.child("d", hit{})
	}
	deep := at.of(one)
	if deep != at.of(other) || deep.depth != depth || len(at) != depth+1 {
		t.Fatalf("two nodes of a path, or one at depth %d of %d nodes", deep.depth, len(at))
	}
	for to := 0; to < depth; to += 997 {
		steps := 0
		for s := deep; s.depth > to; steps++ {
			if s.jump.depth >= to {
				s = s.jump
			} else {
				s = s.up
			}
		}
		if got := deep.above(to).depth; got != to || steps > most {
			t.Errorf("to depth %d: %d in %d steps", to, got, steps)
		}
	}
	a, b := at.of(one.child("a", hit{})), at.of(other.child("b", hit{}))
	if comparePaths(a, b) >= 0 || comparePaths(b, a) <= 0 || comparePaths(deep, a) >= 0 || comparePaths(at.of(one.up), b) >= 0 {
		t.Error("deep paths are out of order")
	}
	if listable := one.listable; listable.size > MaxPath || listable.size+2 <= MaxPath || one.child("x", hit{}).listable != listable {
		t.Errorf("a path of %d bytes is told", listable.size)
	}
}

// TestUse: what is in a directory that has found its counterpart has, too.
func TestUse(t *testing.T) {
	s := &side{only: []*treeEntry{{}}}
	for i := range 1000 {
		s.only[i].children = [2]int{i + 1, i + 2}
		s.only = append(s.only, &treeEntry{})
	}
	s.use(s.only[500])
	for i, x := range s.only {
		if x.used != (i >= 500) {
			t.Fatalf("%d is used: %v", i, x.used)
		}
	}
}
