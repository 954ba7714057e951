package layers

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"

	"snapfs/internal/testseed"
	"snapfs/internal/treewalk"
)

// frozen is a point in time that a test goes back to.
type frozen struct {
	lowers []*Lower
	tree   []treewalk.Node
}

// back rolls the rig back; released counts the sets of layers given up, by whichever call forgets the last orphan.
func (r *rig) back(f frozen, released *atomic.Int64) Stale {
	r.t.Helper()
	r.seals++
	up, work := r.fresh()
	s, err := r.o.Rollback(r.t.Context(), f.lowers, up, work, r.base(), func() { released.Add(1) })
	if err != nil {
		r.t.Fatal(err)
	}
	r.lowers = f.lowers
	return s
}

// dcache is what a kernel would remember: every name of the test's universe in every directory, by node; 0 is "no such
// name".
type dcache struct {
	r       *rig
	entries map[NodeID]map[string]NodeID
	attrs   map[NodeID]Attr
	data    map[NodeID]string
	refs    map[NodeID]uint64

	// imaged says that images come in the place of directories: they have no access times, which reading a directory of
	// the host changes, too, and other allocated sizes.
	imaged bool
}

// fill looks everything up and keeps the references.
func (r *rig) fill(rng *rand.Rand) *dcache {
	c := &dcache{
		r: r, entries: map[NodeID]map[string]NodeID{}, attrs: map[NodeID]Attr{}, data: map[NodeID]string{}, refs: map[NodeID]uint64{},
	}
	c.visit(RootNode, rng)
	return c
}

func (c *dcache) visit(dir NodeID, rng *rand.Rand) {
	c.r.t.Helper()
	c.entries[dir] = map[string]NodeID{}
	c.attr(dir)
	for _, name := range names {
		if rng.IntN(8) == 0 {
			continue // not everything is in a cache
		}
		e, err := c.r.o.Lookup(dir, name)
		if err != nil {
			c.entries[dir][name] = 0
			continue
		}
		c.entries[dir][name] = e.Node
		c.refs[e.Node]++
		if isDir(e.Attr.Mode) {
			c.visit(e.Node, rng)
		} else {
			c.attr(e.Node)
		}
	}
}

func (c *dcache) attr(n NodeID) {
	a, err := c.r.o.GetAttr(n)
	if err != nil {
		c.r.t.Fatal(err)
	}
	c.attrs[n] = a
	if isReg(a.Mode) {
		c.data[n] = c.read(n)
	}
}

func (c *dcache) read(n NodeID) string {
	buf := make([]byte, 20000)
	k, err := c.r.o.Read(n, buf, 0)
	if err != nil {
		return err.Error()
	}
	return string(buf[:k])
}

// check takes what is stale out of the cache and holds the rest against the overlay. It gives the files that lost their
// place.
func (c *dcache) check(s Stale) (orphans []NodeID) {
	r := c.r
	r.t.Helper()
	for _, e := range s.Entries {
		delete(c.entries[e.Parent], e.Name)
	}
	live := map[NodeID]bool{}
	var visit func(dir NodeID, path string)
	visit = func(dir NodeID, path string) {
		live[dir] = true
		for name, want := range c.entries[dir] {
			e, err := r.o.Lookup(dir, name)
			if err == nil {
				r.o.Forget(e.Node, 1)
			}
			if e.Node != want {
				r.t.Errorf("%s/%s: the kernel believes in node %d, there is %d (%v)", path, name, want, e.Node, err)
				continue
			}
			if want == 0 {
				continue
			}
			live[want] = true
			if c.entries[want] != nil {
				visit(want, path+"/"+name)
			}
		}
	}
	visit(RootNode, "")
	for n, was := range c.attrs {
		now, err := r.o.GetAttr(n)
		if err != nil {
			r.t.Errorf("node %d: %v", n, err)
			continue
		}
		if c.imaged {
			now.Atime, now.Blocks = was.Atime, was.Blocks
		}
		if live[n] && !slices.Contains(s.Dirs, n) && now != was {
			r.t.Errorf("node %d: attributes %+v, the kernel believes in %+v", n, now, was)
		}
		if isReg(was.Mode) {
			if got := c.read(n); got != c.data[n] {
				r.t.Errorf("node %d reads %.50q, was %.50q", n, got, c.data[n])
			}
			if !live[n] && r.o.nodes.m[n].dead { // else it is only to be looked up again
				orphans = append(orphans, n)
			}
		}
	}
	slices.Sort(orphans)
	return orphans
}

// forget gives all references back.
func (c *dcache) forget() {
	for n, k := range c.refs {
		c.r.o.Forget(n, k)
	}
}

