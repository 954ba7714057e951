package layers

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"snapfs/chunkstore"
	"snapfs/squashfs"
)

// liar is a source whose inodes claim other inode numbers than they have.
type liar struct {
	squashfs.Source
	claim func() uint64
}

func (l liar) Entry(ctx context.Context, dir *squashfs.Entry, name string) (*squashfs.Entry, error) {
	e, err := l.Source.Entry(ctx, dir, name)
	if e != nil {
		e.Attr.Ino = l.claim()
	}
	return e, err
}

// openLiar stores a directory as an image with such numbers.
func openLiar(t *testing.T, s *chunkstore.Store, key, dir string, claim func() uint64) *Lower {
	t.Helper()
	src, err := openTree(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer src.close()
	m, err := storeSource(t.Context(), s, liar{src, claim}, &sink{}, StoreOptions{}, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	return openStored(t, s, key, m)
}

// shown lists what an overlay shows, without inode numbers. Names of one node are a group.
func (r *rig) shown() []string {
	r.t.Helper()
	type file struct{ path, line string }
	groups := map[NodeID][]file{}
	numbers := map[uint64]NodeID{}
	var known []NodeID // all at once, as a kernel does
	var visit func(path string, e Entry)
	visit = func(path string, e Entry) {
		known = append(known, e.Node)
		a := e.Attr
		if n, ok := numbers[a.Ino]; ok && n != e.Node {
			r.t.Errorf("%s has the inode number of %s", path, groups[n][0].path)
		}
		numbers[a.Ino] = e.Node
		line := fmt.Sprintf("%o %d %d:%d", a.Mode, a.Nlink, a.UID, a.GID)
		switch {
		case isReg(a.Mode):
			buf := make([]byte, a.Size)
			k, err := r.o.Read(e.Node, buf, 0)
			line += fmt.Sprintf(" %d %d %q %v", a.Size, k, buf, err)
		case isLnk(a.Mode):
			target, err := r.o.Readlink(e.Node)
			line += fmt.Sprintf(" %q %v", target, err)
		case isDir(a.Mode):
			var names []string
			err := r.o.ReadDir(e.Node, 0, func(d DirEntry) bool { names = append(names, d.Name); return true })
			slices.Sort(names)
			line += fmt.Sprint(names, err)
			for _, name := range names {
				if name == "." || name == ".." {
					continue
				}
				c, err := r.o.Lookup(e.Node, name)
				if err != nil {
					r.t.Errorf("%s/%s is listed: %v", path, name, err)
					continue
				}
				visit(path+"/"+name, c)
			}
		}
		groups[e.Node] = append(groups[e.Node], file{path, line})
	}
	a, err := r.o.GetAttr(RootNode)
	if err != nil {
		r.t.Fatal(err)
	}
	visit("", Entry{Node: RootNode, Attr: a})
	for _, n := range known[1:] {
		r.o.Forget(n, 1)
	}
	var out []string
	for _, g := range groups {
		paths := []string{}
		for _, f := range g {
			paths = append(paths, f.path)
		}
		slices.Sort(paths)
		out = append(out, strings.Join(paths, " = ")+": "+g[0].line)
	}
	slices.Sort(out)
	return out
}

// TestSameNumbers has a base image whose inodes claim each other's numbers and those of what is created in the uppers.
// Whatever is done to it, sealed, stored, merged and opened again, it shows what a base with honest numbers does.
func TestSameNumbers(t *testing.T) {
	randomRounds(t, 3, sameNumbersRound)
}

func sameNumbersRound(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 5))
	s := openStore(t)
	dir := randomLower(t, rng, true)
	near := hostInode(t, t.TempDir()) // what the host gives out next
	claims := rand.New(rand.NewPCG(seed, 6))
	honest := newRigOver(t, openLiar(t, s, "base", dir, func() func() uint64 { n := uint64(10); return func() uint64 { n++; return n } }()))
	lying := newRigOver(t, openLiar(t, s, "base", dir, func() uint64 {
		switch claims.IntN(4) {
		case 0:
			return uint64(claims.IntN(4))
		case 1:
			return spareIDs + uint64(claims.IntN(4))
		}
		return uint64(claims.IntN(5))<<48 | (near + uint64(claims.IntN(200)))
	}))
	for turn := range 6 {
		type ref struct{ a, b NodeID }
		var held []ref
		for range 40 {
			if rng.IntN(3) == 0 {
				path := randomPath(rng)
				a, err := honest.find(path)
				b, err2 := lying.find(path)
				if errName(err) != errName(err2) {
					t.Fatalf("%s: got %v, want %v", path, err2, err)
				}
				if err == nil {
					held = append(held, ref{a.Node, b.Node})
				}
			}
			st := randomStep(rng)
			want, got := honest.do(st), lying.do(st)
			if got != want {
				t.Fatalf("turn %d, %v: got %s, want %s", turn, st, got, want)
			}
		}
		same := func(when string) {
			t.Helper()
			want, got := honest.shown(), lying.shown()
			for i := range max(len(want), len(got)) {
				if i >= len(want) || i >= len(got) || want[i] != got[i] {
					t.Fatalf("turn %d, %s: got\n%.500s\nwant\n%.500s", turn, when, strings.Join(got[min(i, len(got)):], "\n"), strings.Join(want[min(i, len(want)):], "\n"))
				}
			}
			for _, h := range held {
				a, err := honest.o.GetAttr(h.a)
				b, err2 := lying.o.GetAttr(h.b)
				if err != nil || err2 != nil || statLine(a.Mode, a.Nlink, a.Size) != statLine(b.Mode, b.Nlink, b.Size) {
					t.Fatalf("turn %d, %s: open file: got %+v %v, want %+v %v", turn, when, b, err2, a, err)
				}
			}
		}
		same("live")
		for _, r := range []*rig{honest, lying} {
			r.seal()
		}
		same("sealed")
		var merged [2]*Lower
		for i, r := range []*rig{honest, lying} {
			r.store(s)
			if len(r.lowers) < 4 {
				continue
			}
			m, err := Merge(t.Context(), s, r.lowers, 2, StoreOptions{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			merged[i] = openStored(t, s, fmt.Sprint("merged", turn), m)
		}
		same("stored")
		if merged[0] != nil {
			for i, r := range []*rig{honest, lying} {
				row := r.lowers[:2]
				if err := r.o.Restack(row, merged[i:i+1], func(int) {}); err != nil {
					t.Fatal(err)
				}
				r.lowers = append([]*Lower{merged[i]}, r.lowers[2:]...)
				for _, l := range row {
					t.Cleanup(func() { _ = l.Close() }) // read only
				}
			}
			same("merged")
		}
		for _, h := range held {
			honest.o.Forget(h.a, 1)
			lying.o.Forget(h.b, 1)
		}
		held = nil
		if rng.IntN(2) == 0 {
			honest.reopen()
			lying.reopen()
			same("opened again")
		}
	}
	lying.wantNodes(1)
}

func hostInode(t *testing.T, path string) uint64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Ino
}
