package layers

import (
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"snapfs/internal/testseed"
	"snapfs/internal/treewalk"
)

// TestRollbackAtOnce: behind the gate a rollback looks at no node but the root, whatever there is in memory; and what
// is done as soon as the gate is open has the same outcome as when it is done after the rollback has looked at all.
func TestRollbackAtOnce(t *testing.T) {
	seed := testseed.Of(t)
	rounds := 8
	if os.Getenv("SNAPFS_LONG") != "" {
		rounds = 1000
	}
	for i := range rounds {
		if !t.Run(strconv.Itoa(i), func(t *testing.T) { atOnceRound(t, seed+uint64(i)) }) {
			t.Fatalf("SNAPFS_SEED=%d", seed+uint64(i))
		}
	}
}

func atOnceRound(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 5))
	base, other := randomLower(t, rng, true), randomLower(t, rng, false)
	var got [2][]string
	var trees [2][]treewalk.Node
	script := rng.Uint64()
	for side := range 2 {
		rng := rand.New(rand.NewPCG(script, 6))
		r := newRig(t, base, other)
		owned := map[*Lower]bool{}
		r.closeOthers(owned)
		points := []frozen{{lowers: r.lowers}}
		for _, l := range r.lowers {
			owned[l] = true
		}
		var released atomic.Int64
		for turn := range 6 {
			for range 10 + rng.IntN(40) {
				r.do(randomStep(rng))
			}
			if rng.IntN(2) == 0 {
				owned[r.seal()] = true
				points = append(points, frozen{lowers: r.lowers})
				for range rng.IntN(20) {
					r.do(randomStep(rng))
				}
			}
			cache := r.fill(rng)
			steps := make([]step, 5+rng.IntN(40))
			for i := range steps {
				steps[i] = randomStep(rng)
			}
			act := func(time.Duration) {
				for _, s := range steps {
					got[side] = append(got[side], s.String()+" = "+r.do(s))
				}
			}
			if side == 0 {
				r.o.opts.Held = func(took time.Duration) {
					if outcomes := r.o.nodes.late.Load().by.(*rollback).outcomes; len(outcomes) != 1 {
						t.Errorf("turn %d: %d nodes were looked at behind the gate", turn, len(outcomes))
					}
					act(took)
				}
			}
			r.back(points[rng.IntN(len(points))], &released)
			r.o.opts.Held = nil
			if side == 1 {
				act(0)
			}
			for id := range cache.refs {
				if _, err := r.o.GetAttr(id); err != nil {
					t.Errorf("turn %d: node %x: %v", turn, id, err)
				}
			}
			if rng.IntN(3) > 0 {
				cache.forget()
			} else {
				defer cache.forget()
			}
		}
		trees[side] = r.walk()
		t.Cleanup(func() {
			r.wantNodes(1)
			if n := released.Load(); n != 6 {
				t.Errorf("%d of 6 sets of layers were given up", n)
			}
		})
	}
	if !slices.Equal(got[0], got[1]) {
		for i := range got[0] {
			if got[0][i] != got[1][i] {
				t.Fatalf("step %d at once: %s; afterwards: %s", i, got[0][i], got[1][i])
			}
		}
	}
	for i, d := range treewalk.Diff(trees[1], trees[0], treewalk.Options{IgnoreMtime: true}) {
		if i < 5 {
			t.Errorf("%.300s", d)
		}
	}
}

// TestConcurrentRollback lets several actors work on an overlay that goes back again and again. At the end it is the
// same after a restart, and nothing is left in memory.
func TestConcurrentRollback(t *testing.T) {
	seed := testseed.Of(t)
	rng := rand.New(rand.NewPCG(seed, 7))
	r := newRig(t, randomLower(t, rng, true), randomLower(t, rng, true))
	owned := map[*Lower]bool{}
	r.closeOthers(owned)
	points := []frozen{{lowers: r.lowers}}
	for _, l := range r.lowers {
		owned[l] = true
	}
	stop := r.act(seed, "EIO ", "EXDEV ")
	var released atomic.Int64
	const rollbacks = 12
	for range rollbacks {
		if rng.IntN(3) > 0 {
			owned[r.seal()] = true
			points = append(points, frozen{lowers: r.lowers})
		}
		time.Sleep(time.Duration(rng.IntN(5)) * time.Millisecond)
		r.back(points[rng.IntN(len(points))], &released)
	}
	stop()
	r.wantNodes(1)
	if n := released.Load(); n != rollbacks {
		t.Errorf("%d of %d sets of layers were given up", n, rollbacks)
	}
	before := r.walk()
	r.reopen()
	if d := treewalk.Diff(before, r.walk(), treewalk.Options{Ino: true}); len(d) > 0 {
		t.Error("restart:", d[0])
	}
}
