package layers

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestOrphans: without room for descriptors, what is unlinked or renamed over stays usable until it is forgotten, also
// over a seal, has no link, and leaves nothing behind.
func TestOrphans(t *testing.T) {
	r := newRig(t)
	r.o.orphans.limit = 1
	held, err := r.o.Tmpfile(Caller{}, RootNode, 0o600) // the one descriptor
	if err != nil {
		t.Fatal(err)
	}
	var open []Entry
	for i := range 10 {
		name := fmt.Sprintf("f%d", i)
		r.create(name, "text")
		e, err := r.find(name)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, e)
		if i%2 == 0 {
			err = r.unlink(name)
		} else {
			r.create("over", "")
			err = errors.Join(r.rename("over", name, 0), r.unlink(name))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := r.mkdir("dir", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := r.rename("dir", "f", unix.RENAME_NOREPLACE); err != nil {
		t.Fatal(err)
	}
	if got := pins.Load(); got != 1 {
		t.Errorf("%d descriptors hold unlinked files, want 1", got)
	}
	orphans := func() int {
		t.Helper()
		names, err := os.ReadDir(filepath.Join(r.work(), orphanDir))
		if err != nil {
			t.Fatal(err)
		}
		return len(names)
	}
	if n := orphans(); n != len(open) {
		t.Errorf("%d orphans, want %d", n, len(open))
	}
	check := func(when, want string) {
		t.Helper()
		for i, e := range open {
			a, err := r.o.GetAttr(e.Node)
			if err != nil || a.Nlink != 0 || a.Ino != e.Attr.Ino || a.Size != uint64(len(want)) {
				t.Errorf("%s: %d: %d links, inode %d, %d bytes, %v; want 0, %d, %d", when, i, a.Nlink, a.Ino, a.Size, err, e.Attr.Ino, len(want))
			}
			buf := make([]byte, 20)
			if n, err := r.o.Read(e.Node, buf, 0); err != nil || string(buf[:n]) != want {
				t.Errorf("%s: %d: got %q, %v; want %q", when, i, buf[:n], err, want)
			}
			if err := r.o.SetXattr(e.Node, "trusted.x", []byte(when), 0); err != nil {
				t.Errorf("%s: %d: %v", when, i, err)
			}
			if err := r.made(r.o.Link(e.Node, RootNode, "again")); !errors.Is(err, unix.ENOENT) {
				t.Errorf("%s: %d: link: got %v, want %v", when, i, err, unix.ENOENT)
			}
		}
	}
	write := func(s string, off int64) {
		t.Helper()
		for _, e := range open {
			if _, err := r.o.Write(e.Node, []byte(s), off, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	check("unlinked", "text")
	write("more", 4)
	r.seal()
	check("sealed", "textmore")
	write("MORE", 4)
	r.seal()
	check("sealed again", "textMORE")
	for _, e := range open {
		r.o.Forget(e.Node, 1)
	}
	if n := orphans(); n != 0 {
		t.Errorf("%d orphans stay", n)
	}
	r.o.Forget(held.Node, 1)
	r.o.reaper.drain()
	if got := pins.Load(); got != 0 {
		t.Errorf("%d descriptors stay", got)
	}
	r.wantNodes(1)
	r.reopen()
	if _, err := os.Stat(filepath.Join(r.work(), orphanDir)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the orphan directory of a process that has ended: %v", err)
	}
}

// TestOrphanOfOther: a file with names that nobody has looked at is pinned even beyond the bound, because it is none.
func TestOrphanOfOther(t *testing.T) {
	r := newRig(t)
	r.create("a", "text")
	if err := r.link("a", "b"); err != nil {
		t.Fatal(err)
	}
	r.reopen()
	r.o.orphans.limit = -1
	e, err := r.find("a")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.unlink("a"); err != nil {
		t.Fatal(err)
	}
	if a, err := r.o.GetAttr(e.Node); err != nil || a.Nlink != 1 {
		t.Errorf("%d links, %v; want 1", a.Nlink, err)
	}
	r.o.Forget(e.Node, 1)
	if a := r.attr("b"); a.Nlink != 1 || a.Ino != e.Attr.Ino {
		t.Errorf("%d links, inode %d; want 1, %d", a.Nlink, a.Ino, e.Attr.Ino)
	}
}

// TestDropKept: what was kept for a successor that is not to come is removed.
func TestDropKept(t *testing.T) {
	r := newLiveRig(t)
	r.create("f", "text")
	if err := r.mkdir("d", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"f", "d"} { // the kernel refers to them
		if _, err := r.find(name); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(r.unlink("f"), r.rmdir("d")); err != nil {
		t.Fatal(err)
	}
	r.wantRecords(2, 2)
	if err := r.o.DropKept(); err != nil {
		t.Fatal(err)
	}
	names, err := os.ReadDir(filepath.Join(r.work(), orphanDir))
	if err != nil || len(names) != 0 {
		t.Errorf("%d stay, %v", len(names), err)
	}
}
