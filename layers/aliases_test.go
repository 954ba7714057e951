package layers

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// checkAliases compares the further names of a node with those that it should have.
func checkAliases(t *testing.T, tb *table, n *node, want map[alias]bool, dirs []*node) {
	t.Helper()
	got := map[alias]bool{}
	for i, a := range n.aliases {
		got[a] = true
		if at, ok := tb.many[n]; ok && at[a] != i {
			t.Errorf("name %d is said to be at %d", i, at[a])
		}
	}
	if !maps.Equal(got, want) || len(n.aliases) != len(want) {
		t.Errorf("%d names, %d different ones, want %d", len(n.aliases), len(got), len(want))
	}
	if at, ok := tb.many[n]; ok != (len(want) > fewAliases) || len(at) != len(want) && ok {
		t.Errorf("%d places of %d names", len(at), len(want))
	}
	for i, d := range dirs {
		names := 0
		for a := range want {
			if a.parent == d {
				names++
			}
		}
		if n.parent == d {
			names++
		}
		if d.holds != names {
			t.Errorf("directory %d counts %d names, has %d", i, d.holds, names)
		}
	}
}

// TestAliases gives and takes names of one node at random, and compares it with a set of them.
func TestAliases(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	tb := &table{m: map[NodeID]*node{}}
	dirs := []*node{{id: 2}, {id: 3}, {id: 4}}
	n := &node{id: 9, ino: 9, typ: unix.S_IFREG, parent: dirs[0], name: "primary", top: &part{}}
	dirs[0].holds = 1
	tb.m[n.id] = n
	want := map[alias]bool{}
	for range 20_000 {
		a := alias{dirs[rnd.IntN(len(dirs))], fmt.Sprint(rnd.IntN(12))}
		switch had := len(want); rnd.IntN(8) {
		case 0, 1, 2, 3:
			tb.aliasLocked(n, a.parent, a.name)
			want[a] = true
		case 4, 5, 6:
			if got := tb.unaliasLocked(n, a.parent, a.name); got != want[a] {
				t.Fatalf("taken away: %v, want %v", got, want[a])
			}
			delete(want, a)
		default:
			if had == 0 {
				continue
			}
			tb.promoteLocked(n)
			now := alias{n.parent, n.name}
			if !want[now] {
				t.Fatalf("%q has become the primary name", n.name)
			}
			delete(want, now)
		}
		if checkAliases(t, tb, n, want, dirs); t.Failed() {
			return
		}
	}
	if all := tb.takeAliasesLocked(n); len(all) != len(want) || len(n.aliases)+len(tb.many) > 0 {
		t.Errorf("%d names were taken, want %d; %d and %d stay", len(all), len(want), len(n.aliases), len(tb.many))
	}
}

// TestManyAliases: of a node with many names none is found by looking through them.
func TestManyAliases(t *testing.T) {
	tb := &table{}
	dir := &node{}
	n := &node{id: 9, ino: 9}
	const names = 1000
	for i := range names {
		tb.aliasLocked(n, dir, fmt.Sprint(i))
	}
	n.aliases = make([]alias, names) // who looks finds nothing
	for i := range names {
		tb.aliasLocked(n, dir, fmt.Sprint(i))
	}
	if len(n.aliases) != names || dir.holds != names {
		t.Errorf("%d names, the directory counts %d; want %d", len(n.aliases), dir.holds, names)
	}
}

// linked makes a directory with names of one file.
func linked(t *testing.T, dir string, names ...string) {
	t.Helper()
	for i, name := range names {
		at := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(at), 0o755)
		if err == nil && i == 0 {
			err = os.WriteFile(at, []byte("text"), 0o644)
		} else if err == nil {
			err = os.Link(filepath.Join(dir, names[0]), at)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestManyNames lists, changes, renames and removes a file with many names.
func TestManyNames(t *testing.T) {
	const count = 300
	names := make([]string, count)
	for i := range names {
		names[i] = fmt.Sprintf("d%d/%03d", i%3, i)
	}
	base := t.TempDir()
	linked(t, base, names...)
	r := newRig(t, base)
	var held []NodeID
	list := func() (seen int) {
		for d := range 3 {
			e, err := r.find(fmt.Sprintf("d%d", d))
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, e.Node)
			if err := r.o.ReadDirPlus(e.Node, 0, func(_ DirEntry, c Entry) bool {
				if c.Node != 0 {
					held, seen = append(held, c.Node), seen+1
				}
				return true
			}); err != nil {
				t.Fatal(err)
			}
		}
		return seen
	}
	for range 2 {
		if seen := list(); seen != count {
			t.Errorf("%d names, want %d", seen, count)
		}
	}
	n := r.o.nodes.m[NodeID(r.attr(names[0]).Ino)]
	if n == nil || len(n.aliases) != count-1 {
		t.Fatalf("the node has %v further names", n)
	}
	if err := r.setattr(names[7], SetAttr{Valid: SetMode, Mode: 0o600}); err != nil {
		t.Fatal(err)
	}
	for i, name := range names {
		if a := r.attr(name); a.Nlink != count || a.Mode&0o777 != 0o600 || a.Ino != n.ino {
			t.Fatalf("%s: %d links, mode %o, inode %d; want %d, 600, %d", name, a.Nlink, a.Mode, a.Ino, count, n.ino)
		}
		if i%2 == 0 {
			names[i] = fmt.Sprintf("d%d/new%03d", i%2, i)
			if err := r.rename(name, names[i], 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	if list(); len(n.aliases) != count-1 {
		t.Errorf("%d further names after renames, want %d", len(n.aliases), count-1)
	}
	for i, name := range names {
		if err := r.unlink(name); err != nil {
			t.Fatal(err)
		}
		if left := count - 1 - i; left > 0 && (n.dead || len(n.aliases) != left-1) {
			t.Fatalf("%d further names (dead: %v), want %d", len(n.aliases), n.dead, left-1)
		}
	}
	if !n.dead || len(r.o.nodes.many) > 0 {
		t.Errorf("dead: %v, names of %d nodes", n.dead, len(r.o.nodes.many))
	}
	slices.Reverse(held)
	for _, id := range held {
		r.o.Forget(id, 1)
	}
	r.wantNodes(1)
}

// TestManyNamesRolledBack takes names that have come since a snapshot away from a file again.
func TestManyNamesRolledBack(t *testing.T) {
	const count = 100
	base := t.TempDir()
	linked(t, base, "d/f", "d/g")
	r := newRig(t, base)
	id := r.nodeOf("d/f")
	defer r.o.Forget(id, 1)
	if err := r.setattr("d/f", SetAttr{Valid: SetMode, Mode: 0o600}); err != nil {
		t.Fatal(err)
	}
	r.seal()
	f := frozen{lowers: r.lowers}
	for i := range count {
		if err := r.link("d/f", fmt.Sprintf("d/%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	var released atomic.Int64
	r.back(f, &released)
	if a := r.attr("d/f"); a.Nlink != 2 {
		t.Errorf("%d links after the rollback, want 2", a.Nlink)
	}
	if n := len(r.o.nodes.many); n > 0 {
		t.Errorf("names of %d nodes are kept", n)
	}
}
