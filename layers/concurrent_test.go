package layers

import (
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
)

// TestConcurrentActors lets several actors work on one overlay while it is sealed again and again. What they get back
// depends on their timing; at the end the tree must be consistent, must be the same after a restart, and nothing may
// be left in memory.
func TestConcurrentActors(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	r := newRig(t, randomLower(t, rng, true), randomLower(t, rng, true))
	var wg sync.WaitGroup
	for actor := range 4 {
		rng := rand.New(rand.NewPCG(8, uint64(actor)))
		wg.Go(func() {
			for range 400 {
				s := randomStep(rng)
				if s.kind == "list" {
					continue // the rig reports its errors
				}
				if got := r.do(s); got == "EIO " || got == "ESTALE " || got == "EXDEV " {
					t.Errorf("%s: %s", s, got)
				}
			}
		})
	}
	for range 5 {
		r.seal()
	}
	wg.Wait()
	r.wantRestart()
}

// wantRestart checks that nothing but the root is held, and that the tree is the same after it was closed and opened
// again.
func (r *rig) wantRestart() {
	r.t.Helper()
	r.wantNodes(1)
	before := r.walk()
	r.reopen()
	after := r.walk()
	if len(before) != len(after) {
		r.t.Fatalf("%d paths became %d by a restart", len(before), len(after))
	}
	for i := range before {
		a, b := before[i], after[i]
		if a.String() != b.String() || a.Ino != b.Ino {
			r.t.Errorf("restart: %s (%s) became %s (%s)", a, strconv.FormatUint(a.Ino, 16), b, strconv.FormatUint(b.Ino, 16))
		}
	}
	r.wantNodes(1)
}
