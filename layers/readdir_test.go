package layers

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"snapfs/internal/testseed"
)

// TestReadDirPlus: each name comes once with one reference, whatever the sizes of the pieces; what is refused is not
// held.
func TestReadDirPlus(t *testing.T) {
	base := t.TempDir()
	var want []string
	for i := range 50 {
		name := fmt.Sprintf("lower%d", i)
		want = append(want, name)
		if err := os.WriteFile(filepath.Join(base, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	r := newRig(t, base)
	for i := range 20 {
		name := fmt.Sprintf("upper%d", i)
		want = append(want, name)
		r.create(name, "x")
	}
	if err := r.unlink("lower7"); err != nil {
		t.Fatal(err)
	}
	want = slices.DeleteFunc(want, func(s string) bool { return s == "lower7" })
	for _, piece := range []int{1, 3, 1000} {
		var got []string
		held := map[NodeID]uint64{}
		for cookie, more := uint64(0), true; more; {
			n := 0
			more = false
			err := r.o.ReadDirPlus(RootNode, cookie, func(d DirEntry, e Entry) bool {
				if n == piece {
					more = true
					return false
				}
				n++
				cookie = d.Cookie
				if d.Name == "." || d.Name == ".." {
					if e != (Entry{}) {
						t.Errorf("%s has an entry", d.Name)
					}
					return true
				}
				if e.Attr.Ino != d.Ino || e.Attr.Mode&unix.S_IFMT != d.Mode {
					t.Errorf("%s: entry %d %o, listed as %d %o", d.Name, e.Attr.Ino, e.Attr.Mode, d.Ino, d.Mode)
				}
				held[e.Node]++
				got = append(got, d.Name)
				return true
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("in pieces of %d: got %v, want %v", piece, got, want)
		}
		r.wantNodes(1 + len(want))
		for n, k := range held {
			r.o.Forget(n, k)
		}
		r.wantNodes(1)
	}
}

// TestListingChanges: a listing that is kept up to date is the one that would be made anew, in the same order, and a
// change of a large one costs what has changed.
func TestListingChanges(t *testing.T) {
	rng := rand.New(rand.NewPCG(testseed.Of(t), 4))
	var s dirItems
	want := map[string]dirItem{}
	for round := range 400 {
		var pending []dirItem
		for range 1 + rng.IntN(20) {
			name := fmt.Sprint(rng.IntN(3000))
			it := dirItem{name: name, cookie: nameCookie(name), ino: uint64(round), gone: rng.IntN(3) == 0}
			if it.gone {
				delete(want, name)
			} else {
				want[name] = it
			}
			pending = append(pending, it)
		}
		s = s.changed(pending)
		var got []dirItem
		s.from(0, func(it dirItem) bool { got = append(got, it); return true })
		all := slices.SortedFunc(maps.Values(want), byCookie)
		if !slices.Equal(got, all) {
			t.Fatalf("round %d: %d names, want %d", round, len(got), len(all))
		}
		if len(all) > 0 { // a reader goes on behind any name, also one that has gone
			at := all[rng.IntN(len(all))].cookie
			got = nil
			s.from(at+1, func(it dirItem) bool { got = append(got, it); return true })
			if rest := all[firstFrom(all, at+1):]; !slices.Equal(got, rest) {
				t.Fatalf("round %d: %d names after a cookie, want %d", round, len(got), len(rest))
			}
		}
	}
	twins := dirItems{items: []dirItem{{name: "a", cookie: 100}, {name: "b", cookie: 101}}}
	twins = twins.changed([]dirItem{{name: "c", cookie: 100}})
	var got []string
	twins.from(0, func(it dirItem) bool { got = append(got, it.name); return true })
	if slices.Sort(got); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("with equal cookies: %v", got)
	}

	large := dirItems{items: make([]dirItem, 1<<20)}
	for i := range large.items {
		large.items[i].cookie = uint64(i) << 30
	}
	change := []dirItem{{name: "new", cookie: nameCookie("new")}}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 10 {
		_ = large.changed(change)
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
		t.Errorf("10 changes of a listing of %d names take %d bytes", len(large.items), n)
	}
}
