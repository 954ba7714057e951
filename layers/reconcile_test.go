package layers

import (
	"testing"

	"golang.org/x/sys/unix"
)

// kernel is what a kernel says that it has, in a test.
type kernel map[NodeID]bool

// reconcile does rounds.
func (r *rig) reconcile(k kernel, rounds int) {
	r.t.Helper()
	for range rounds {
		if err := r.o.Reconcile(func(id NodeID) (bool, error) { return k[id], nil }); err != nil {
			r.t.Fatal(err)
		}
	}
}

// TestReconcile: references that the process before has counted, and the kernel does not have, are given back: of what is
// used since its death and of what is not, with a name and without. Those that the kernel has stay.
func TestReconcile(t *testing.T) {
	for _, used := range []bool{false, true} {
		r := newLiveRig(t)
		if err := r.mkdir("d", 0o755); err != nil {
			t.Fatal(err)
		}
		ids := map[string]NodeID{}
		for _, name := range []string{"lost", "unlinked", "more", "late", "d/below"} {
			r.create(name, "text")
			e, err := r.find(name)
			if err != nil {
				t.Fatal(err)
			}
			ids[name] = e.Node
		}
		if _, err := r.find("more"); err != nil {
			t.Fatal(err)
		}
		if err := r.o.Unlink(RootNode, "unlinked"); err != nil {
			t.Fatal(err)
		}
		r.wantRecords(6, 1)
		r.killed()
		for name, id := range ids {
			if used {
				if _, err := r.o.GetAttr(id); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
		k := kernel{ids["more"]: true}
		r.reconcile(k, 2) // begins, asks
		if _, err := r.find("late"); err != nil {
			t.Fatal(err) // its answer was on the way
		}
		k[ids["late"]] = true
		r.wantRecords(6, 1)
		r.reconcile(k, 1)
		r.wantRecords(2, 0)
		r.o.Forget(ids["more"], 1) // all that the kernel has
		r.o.Forget(ids["late"], 1)
		r.reconcile(kernel{}, 2)
		r.wantRecords(2, 0)
		r.reconcile(kernel{}, 1)
		r.wantRecords(0, 0)
		if own, _ := r.o.Nodes(); own != 0 || r.o.nodes.live.doubts.left != nil {
			t.Errorf("%d nodes, %d in doubt", own, len(r.o.nodes.live.doubts.left))
		}
	}
}

// TestReconcileForgotten: a FORGET that comes late counts for what it was sent for, not for what is given after it.
func TestReconcileForgotten(t *testing.T) {
	r := newLiveRig(t)
	r.create("f", "text")
	e, err := r.find("f")
	if err != nil {
		t.Fatal(err)
	}
	r.killed()
	r.reconcile(kernel{}, 2)
	r.o.Forget(e.Node, 1)
	if e, err = r.find("f"); err != nil {
		t.Fatal(err)
	}
	r.reconcile(kernel{}, 4)
	if _, err := r.o.GetAttr(e.Node); err != nil {
		t.Errorf("what the kernel was given is %v", err)
	}
	r.o.Forget(e.Node, 1)
	r.wantRecords(0, 0)
}

// TestReconcileListing: of an answer that is given again, no reference is taken back that was given back already.
func TestReconcileListing(t *testing.T) {
	r := newLiveRig(t)
	r.create("f", "text")
	e, err := r.find("f")
	if err != nil {
		t.Fatal(err)
	}
	for _, late := range []bool{false, true} {
		r.killed()
		if late {
			r.reconcile(kernel{}, 3)
		}
		again, err := r.find("f")
		if err != nil || again.Node != e.Node {
			t.Fatalf("got %d, %v; want %d", again.Node, err, e.Node)
		}
		r.o.ForgetTwice([]NodeID{e.Node})
		if _, err := r.o.GetAttr(e.Node); err != nil {
			t.Errorf("late=%v: %v", late, err)
		}
	}
	r.o.Forget(e.Node, 1)
	r.wantRecords(0, 0)
}

// TestReconcileFails: when the kernel does not answer, nothing is given back.
func TestReconcileFails(t *testing.T) {
	r := newLiveRig(t)
	r.create("f", "text")
	if _, err := r.find("f"); err != nil {
		t.Fatal(err)
	}
	r.killed()
	r.reconcile(kernel{}, 1)
	for range 3 {
		if err := r.o.Reconcile(func(NodeID) (bool, error) { return false, unix.ENODEV }); err == nil {
			t.Error("no error")
		}
	}
	r.wantRecords(1, 0)
}
