package sandbox

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/RoaringBitmap/roaring/v2/roaring64"

	"snapfs/sandbox/internal/catalog"
	"snapfs/sandbox/internal/uppers"
)

// someNumbers are numbers of a layer: most of its own, some of others'.
func someNumbers(rnd *rand.Rand, layer int) *roaring64.Bitmap {
	own := roaring64.New()
	for range 5 {
		own.Add(uint64(1+layer)<<uppers.SpaceBits | uint64(rnd.IntN(10)))
		own.Add(uint64(1+rnd.IntN(layer+1))<<uppers.SpaceBits | uint64(rnd.IntN(10)))
	}
	return own
}

// TestRepeats compares the numbers that layers of a random history have in common with those below with what comparing
// each with each below gives.
func TestRepeats(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	const count = 200
	var all []*catalog.Layer
	own, parent := map[string]*roaring64.Bitmap{}, map[string]string{}
	for i := range count {
		l := &catalog.Layer{ID: fmt.Sprintf("%04d", i)}
		if i > 0 && rnd.IntN(20) > 0 {
			l.Parent = fmt.Sprintf("%04d", max(i-1-rnd.IntN(3), 0))
		}
		all = append(all, l)
		own[l.ID], parent[l.ID] = someNumbers(rnd, i), l.Parent
	}
	f := newTwinFinder(nil)
	f.arrange(all, nil)
	seen := 0
	var walkUp func(id string)
	walkUp = func(id string) {
		for _, l := range f.on[id] {
			seen++
			n := &layerNumbers{own: own[l.ID].Clone()}
			known := roaring64.BitmapOf(1 << uppers.SpaceBits)
			want := roaring64.New()
			for below := l.Parent; below != ""; below = parent[below] {
				want.Or(roaring64.And(n.own, own[below]))
			}
			want.AndNot(known)
			if got := f.repeats(n, known); !got.Equals(want) {
				t.Errorf("layer %s: %v, want %v", l.ID, got, want)
			}
			leave := f.enter(n)
			walkUp(l.ID)
			leave()
		}
	}
	walkUp("")
	if seen != count || !f.below.IsEmpty() {
		t.Errorf("%d layers of %d, and %d numbers are left", seen, count, f.below.GetCardinality())
	}
}

// TestRepeatsOfDeepHistory: what is done for a layer does not grow with how many are below it.
func TestRepeatsOfDeepHistory(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 0))
	f := newTwinFinder(nil)
	for depth := range 2000 {
		n := &layerNumbers{own: someNumbers(rnd, depth)}
		if depth%500 == 499 {
			if allocs := testing.AllocsPerRun(1, func() { f.repeats(n, n.own) }); allocs > 200 {
				t.Errorf("at depth %d: %.0f allocations", depth, allocs)
			}
		}
		f.enter(n)
	}
}
