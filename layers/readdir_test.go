package layers

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// TestReadDirPlus: each name comes once with one reference, whatever the sizes of the pieces; what is refused is not held.
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
