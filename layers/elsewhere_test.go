package layers

import (
	"os"
	"testing"
)

// TestElsewhere: a file that has lost the only name that is known stays the file that its other names lead to, also when
// an image has taken the place of its layer, the directory of which is removed then.
func TestElsewhere(t *testing.T) {
	for _, restack := range []bool{false, true} {
		for name, do := range map[string]func(r *rig, e Entry) error{
			"write": func(r *rig, e Entry) error { _, err := r.o.Write(e.Node, []byte("late"), 0, nil); return err },
			"truncate": func(r *rig, e Entry) error {
				_, err := r.o.SetAttr(Caller{}, e.Node, SetAttr{Valid: SetSize, Size: 2})
				return err
			},
			"link":    func(r *rig, e Entry) error { _, err := r.o.Link(e.Node, RootNode, "third"); return err },
			"look up": func(r *rig, _ Entry) error { _, err := r.find("b"); return err },
		} {
			t.Run(name, func(t *testing.T) {
				s := openStore(t)
				r := newRig(t)
				r.create("a", "text")
				if err := r.link("a", "b"); err != nil {
					t.Fatal(err)
				}
				r.reopen()
				e, err := r.find("a")
				if err != nil {
					t.Fatal(err)
				}
				if err := r.unlink("a"); err != nil {
					t.Fatal(err)
				}
				dir := r.upper()
				r.seal()
				r.store(s)
				if err := os.RemoveAll(dir); err != nil {
					t.Fatal(err)
				}
				if restack {
					r.seal()
					r.store(s)
				}
				_ = dir
				if a, err := r.o.GetAttr(e.Node); err != nil || a.Nlink != 1 {
					t.Errorf("%d links, %v; want 1", a.Nlink, err)
				}
				if err := do(r, e); err != nil {
					t.Error(err)
				}
				a, b := r.state(e.Node), r.state(r.nodeOf("b"))
				if a != b {
					t.Errorf("it is %s, its name leads to %s", a, b)
				}
				if n := r.nodeOf("b"); n != e.Node {
					t.Errorf("its name leads to %d, it is %d", n, e.Node)
				}
			})
		}
	}
}
