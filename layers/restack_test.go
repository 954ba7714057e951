package layers

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/chunkstore"
	"snapfs/internal/testseed"
	"snapfs/internal/treewalk"
)

// TestRestackRandom merges rows of layers beneath random trees that go on changing, and takes them apart again, as what
// is merged beneath a mount. Some layers of a row are still directories beneath the overlay, which are gone afterwards.
// The tree stays what it is, and a kernel that is told nothing believes nothing wrong; what is open without a name stays
// what it is over any number of merges.
func TestRestackRandom(t *testing.T) {
	randomRounds(t, 4, restackRound)
}

// restackRig is a rig whose lowers are merged.
type restackRig struct {
	*rig
	rng    *rand.Rand
	chunks *chunkstore.Store
	owned  map[*Lower]bool

	images map[*Lower]*Lower // of lowers that are still directories, by these
	dirs   map[*Lower]string // where these directories are

	released, restacks int                 // lowers
	atOnce             func(when string)   // called behind the gate
	orphans            []map[NodeID]string // what is open without a name, by the turn that has unlinked it
}

func newRestackRig(t *testing.T, rng *rand.Rand) *restackRig {
	t.Helper()
	s := openStore(t)
	base, err := StoreTree(t.Context(), s, randomLower(t, rng, true), StoreOptions{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := &restackRig{
		rig: newRigOver(t, openStored(t, s, "base", base)), rng: rng, chunks: s,
		images: map[*Lower]*Lower{}, dirs: map[*Lower]string{},
	}
	r.owned = map[*Lower]bool{r.lowers[0]: true}
	r.closeOthers(r.owned)
	return r
}

// grow seals a layer and stores it. Of some the overlay does not get the image.
func (r *restackRig) grow() {
	r.t.Helper()
	dir := r.upper()
	l := r.seal()
	if r.rng.IntN(3) > 0 {
		r.owned[r.store(r.chunks)] = true
		return
	}
	m, err := Store(r.t.Context(), r.chunks, l, r.lowers[1:], StoreOptions{}, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	r.images[l], r.dirs[l] = openStored(r.t, r.chunks, l.Key(), m), dir
	r.owned[r.images[l]] = true
}

// stored gives lowers as images.
func (r *restackRig) stored(lowers []*Lower) []*Lower {
	lowers = slices.Clone(lowers)
	for i, l := range lowers {
		if image := r.images[l]; image != nil {
			lowers[i] = image
		}
	}
	return lowers
}

// restack puts lowers in the place of n from one on.
func (r *restackRig) restack(from, n int, by []*Lower) {
	r.t.Helper()
	r.o.opts.Held = func(time.Duration) {
		if k := r.o.settled(); k != 1 {
			r.t.Errorf("%d nodes were looked at behind the gate", k)
		}
		if r.atOnce != nil {
			r.atOnce("at once")
		}
	}
	row := slices.Clone(r.lowers[from : from+n])
	err := r.o.Restack(row, by, func(i int) {
		r.released++
		if dir := r.dirs[row[i]]; dir != "" {
			if err := os.RemoveAll(dir); err != nil {
				r.t.Error(err)
			}
		}
	})
	if err != nil {
		r.t.Fatalf("%d of %d lowers from %d: %v", n, len(r.lowers), from, err)
	}
	r.o.opts.Held = nil
	r.restacks += n
	r.lowers = slices.Replace(slices.Clone(r.lowers), from, from+n, by...)
	for _, l := range row {
		if r.dirs[l] != "" {
			if err := l.Close(); err != nil {
				r.t.Error(err)
			}
		}
	}
}

// close forgets some of what is open without a name, all in the end.
func (r *restackRig) close(all bool) {
	r.t.Helper()
	for _, some := range r.orphans {
		for n, data := range some {
			if !all && r.rng.IntN(2) == 0 {
				continue
			}
			writeOrphan(r.t, r.o, n, data)
			r.o.Forget(n, 1)
			delete(some, n)
		}
	}
}

func restackRound(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 3))
	r := newRestackRig(t, rng)
	steps := func() {
		for range rng.IntN(40) {
			r.do(randomStep(rng))
		}
	}
	atOnce := rng.IntN(2) == 0 // what is found then must be what is found afterwards
	for turn := range 6 {
		for range 3 {
			steps()
			r.grow()
		}
		steps()
		cache := r.fill(rng)
		cache.imaged = true
		r.orphans = append(r.orphans, r.orphan(rng, cache))
		tree := r.walk()
		same := func(when string) {
			t.Helper()
			for i, d := range treewalk.Diff(tree, r.walk(), treewalk.Options{Ino: true}) {
				if i < 5 {
					t.Errorf("turn %d, %s: %.300s", turn, when, d)
				}
			}
			cache.check(Stale{})
			for of, some := range r.orphans {
				for n, data := range some {
					if got := cache.read(n); got != data {
						t.Errorf("turn %d, %s: what is open without a name since turn %d reads %.50q, was %.50q",
							turn, when, of, got, data)
					}
				}
			}
		}
		if r.atOnce = nil; atOnce {
			r.atOnce = same
		}
		from := rng.IntN(len(r.lowers) - 1)
		n := 2 + rng.IntN(len(r.lowers)-from-1)
		m, err := Merge(t.Context(), r.chunks, r.stored(r.lowers[from:]), n, StoreOptions{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		merged := openStored(t, r.chunks, "merged"+strconv.Itoa(turn), m)
		r.owned[merged] = true
		row := r.stored(r.lowers[from : from+n])
		r.restack(from, n, []*Lower{merged})
		same("merged")
		if rng.IntN(3) == 0 {
			r.restack(from, 1, row)
			same("taken apart")
		}
		r.close(false)
		cache.forget()
		if t.Failed() {
			t.FailNow()
		}
	}
	r.close(true)
	r.wantNodes(1)
	if r.released != r.restacks {
		t.Errorf("%d of %d lowers were given up", r.released, r.restacks)
	}
}

// settled counts the nodes that the last Restack has settled.
func (o *Overlay) settled() (n int) {
	o.nodes.mu.Lock()
	defer o.nodes.mu.Unlock()
	for _, x := range o.nodes.m {
		if x.epoch == o.nodes.epoch {
			n++
		}
	}
	return n
}

// TestConcurrentRestack lets several actors work on an overlay while layers come in place of others that show the same.
// At the end it is the same after a restart, and nothing is left in memory.
func TestConcurrentRestack(t *testing.T) {
	seed := testseed.Of(t)
	rng := rand.New(rand.NewPCG(seed, 8))
	r := newRig(t, randomLower(t, rng, true), randomLower(t, rng, true))
	owned := map[*Lower]bool{}
	r.closeOthers(owned)
	for _, l := range r.lowers {
		owned[l] = true
	}
	stop := r.act(seed, "EIO ", "EXDEV ", "ESTALE ")
	var released atomic.Int64
	const restacks = 30
	for i := range restacks {
		if rng.IntN(4) == 0 {
			owned[r.seal()] = true
		}
		time.Sleep(time.Duration(rng.IntN(5)) * time.Millisecond)
		at := rng.IntN(len(r.lowers))
		was := r.lowers[at]
		l, err := was.reopen(strconv.Itoa(i))
		if err != nil {
			t.Fatal(err)
		}
		owned[l] = true
		if err := r.o.Restack([]*Lower{was}, []*Lower{l}, func(int) { released.Add(1) }); err != nil {
			t.Fatal(err)
		}
		r.lowers = slices.Concat(r.lowers[:at], []*Lower{l}, r.lowers[at+1:])
	}
	stop()
	r.wantNodes(1)
	if n := released.Load(); n != restacks {
		t.Errorf("%d of %d rows were given up", n, restacks)
	}
	before := r.walk()
	r.reopen()
	if d := treewalk.Diff(before, r.walk(), treewalk.Options{Ino: true}); len(d) > 0 {
		t.Error("restart:", d[0])
	}
}

// reopen opens the directory of a sealed layer under another key.
func (l *Lower) reopen(key string) (*Lower, error) {
	s := l.dir
	fd, err := openat(s.root, ".", unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	return newDirLower("reopened "+key, &dirStore{root: fd, inoBase: s.inoBase, sealed: true, side: s.side}), nil
}

// BenchmarkRestackHeld tells for how long Restack holds changes back, by what is in memory.
func BenchmarkRestackHeld(b *testing.B) {
	for _, dirs := range []int{3, 30, 300} {
		low := filledDir(b, dirs)
		b.Run(fmt.Sprintf("%d files", dirs*1000), func(b *testing.B) { restackHeld(b, low, dirs) })
	}
}

func restackHeld(b *testing.B, low string, dirs int) {
	l, err := OpenSealed("base", low, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	var held time.Duration
	o, err := New(b.TempDir(), b.TempDir(), []*Lower{l}, Options{InoBase: 1 << 40, Held: func(d time.Duration) { held += d }})
	if err != nil {
		b.Fatal(err)
	}
	defer o.Close()
	for d := range dirs {
		if err := fillDir(o, d, true); err != nil {
			b.Fatal(err)
		}
	}
	b.ResetTimer()
	for i := range b.N {
		b.StopTimer()
		next, err := l.reopen(strconv.Itoa(i))
		if err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		if err := o.Restack([]*Lower{l}, []*Lower{next}, nil); err != nil {
			b.Fatal(err)
		}
		if err := l.Close(); err != nil {
			b.Fatal(err)
		}
		l = next
	}
	b.ReportMetric(float64(held.Microseconds())/1000/float64(b.N), "ms-held")
}

// store puts the image of the layer that was sealed last in its place.
func (r *rig) store(s *chunkstore.Store) *Lower {
	r.t.Helper()
	l := r.lowers[0]
	m, err := Store(r.t.Context(), s, l, r.lowers[1:], StoreOptions{}, nil)
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
	r.lowers = append([]*Lower{image}, r.lowers[1:]...)
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
	base, err := StoreTree(t.Context(), s, t.TempDir(), StoreOptions{}, nil)
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
	for name, try := range map[string]struct{ row, by []*Lower }{
		"another tree":     {r.lowers[1:3], []*Lower{other}},
		"nothing":          {r.lowers[1:3], nil},
		"no row":           {nil, []*Lower{other}},
		"not neighbours":   {[]*Lower{r.lowers[0], r.lowers[2]}, []*Lower{other}},
		"not in the stack": {[]*Lower{other}, r.lowers[:1]},
		"unreadable":       {r.lowers[:1], []*Lower{newUnreadable()}},
	} {
		if err := r.o.Restack(try.row, try.by, func(int) { t.Error("released") }); err == nil {
			t.Errorf("%s: it went through", name)
		}
		if d := treewalk.Diff(want, r.walk(), treewalk.Options{Ino: true}); len(d) > 0 {
			t.Errorf("%s: %v", name, d)
		}
	}
}
