package layers

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"snapfs/internal/livestate"
	"snapfs/internal/testseed"
)

// TestTakeOverHostile: whatever the records say, the overlay works, and everything that they name is a node, or stale.
func TestTakeOverHostile(t *testing.T) {
	rng := rand.New(rand.NewPCG(testseed.Of(t), 4))
	r := newLiveRig(t, randomLower(t, rng, true))
	for round := range 25 {
		r.fill(rng)
		table := r.o.nodes.live.nodes
		numbers := []uint64{0, 1, 2, spareIDs, spareIDs + 1, ^uint64(0), ^uint64(0) - 1}
		var slots []uint32
		for slot, n := range table.All() {
			slots = append(slots, slot)
			numbers = append(numbers, n.ID, n.Parent, n.Name, n.Inode)
		}
		number := func() uint64 { return numbers[rng.IntN(len(numbers))] }
		for range 1 + rng.IntN(200) {
			n := livestate.Node{
				ID: number(), Lookups: number() % 5, Parent: number(), Name: number(), Inode: number(), Gen: rng.Uint32(), Flags: rng.Uint32() % 2048,
			}
			var err error
			if n.ID == 0 {
				n.ID = 7
			}
			if k := rng.IntN(len(slots)); rng.IntN(2) == 0 {
				_, err = table.Add(n)
			} else if old := table.Get(slots[k]); old.ID != 0 {
				slots[k], err = table.Change(slots[k], n)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		// A chain of directories, each in the next, and the last in the first.
		for i := range uint64(500) {
			if _, err := table.Add(livestate.Node{ID: 1<<40 + i, Parent: 1<<40 + (i+1)%500, Inode: 1<<40 + i, Flags: 4, Lookups: 1}); err != nil {
				t.Fatal(err)
			}
		}
		var ids []NodeID
		for _, n := range table.All() {
			ids = append(ids, NodeID(n.ID))
		}
		r.killed()
		for range 300 {
			id := ids[rng.IntN(len(ids))]
			switch rng.IntN(6) {
			case 0:
				r.o.Forget(id, uint64(rng.IntN(3)))
			case 1:
				_ = r.do(randomStep(rng))
			case 2:
				_, _ = r.o.Write(id, []byte("x"), 5, nil)
			case 3:
				_ = r.o.Unlink(id, names[rng.IntN(len(names))])
			case 4:
				_, _ = r.o.Lookup(id, names[rng.IntN(len(names))])
			default:
				_ = r.state(id)
			}
		}
		if round%5 == 0 {
			if err := r.o.recallAll(); err != nil {
				t.Error(err)
			}
			r.seal()
		}
		for range 20 {
			_ = r.do(randomStep(rng))
		}
		for _, id := range ids {
			r.o.Forget(id, ^uint64(0))
		}
	}
}

// TestTakeOverParentIsFile: where a file has the id that a directory's record names as the one it is in, the file is found
// by another of its names, which is in that directory.
func TestTakeOverParentIsFile(t *testing.T) {
	r := newLiveRig(t)
	if err := r.mkdir("d", 0o755); err != nil {
		t.Fatal(err)
	}
	r.create("d/f", "text")
	dir, err := r.find("d")
	if err != nil {
		t.Fatal(err)
	}
	file, err := r.find("d/f")
	if err != nil {
		t.Fatal(err)
	}
	table := r.o.nodes.live.nodes
	for slot, n := range table.All() {
		switch NodeID(n.ID) {
		case dir.Node:
			n.Parent = uint64(file.Node)
		case file.Node:
			n.Parent, n.Flags = 0, n.Flags|flagDead|flagOther
		default:
			continue
		}
		if _, err := table.Change(slot, n); err != nil {
			t.Fatal(err)
		}
	}
	r.killed()
	if a, err := r.o.GetAttr(file.Node); err != nil || a.Size != 4 {
		t.Errorf("got %+v, %v", a, err)
	}
	if got := r.read("d/f"); got != "text" {
		t.Errorf("read %q", got)
	}
}

// TestTakeOverStale: of what the host has lost meanwhile the kernel is told so, and its id is nobody else's until it is
// forgotten.
func TestTakeOverStale(t *testing.T) {
	r := newLiveRig(t)
	r.create("f", "text")
	e, err := r.find("f")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.o.Close(); err != nil {
		t.Fatal(err)
	}
	if err := unix.Unlink(r.upper() + "/f"); err != nil {
		t.Fatal(err)
	}
	r.succeed()
	for range 2 {
		if _, err := r.o.GetAttr(e.Node); !errors.Is(err, unix.ESTALE) {
			t.Errorf("got %v, want %v", err, unix.ESTALE)
		}
	}
	if !r.o.Known(e.Node) {
		t.Error("an id that the kernel has is free")
	}
	r.o.Forget(e.Node, 1)
	if r.o.Known(e.Node) {
		t.Error("an id that the kernel has forgotten is taken")
	}
	r.wantRecords(0, 0)
}

// TestTakeOverRollback: after a rollback the kernel's nodes are the same to a successor, but for files that have lost
// their names by it: these are stale, and nothing else in their place.
func TestTakeOverRollback(t *testing.T) {
	r := newLiveRig(t)
	if err := errors.Join(r.mkdir("d", 0o755), r.mkdir("d/gone", 0o755)); err != nil {
		t.Fatal(err)
	}
	r.create("d/stays", "stays")
	r.create("d/changed", "old")
	r.seal()
	before := frozen{lowers: r.lowers}
	if err := errors.Join(r.write("d/changed", "NEW", 0), r.mkdir("d/new", 0o755)); err != nil {
		t.Fatal(err)
	}
	r.create("d/new/file", "new")
	want := map[NodeID]string{}
	var ids [6]NodeID
	for i, path := range []string{"d", "d/stays", "d/changed", "d/gone", "d/new", "d/new/file"} {
		e, err := r.find(path)
		if err != nil {
			t.Fatal(path, err)
		}
		ids[i] = e.Node
	}
	r.killed() // so that the rollback finds records without nodes
	var released atomic.Int64
	r.back(before, &released)
	for _, id := range ids {
		want[id] = r.state(id)
	}
	now, err := r.find("d/changed")
	if err != nil || now.Node == ids[2] || want[ids[2]] == r.state(now.Node) {
		t.Errorf("a file that was rolled back is the same node, %v", err)
	}
	r.o.Forget(now.Node, 1)
	want[ids[2]], want[ids[4]], want[ids[5]] = "ESTALE", "ESTALE", "ESTALE"
	for range 2 {
		r.killed()
		for i, id := range ids {
			if got := r.state(id); got != want[id] {
				t.Errorf("%d: got %q, want %q", i, got, want[id])
			}
		}
	}
	for _, id := range ids {
		r.o.Forget(id, 1)
	}
	r.wantRecords(0, 0)
}

// TestKeepNothing: what loses its name does so, and stays readable, if the host has no room for another one of it.
func TestKeepNothing(t *testing.T) {
	r := newLiveRig(t)
	if err := errors.Join(r.mkdir("d", 0o755), r.mkdir("e", 0o755), r.mkdir("moved", 0o755)); err != nil {
		t.Fatal(err)
	}
	var ids []NodeID
	for _, name := range []string{"unlinked", "over", "by"} {
		r.create(name, "of "+name)
	}
	for _, name := range []string{"unlinked", "over", "d", "e"} {
		e, err := r.find(name)
		if err != nil {
			t.Fatal(name, err)
		}
		ids = append(ids, e.Node)
	}
	if err := os.Remove(filepath.Join(r.work(), orphanDir)); err != nil { // so nothing can be put there
		t.Fatal(err)
	}
	if err := errors.Join(r.unlink("unlinked"), r.rename("by", "over", 0), r.rmdir("d"), r.rename("moved", "e", 0)); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"of unlinked", "of over"} {
		if got := readNode(t, r.o, ids[i]); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	for _, id := range ids {
		if a, err := r.o.GetAttr(id); err != nil || a.Nlink != 0 {
			t.Errorf("%d links, %v", a.Nlink, err)
		}
		r.o.Forget(id, 1)
	}
	e, err := r.o.Tmpfile(Caller{}, RootNode, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	r.o.Forget(e.Node, 1)
}

// TestTakeOverOtherName: a file whose known name has gone, and whose other names nobody has looked up, is found wherever
// its layer is.
func TestTakeOverOtherName(t *testing.T) {
	chunks := openStore(t) // closed after the overlay
	r := newLiveRig(t)
	if err := errors.Join(r.mkdir("d", 0o755), r.mkdir("d/e", 0o755)); err != nil {
		t.Fatal(err)
	}
	r.create("file", "text")
	if err := r.link("file", "d/e/other"); err != nil {
		t.Fatal(err)
	}
	r.seal()
	r.killed() // which forgets the other name
	e, err := r.find("file")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.unlink("file"); err != nil {
		t.Fatal(err)
	}
	r.seal()
	for _, stored := range []bool{false, true} {
		if stored {
			r.store(chunks)
		}
		r.killed()
		if got := readNode(t, r.o, e.Node); got != "text" {
			t.Errorf("stored %v: got %q", stored, got)
		}
		if a, err := r.o.GetAttr(e.Node); err != nil || a.Nlink != 1 {
			t.Errorf("stored %v: %d links, %v", stored, a.Nlink, err)
		}
	}
	again, err := r.find("d/e/other")
	if err != nil || again.Node != e.Node {
		t.Errorf("got node %d, %v; want %d", again.Node, err, e.Node)
	}
	r.o.Forget(e.Node, 2)
	r.wantRecords(0, 0)
}
