package layers

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestFoundAgain: a file that has lost the only name known gets a name again when another one is found.
func TestFoundAgain(t *testing.T) {
	for _, sealed := range []bool{false, true} {
		r := newRig(t)
		r.create("a", "text")
		if err := r.link("a", "b"); err != nil {
			t.Fatal(err)
		}
		if sealed {
			r.seal()
		}
		r.reopen()
		open, err := r.find("a") // as a program that has it open
		if err != nil {
			t.Fatal(err)
		}
		if err := r.unlink("a"); err != nil {
			t.Fatal(err)
		}
		found, err := r.find("b")
		if err != nil {
			t.Fatal(err)
		}
		if found.Node != open.Node || found.Attr.Nlink != 1 {
			t.Errorf("found as node %d with %d links, want %d with 1", found.Node, found.Attr.Nlink, open.Node)
		}
		r.seal()
		if err := r.write("b", "TEXT", 0); err != nil {
			t.Fatal(err)
		}
		if a, err := r.o.GetAttr(open.Node); err != nil || a.Nlink != 1 {
			t.Errorf("%d links, %v; want 1", a.Nlink, err)
		}
		r.o.Forget(open.Node, 1)
		r.o.Forget(found.Node, 1)
		r.wantNodes(1)
		if got := r.read("b"); got != "TEXT" {
			t.Errorf("sealed first: %v: got %q, want %q", sealed, got, "TEXT")
		}
		if err := r.rename("b", "c", unix.RENAME_NOREPLACE); err != nil {
			t.Fatal(err)
		}
		r.reopen()
		if got := r.read("c"); got != "TEXT" {
			t.Errorf("sealed first: %v: got %q, want %q", sealed, got, "TEXT")
		}
	}
}

// TestUnseenName: what is written to an open file after a seal shows under a name that nobody had looked at.
func TestUnseenName(t *testing.T) {
	r := newRig(t)
	if err := r.mkdir("d", 0o755); err != nil {
		t.Fatal(err)
	}
	r.create("a", "text")
	if err := r.link("a", "d/b"); err != nil {
		t.Fatal(err)
	}
	r.reopen()
	open, err := r.find("a")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.unlink("a"); err != nil {
		t.Fatal(err)
	}
	r.seal()
	if _, err := r.o.Write(open.Node, []byte("TEXT"), 0, nil); err != nil {
		t.Fatal(err)
	}
	if got := r.read("d/b"); got != "TEXT" {
		t.Errorf("got %q, want %q", got, "TEXT")
	}
	r.o.Forget(open.Node, 1)
	r.wantNodes(1)
}
