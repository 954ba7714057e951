package layers

import (
	"testing"

	"golang.org/x/sys/unix"

	"snapfs/squashfs"
)

// TestGenerations holds that a NodeID which is used for another inode has another generation, and that an inode keeps
// its own.
func TestGenerations(t *testing.T) {
	l := &layer{}
	table := table{m: map[NodeID]*node{}}
	root := &node{id: RootNode}
	table.m[RootNode] = root
	met := func(name string, ino uint64, birth squashfs.Time) *node {
		a := Attr{Ino: ino, Mode: unix.S_IFREG, Nlink: 1, Btime: birth}
		return table.enter(root, name, hit{parts: []*part{{layer: l, name: name, ino: ino, host: ino}}, attr: a})
	}
	const ino = 1<<40 + 7
	seen := map[uint32]bool{}
	for i := range 4 {
		birth := squashfs.Time{Sec: 1e9, Nsec: uint32(i/2) * 4e6} // the host's clock ticks now and then
		n := met("a", ino, birth)
		if n.id != ino || n.gen.Load() == 0 || seen[n.gen.Load()] {
			t.Fatalf("inode %d: node %#x of generation %#x, seen %v", i, n.id, n.gen.Load(), seen)
		}
		seen[n.gen.Load()] = true
		was := n.gen.Load()
		for range 3 { // forgotten and looked up again
			table.drop(n, 1, 0)
			if n = met("a", ino, birth); n.gen.Load() != was {
				t.Fatalf("inode %d: generation %#x became %#x", i, was, n.gen.Load())
			}
		}
		n.dead = true
		table.drop(n, 1, 0)
	}
}

// TestGenerationStays holds that a file has one generation over copy-up, seal and storing, as long as the kernel knows
// it, and over being forgotten but for a copy-up.
func TestGenerationStays(t *testing.T) {
	s := openStore(t)
	r := newRig(t)
	r.create("f", "contents")
	gen := func() uint64 {
		e, err := r.find("f")
		if err != nil {
			t.Fatal(err)
		}
		r.o.Forget(e.Node, 1)
		return e.Gen
	}
	want := gen()
	r.reopen()
	if got := gen(); got != want {
		t.Errorf("opened again: got %#x, want %#x", got, want)
	}
	r.seal()
	r.store(s)
	if got := gen(); got != want {
		t.Errorf("stored: got %#x, want %#x", got, want)
	}
	e, err := r.find("f")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.write("f", "x", 0); err != nil {
		t.Fatal(err)
	}
	if got := gen(); got != want {
		t.Errorf("copied up: got %#x, want %#x", got, want)
	}
	r.o.Forget(e.Node, 1)
}