// TestRollbackRandom goes back and forth between points in time of random trees. After each rollback the tree is what
// was frozen, a kernel that forgets what it is told to believes nothing wrong, and orphans live on, apart.
func TestRollbackRandom(t *testing.T) {
	seed := testseed.Of(t)
	rounds := 6
	if os.Getenv("SNAPFS_LONG") != "" {
		rounds = 500
	}
	for i := range rounds {
		if !t.Run(strconv.Itoa(i), func(t *testing.T) { rollbackRound(t, seed+uint64(i)) }) {
			t.Fatalf("SNAPFS_SEED=%d", seed+uint64(i))
		}
	}
}

// closeOthers closes at the end of the test what is in owned then and not a lower of the rig, which closes those.
func (r *rig) closeOthers(owned map[*Lower]bool) {
	r.t.Cleanup(func() {
		for _, l := range r.lowers {
			delete(owned, l)
		}
		for l := range owned {
			if err := l.Close(); err != nil {
				r.t.Error(err)
			}
		}
	})
}

func rollbackRound(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 2))
	base, other := randomLower(t, rng, true), randomLower(t, rng, false)
	r := newRig(t, base, other)
	owned := map[*Lower]bool{}
	r.closeOthers(owned)
	points := []frozen{{r.lowers, r.walk()}}
	for _, l := range r.lowers {
		owned[l] = true
	}
	var released atomic.Int64
	rollbacks := int64(0)
	for turn := range 14 {
		for range 1 + rng.IntN(60) {
			r.do(randomStep(rng))
		}
		if rng.IntN(2) == 0 {
			owned[r.seal()] = true
			points = append(points, frozen{r.lowers, r.walk()})
			for range rng.IntN(20) {
				r.do(randomStep(rng))
			}
		}
		cache := r.fill(rng)
		to := points[rng.IntN(len(points))]
		rollbacks++
		orphans := cache.check(r.back(to, &released))
		same := func(when string) {
			t.Helper()
			for i, d := range treewalk.Diff(to.tree, r.walk(), treewalk.Options{Ino: true}) {
				if i < 5 {
					t.Errorf("turn %d, %s: %.300s", turn, when, d)
				}
			}
		}
		same("gone back")
		for _, n := range orphans {
			writeOrphan(t, r.o, n, cache.data[n])
		}
		same("orphans written")
		if rng.IntN(3) > 0 {
			cache.forget() // else the next rollback meets these orphans
			cache.refs = nil
		} else {
			defer cache.forget()
		}
		if t.Failed() {
			t.FailNow()
		}
	}
	t.Cleanup(func() {
		if n := released.Load(); n != rollbacks {
			t.Errorf("%d of %d sets of layers were given up", n, rollbacks)
		}
		r.wantNodes(1)
	})
}

// writeOrphan appends to a file that has lost its name.
func writeOrphan(t *testing.T, o *Overlay, n NodeID, was string) {
	t.Helper()
	if _, err := o.Write(n, []byte("more"), int64(len(was)), nil); err != nil {
		t.Errorf("writing orphan %d: %v", n, err)
	}
	if _, err := o.SetAttr(Caller{}, n, SetAttr{Valid: SetMode, Mode: 0o600}); err != nil {
		t.Errorf("chmod of orphan %d: %v", n, err)
	}
	buf := make([]byte, len(was)+10)
	if k, err := o.Read(n, buf, 0); err != nil || string(buf[:k]) != was+"more" {
		t.Errorf("orphan %d reads %.50q (%v), want %.50q", n, buf[:k], err, was+"more")
	}
	if _, err := o.Link(n, RootNode, "again"); err == nil {
		t.Errorf("orphan %d got a name", n)
	}
}

// TestRollbackFails: whatever goes wrong before the change leaves the tree as it is.
func TestRollbackFails(t *testing.T) {
	r := newRig(t)
	r.create("f", "one")
	l := r.seal()
	if err := r.write("f", "two", 0); err != nil {
		t.Fatal(err)
	}
	want := r.walk()
	up, work := filepath.Join(t.TempDir(), "u"), t.TempDir()
	try := func(ctx context.Context, lowers []*Lower) {
		t.Helper()
		if err := os.MkdirAll(up, 0o755); err != nil {
			t.Fatal(err)
		}
		_, err := r.o.Rollback(ctx, lowers, up, work, 1<<55, func() { t.Error("released") })
		if err == nil {
			t.Error("it went through")
		}
		if d := treewalk.Diff(want, r.walk(), treewalk.Options{Ino: true}); len(d) > 0 {
			t.Error(d)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	try(ended, []*Lower{l})
	try(t.Context(), []*Lower{newUnreadable()})
	up = filepath.Join(up, "missing/deep")
	_, err := r.o.Rollback(t.Context(), []*Lower{l}, up, work, 1<<55, nil)
	if err == nil {
		t.Error("an upper that is missing was taken")
	}
	r.create("g", "goes on")
	if got := fmt.Sprint(slices.Sorted(maps.Keys(map[string]bool{r.read("f"): true, r.read("g"): true}))); got != "[goes on two]" {
		t.Errorf("got %s", got)
	}
}
