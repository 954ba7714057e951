package layers

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// newRigMarked makes an overlay over one directory whose whiteouts are attributes.
func newRigMarked(t *testing.T, lower string) *rig {
	t.Helper()
	r := newRig(t, lower)
	if err := r.o.Close(); err != nil {
		t.Fatal(err)
	}
	o, err := New(r.upper(), r.work(), r.lowers, Options{InoBase: r.base(), Whiteouts: "xattr"})
	if err != nil {
		t.Fatal(err)
	}
	r.o = o
	o.orphans.limit = rigPins
	freeze(t, r.upper(), false) // skips the test if the host cannot
	return r
}

// movesBelow makes a directory that is a lower: from/f, to/d and to/h.
func movesBelow(t *testing.T) string {
	t.Helper()
	low := t.TempDir()
	for _, err := range []error{
		os.Mkdir(low+"/from", 0o755), os.MkdirAll(low+"/to/d", 0o755), os.WriteFile(low+"/from/f", []byte("stored"), 0o644),
		os.WriteFile(low+"/to/h", []byte("stored"), 0o644),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return low
}

// TestHalfMoved: what the host has moved has its new name, even if the whiteout in its old place failed; and what it
// has not moved has its old one.
func TestHalfMoved(t *testing.T) {
	for _, moved := range []bool{false, true} {
		r := newRigMarked(t, movesBelow(t))
		if err := r.write("from/f", "new...", 0); err != nil {
			t.Fatal(err)
		}
		r.create("to/g", "target")
		f, g := r.nodeOf("from/f"), r.nodeOf("to/g")
		stuck := r.work()
		if moved {
			stuck = filepath.Join(r.upper(), "from")
			steps = func(step string) {
				if step == "name moved" {
					freeze(t, stuck, true)
				}
			}
		} else {
			freeze(t, stuck, true)
		}
		err := r.rename("from/f", "to/g", 0)
		steps = nil
		freeze(t, stuck, false)
		if !errors.Is(err, unix.EPERM) {
			t.Errorf("moved %v: got %v, want EPERM", moved, err)
		}
		want, of := "target", g
		if moved {
			want, of = "new...", f
		}
		if got := r.read("to/g"); got != want {
			t.Errorf("moved %v: the target has %q, want %q", moved, got, want)
		}
		if got := r.nodeOf("to/g"); got != of {
			t.Errorf("moved %v: the target is node %d, want %d (%d moved, %d was there)", moved, got, of, f, g)
		}
		r.o.Forget(of, 1)
		sealed := filepath.Join(r.upper(), "to/g")
		r.seal()
		if err := r.write("to/g", "behind", 0); err != nil {
			t.Error(err)
		}
		if got := r.read("to/g"); got != "behind" {
			t.Errorf("moved %v: the target has %q after the seal", moved, got)
		}
		if got, err := os.ReadFile(sealed); err != nil || string(got) != want {
			t.Errorf("moved %v: the sealed layer has %q, %v, want %q", moved, got, err, want)
		}
		r.o.Forget(f, 1)
		r.o.Forget(g, 1)
		r.wantNodes(1)
	}
}

// TestLeftWhiteout: a directory that has been moved over a whiteout has its new name, even if that whiteout, which is
// in its old place now, cannot be removed; and it shows nowhere.
func TestLeftWhiteout(t *testing.T) {
	r := newRigMarked(t, movesBelow(t))
	for _, err := range []error{r.rmdir("to/d"), r.mkdir("plain", 0o755), r.mkdir("plain/d", 0o755)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	r.create("plain/d/x", "inside")
	d := r.nodeOf("plain/d")
	plain := filepath.Join(r.upper(), "plain")
	steps = func(step string) {
		if step == "name moved" {
			freeze(t, plain, true)
		}
	}
	err := r.rename("plain/d", "to/d", 0)
	steps = nil
	freeze(t, plain, false)
	if err != nil {
		t.Error(err)
	}
	if got := r.nodeOf("to/d"); got != d {
		t.Errorf("the target is node %d, want %d", got, d)
	}
	if got := r.read("to/d/x"); got != "inside" {
		t.Errorf("the file in it has %q", got)
	}
	if got := r.list("plain"); len(got) > 0 {
		t.Errorf("the old place shows %q", got)
	}
	if err := r.rmdir("plain"); err != nil {
		t.Errorf("the old place: %v", err)
	}
	r.o.Forget(d, 2)
	r.wantNodes(1)
}

// TestKeptEmpty: a directory that something should have been moved over is as empty as it was if the host refuses in
// the end.
func TestKeptEmpty(t *testing.T) {
	r := newRig(t, movesBelow(t))
	freeze(t, r.upper(), false) // skips the test if the host cannot
	for _, err := range []error{r.unlink("to/h"), r.rmdir("to/d"), r.mkdir("plain", 0o755), r.mkdir("plain/d", 0o755)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	to := r.nodeOf("to")
	plain := filepath.Join(r.upper(), "plain")
	cleared := false
	steps = func(string) {
		if v, _ := nameIn(unix.AT_FDCWD, filepath.Join(r.upper(), "to")).getxattr(xattrOpaque); !cleared && string(v) == "y" {
			cleared = true
			freeze(t, plain, true)
		}
	}
	err := r.rename("plain/d", "to", 0)
	steps = nil
	freeze(t, plain, false)
	if !cleared || !errors.Is(err, unix.EPERM) {
		t.Errorf("emptied %v: got %v, want EPERM", cleared, err)
	}
	for range 2 {
		if got := r.list("to"); len(got) > 0 {
			t.Errorf("it shows %q", got)
		}
		if _, err := r.find("to/h"); !errors.Is(err, unix.ENOENT) {
			t.Errorf("what was removed from it: %v", err)
		}
		if to != 0 {
			r.o.Forget(to, 1)
			to = 0
			r.wantNodes(1)
			r.reopen()
		}
	}
}
