package layers

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"snapfs/chunkstore"
	"snapfs/internal/treewalk"
)

// TestRestackRandom merges rows of layers beneath random trees that go on changing, and takes them apart again. The tree stays what it is,
// and a kernel that is told nothing believes nothing wrong.
func TestRestackRandom(t *testing.T) {
	randomRounds(t, 4, restackRound)
}

func restackRound(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 3))
	s := openStore(t)
	base, err := PackTree(t.Context(), s, randomLower(t, rng, true), PackOptions{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := newRigOver(t, openStored(t, s, "base", base))
	owned := map[Lower]bool{r.lowers[0]: true}
	r.closeOthers(owned)
	steps := func() {
		for range rng.IntN(40) {
			r.do(randomStep(rng))
		}
	}
	released, restacks := 0, 0
	restack := func(from, n int, by []Lower) {
		t.Helper()
		if err := r.o.Restack(r.lowers[from:from+n], by, func() { released++ }); err != nil {
			t.Fatalf("%d of %d lowers from %d: %v", n, len(r.lowers), from, err)
		}
		restacks++
		r.lowers = append(append(append([]Lower{}, r.lowers[:from]...), by...), r.lowers[from+n:]...)
	}
	for turn := range 6 {
		for range 3 {
			steps()
			r.seal()
			owned[r.store(s)] = true
		}
		steps()
		cache := r.fill(rng)
		cache.timeless = true
		orphans := r.orphan(rng, cache)
		tree := r.walk()
		same := func(when string) {
			t.Helper()
			for i, d := range treewalk.Diff(tree, r.walk(), treewalk.Options{Ino: true}) {
				if i < 5 {
					t.Errorf("turn %d, %s: %.300s", turn, when, d)
				}
			}
			cache.check(Stale{})
			for n, data := range orphans {
				if got := cache.read(n); got != data {
					t.Errorf("turn %d, %s: what is open without a name reads %.50q, was %.50q", turn, when, got, data)
				}
			}
		}
		from := rng.IntN(len(r.lowers) - 1)
		n := 2 + rng.IntN(len(r.lowers)-from-1)
		m, err := Merge(t.Context(), s, r.lowers[from:], n, PackOptions{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		merged := openStored(t, s, "merged"+strconv.Itoa(turn), m)
		owned[merged] = true
		row := r.lowers[from : from+n]
		restack(from, n, []Lower{merged})
		same("merged")
		if rng.IntN(3) == 0 {
			restack(from, 1, row)
			same("taken apart")
		}
		for n, data := range orphans {
			writeOrphan(t, r.o, n, data)
			r.o.Forget(n, 1)
		}
		cache.forget()
		if t.Failed() {
			t.FailNow()
		}
	}
	r.wantNodes(1)
	if released != restacks {
		t.Errorf("%d of %d rows were given up", released, restacks)
	}
}

// store puts the image of the layer that was sealed last in its place.
func (r *rig) store(s *chunkstore.Store) Lower {
	r.t.Helper()
	l := r.lowers[0]
	m, err := Pack(r.t.Context(), s, l, r.lowers[1:], PackOptions{}, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	image := openStored(r.t, s, l.Key(), m)
	if err := r.o.Replace(image); err != nil {
		r.t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		r.t.Fatal(err)
	}
	r.lowers = append([]Lower{image}, r.lowers[1:]...)
	return image
}

// orphan unlinks some of the files of the root that a program has open, and tells what they hold.
func (r *rig) orphan(rng *rand.Rand, c *dcache) map[NodeID]string {
	r.t.Helper()
	orphans := map[NodeID]string{}
	for name, n := range c.entries[RootNode] {
		if n == 0 || !isReg(c.attrs[n].Mode) || c.attrs[n].Nlink > 1 || rng.IntN(3) > 0 {
			continue
		}
		e, err := r.o.Lookup(RootNode, name)
		if err != nil {
			r.t.Fatal(err)
		}
		if err := r.o.Unlink(RootNode, name); err != nil {
			r.t.Fatal(err)
		}
		orphans[e.Node] = c.data[n]
		c.entries[RootNode][name] = 0
		delete(c.attrs, n)
	}
	a, err := r.o.GetAttr(RootNode)
	if err != nil {
		r.t.Fatal(err)
	}
	c.attrs[RootNode] = a
	return orphans
}

// TestRestackRefuses holds that what does not show the same changes nothing.
func TestRestackRefuses(t *testing.T) {
	s := openStore(t)
	base, err := PackTree(t.Context(), s, t.TempDir(), PackOptions{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := newRigOver(t, openStored(t, s, "base", base))
	for i := range 3 {
		r.create("f"+strconv.Itoa(i), "contents")
		r.seal()
		r.store(s)
	}
	e, err := r.find("f0")
	if err != nil {
		t.Fatal(err)
	}
	defer r.o.Forget(e.Node, 1)
	want := r.walk()
	up := filepath.Join(t.TempDir(), "other")
	if err := os.Mkdir(up, 0o755); err != nil {
		t.Fatal(err)
	}
	other, err := OpenSealed("other", up, 1<<40)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := other.Close(); err != nil {
			t.Error(err)
		}
	})
	for name, try := range map[string]struct{ row, by []Lower }{
		"another tree":     {r.lowers[1:3], []Lower{other}},
		"nothing":          {r.lowers[1:3], nil},
		"no row":           {nil, []Lower{other}},
		"not neighbours":   {[]Lower{r.lowers[0], r.lowers[2]}, []Lower{other}},
		"not in the stack": {[]Lower{other}, r.lowers[:1]},
		"foreign":          {r.lowers[:1], []Lower{nil}},
	} {
		if err := r.o.Restack(try.row, try.by, func() { t.Error("released") }); err == nil {
			t.Errorf("%s: it went through", name)
		}
		if d := treewalk.Diff(want, r.walk(), treewalk.Options{Ino: true}); len(d) > 0 {
			t.Errorf("%s: %v", name, d)
		}
	}
}
