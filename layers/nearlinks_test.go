package layers

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestNearLinks: who copies a hard-linked file up looks where its links are, not through the whole layer; links far
// away are found, too.
func TestNearLinks(t *testing.T) {
	base := t.TempDir()
	for i := range 300 {
		dir := filepath.Join(base, fmt.Sprintf("d%03d", i), "sub")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for j := range 100 {
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(j)), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	groups := [][]string{ // the last one's links are on both sides of what is looked through
		{"d007/a", "d007/b"},
		{"d008/a", "d008/sub/b", "d008/sub/c"},
		{"d000/far", "d150/far", "d299/far"},
	}
	for _, g := range groups {
		if err := os.WriteFile(filepath.Join(base, g[0]), []byte("text"), 0o644); err != nil {
			t.Fatal(err)
		}
		for _, name := range g[1:] {
			if err := os.Link(filepath.Join(base, g[0]), filepath.Join(base, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	most := groupNames
	defer func() { groupNames = most }()
	for _, groupNames = range []int{most, 2} { // with a table of the layer's links, and with too many for one
		r := newRig(t, base)
		for i, g := range groups {
			if err := r.setattr(g[0], SetAttr{Valid: SetMode, Mode: 0o600}); err != nil {
				t.Fatal(err)
			}
			ino := r.attr(g[0]).Ino
			for _, name := range g {
				if a := r.attr(name); a.Ino != ino || a.Mode != unix.S_IFREG|0o600 || int(a.Nlink) != len(g) {
					t.Errorf("%s: inode %d, mode %o, %d links; want %d, 600, %d", name, a.Ino, a.Mode, a.Nlink, ino, len(g))
				}
				if _, err := os.Lstat(filepath.Join(r.upper(), name)); err != nil {
					t.Error(err)
				}
			}
			if got, want := len(r.o.groups.m), max(i-1, 0); got != want {
				t.Errorf("%s: the whole layer was listed: %d, want %d", g[0], got, want)
			}
		}
	}
}
