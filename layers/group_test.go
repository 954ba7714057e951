package layers

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"snapfs/internal/treewalk"
)

// wantSame compares the tree with an earlier one, and wants the work directory empty.
func (r *rig) wantSame(what string, before []treewalk.Node) {
	r.t.Helper()
	for _, d := range treewalk.Diff(before, r.walk(), treewalk.Options{Ino: true}) {
		r.t.Errorf("%s: %s", what, d)
	}
	if left, err := os.ReadDir(r.work()); err != nil || len(left) > 0 {
		r.t.Errorf("%s: the work directory holds %v, %v", what, left, err)
	}
}

// TestGroupRefused: a hard-linked file of which the host refuses some of the names is copied up with none of them.
func TestGroupRefused(t *testing.T) {
	names := []string{"a", "c/f", "c/g", "b/f", "b/g", "b/h"}
	base := t.TempDir()
	linked(t, base, names...)
	r := newRig(t, base)
	for _, dir := range []string{"b", "c"} {
		r.create(dir+"/other", "in the upper")
	}
	before := r.walk()
	for _, dir := range []string{"b", "c"} {
		for _, name := range names {
			freeze(t, filepath.Join(r.upper(), dir), true)
			err := r.setattr(name, SetAttr{Valid: SetMode, Mode: 0o600})
			freeze(t, filepath.Join(r.upper(), dir), false)
			if !errors.Is(err, unix.EPERM) {
				t.Fatalf("%s with %s immutable: %v", name, dir, err)
			}
			r.wantSame(name+" with "+dir+" immutable", before)
		}
	}
	r.reopen()
	r.wantSame("opened again", before)
	if err := r.setattr("c/g", SetAttr{Valid: SetMode, Mode: 0o600}); err != nil {
		t.Fatal(err)
	}
	ino := r.attr("a").Ino
	for _, name := range names {
		if a := r.attr(name); a.Ino != ino || a.Mode != unix.S_IFREG|0o600 || int(a.Nlink) != len(names) {
			t.Errorf("%s: inode %d, mode %o, %d links; want %d, 600, %d", name, a.Ino, a.Mode, a.Nlink, ino, len(names))
		}
	}
}

// TestGroupBeyondTheHost: a file with more names than the host has room for can be read, but not changed.
func TestGroupBeyondTheHost(t *testing.T) {
	names := []string{"a", "b", "c", "d/e"}
	base := t.TempDir()
	linked(t, base, names...)
	r := newRig(t, base)
	before := r.walk()
	r.o.upper.links = uint32(len(names)) - 1
	for what, err := range map[string]error{
		"setattr": r.setattr("b", SetAttr{Valid: SetMode, Mode: 0o600}), "write": r.write("a", "more", 0), "unlink": r.unlink("c"),
		"link": r.link("a", "new"), "rename": r.rename("d/e", "new", 0),
	} {
		if !errors.Is(err, unix.EMLINK) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if got := r.read("d/e"); got != "text" {
		t.Errorf("read %q", got)
	}
	r.wantSame("refused", before)
	r.o.upper.links++
	if err := r.unlink("c"); err != nil {
		t.Error(err)
	}
}

// TestGroupAtOnce: when the first name of a hard-linked file gets into its place the copy has all the others already,
// and no more links than names, of which the host may have no more.
func TestGroupAtOnce(t *testing.T) {
	names := []string{"a", "b", "d/c"}
	base := t.TempDir()
	linked(t, base, names...)
	r := newRig(t, base)
	seen := 0
	steps = func(step string) {
		var st unix.Stat_t
		if step == "copy in place" && unix.Lstat(filepath.Join(r.upper(), "b"), &st) == nil {
			if seen++; int(st.Nlink) != len(names) {
				t.Errorf("%d links, want %d", st.Nlink, len(names))
			}
		}
	}
	err := r.setattr("b", SetAttr{Valid: SetMode, Mode: 0o600})
	steps = nil
	if err != nil || seen == 0 {
		t.Errorf("%d files in place, %v", seen, err)
	}
}

// counted is a lower of which the listings, and the names that they give, are counted.
type counted struct {
	backend
	lists, names int
}

func (c *counted) list(dir *part, fn func(rawEntry) error) error {
	c.lists++
	return c.backend.list(dir, func(e rawEntry) error {
		c.names++
		return fn(e)
	})
}

// TestManyGroups changes many hard-linked files whose names are far from each other, and some in directories that were
// renamed. What is looked through for that does not grow with files times names.
func TestManyGroups(t *testing.T) {
	const dirs, files = 60, 20
	base := t.TempDir()
	var pairs [][2]string
	for d := range dirs {
		for f := range files {
			pair := [2]string{fmt.Sprintf("top/left/d%02d/%02d", d, f), fmt.Sprintf("right/d%02d/%02d", d, f)}
			linked(t, base, pair[:]...)
			pairs = append(pairs, pair)
		}
	}
	l := openForeign(t, base)
	c := &counted{backend: l.be}
	l.be = c
	r := newRigOver(t, l)
	if err := r.rename("top", "up", 0); err != nil {
		t.Fatal(err)
	}
	if err := r.rename("right", "up/left/right", 0); err != nil {
		t.Fatal(err)
	}
	for _, p := range pairs {
		a, b := "up"+p[0][len("top"):], "up/left/"+p[1]
		if err := r.setattr(b, SetAttr{Valid: SetMode, Mode: 0o600}); err != nil {
			t.Fatal(err)
		}
		if x, y := r.attr(a), r.attr(b); x.Ino != y.Ino || x.Mode != unix.S_IFREG|0o600 || x.Nlink != 2 {
			t.Fatalf("%s: inode %d, mode %o, %d links; %s is inode %d", a, x.Ino, x.Mode, x.Nlink, b, y.Ino)
		}
	}
	t.Logf("%d listings of %d names", c.lists, c.names)
	all := dirs * files * 2
	if most := nearAll + nearNames + 4*all; c.names > most {
		t.Errorf("%d names were looked through, want %d at most", c.names, most)
	}
	if most := (nearAll+nearNames)/files + 8*dirs; c.lists > most {
		t.Errorf("%d directories were listed, want %d at most", c.lists, most)
	}
}
