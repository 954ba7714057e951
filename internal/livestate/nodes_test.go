package livestate_test

import (
	"errors"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	"snapfs/internal/livestate"
	"snapfs/internal/testseed"
)

// TestNodes: whatever is added, changed and removed, a successor finds exactly what is there.
func TestNodes(t *testing.T) {
	seed := testseed.Of(t)
	rng := rand.New(rand.NewPCG(seed, 1))
	s, err := livestate.Create("w")
	if err != nil {
		t.Fatal(err)
	}
	table, err := s.OpenNodes()
	if err != nil {
		t.Fatal(err)
	}
	want := map[uint32]livestate.Node{}
	for i := range 60_000 {
		n := livestate.Node{
			ID: uint64(i) + 1, Lookups: rng.Uint64(), Parent: rng.Uint64(), Name: rng.Uint64(), Inode: rng.Uint64(),
			Gen: rng.Uint32(), Flags: rng.Uint32(),
		}
		switch k := rng.IntN(10); {
		case k < 7 || len(want) == 0:
			slot, err := table.Add(n)
			if err != nil {
				t.Fatal(err)
			}
			if _, used := want[slot]; used || slot == 0 {
				t.Fatalf("slot %d is given out again", slot)
			}
			want[slot] = n
		default:
			var slot uint32
			for slot = range want { // any
				break
			}
			old := want[slot]
			delete(want, slot)
			switch k {
			case 7:
				table.Remove(slot)
				continue
			case 8:
				n.ID = old.ID
			case 9:
				old.Flags, old.Lookups = n.Flags, n.Lookups
				n = old
			}
			next, err := table.Change(slot, n)
			if err != nil {
				t.Fatal(err)
			}
			want[next] = n
		}
	}
	next := again(t, s)
	found, err := next.OpenNodes()
	if err != nil {
		t.Fatal(err)
	}
	if got := maps.Collect(found.All()); !maps.Equal(got, want) {
		t.Errorf("%d slots, want %d", len(got), len(want))
	}
	if found.Len() != len(want) {
		t.Errorf("%d slots used, want %d", found.Len(), len(want))
	}
	for range 20_000 { // free slots are given out again
		slot, err := found.Add(livestate.Node{ID: 1})
		if _, used := want[slot]; used || err != nil {
			t.Fatal(slot, err)
		}
		want[slot] = livestate.Node{ID: 1}
	}
	for _, x := range []*livestate.State{s, next} {
		if err := x.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPlace: of a change of the place either it or the one before counts.
func TestPlace(t *testing.T) {
	s, err := livestate.Create("w")
	if err != nil {
		t.Fatal(err)
	}
	table, err := s.OpenNodes()
	if err != nil {
		t.Fatal(err)
	}
	was := ""
	for _, path := range []string{"/one", "/another/one", "/x"} {
		settled, err := table.SetPlace(path)
		if err != nil {
			t.Fatal(err)
		}
		if now, other := table.Place(); now != was || other != path {
			t.Errorf("got %q, %q; want %q, %q", now, other, was, path)
		}
		settled()
		if now, other := table.Place(); now != path || other != was {
			t.Errorf("got %q, %q; want %q, %q", now, other, path, was)
		}
		was = path
	}
	if _, err := table.SetPlace(strings.Repeat("x", livestate.MaxPlace+1)); err == nil {
		t.Error("a path without room is taken")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestHostileNodes: no bytes in the region do harm.
func TestHostileNodes(t *testing.T) {
	rng := rand.New(rand.NewPCG(testseed.Of(t), 2))
	for range 200 {
		s, err := livestate.Create("w")
		if err != nil {
			t.Fatal(err)
		}
		table, err := s.OpenNodes()
		if err != nil {
			t.Fatal(err)
		}
		for i := range 100 {
			if _, err := table.Add(livestate.Node{ID: uint64(i + 1)}); err != nil {
				t.Fatal(err)
			}
		}
		b, err := s.Nodes(1)
		if err != nil {
			t.Fatal(err)
		}
		for range 1 + rng.IntN(50) {
			at := rng.IntN(64)
			switch rng.IntN(3) {
			case 0:
				at = 4<<10 + rng.IntN(12<<10)
			case 1:
				at = 8 + rng.IntN(16)
			}
			b[at] = byte(rng.IntN(256))
		}
		next := again(t, s)
		found, err := next.OpenNodes()
		if err == nil {
			found.Place()
			for slot, n := range found.All() {
				if _, err := found.Change(slot, livestate.Node{ID: n.ID, Name: 1}); err != nil {
					t.Fatal(err)
				}
				if slot > 1000 {
					break
				}
			}
		} else if !errors.Is(err, livestate.ErrFormat) {
			t.Fatal(err)
		}
		for _, x := range []*livestate.State{s, next} {
			if err := x.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}
