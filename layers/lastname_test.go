package layers

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// lowerFile makes a lower with a file of some text.
func lowerFile(t *testing.T, name, text string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestTakeOverLastName: a file that has lost the name by which it was known, and then the last one that it had, is there for
// each successor, and stays where it is.
func TestTakeOverLastName(t *testing.T) {
	r := newLiveRig(t, lowerFile(t, "low", "text"))
	if err := r.setattr("low", SetAttr{Valid: SetMode, Mode: 0o600}); err != nil {
		t.Fatal(err)
	}
	r.create("up", "text")
	ids := map[string]NodeID{}
	for _, name := range []string{"low", "up"} {
		if err := r.link(name, name+"2"); err != nil {
			t.Fatal(err)
		}
		ids[name] = r.nodeOf(name)
	}
	r.killed() // which forgets the other names
	for name, id := range ids {
		r.state(id)
		if err := errors.Join(r.unlink(name), r.unlink(name+"2")); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		r.seal()
		for name, id := range ids {
			if got := r.state(id); !strings.HasSuffix(got, " 4 0[]oktextok") {
				t.Errorf("%s is %s", name, got)
			}
		}
		r.killed()
		for name, id := range ids {
			if got := r.state(id); !strings.HasSuffix(got, " 4 0[]oktextok") {
				t.Errorf("%s is %s to a successor", name, got)
			}
		}
	}
	for name, id := range ids {
		if _, err := r.o.Write(id, []byte("more"), 4, nil); err != nil {
			t.Errorf("write %s: %v", name, err)
		}
		r.o.Forget(id, 1)
	}
	r.wantRecords(0, 0)
}

// TestReplayUnlinkOpen: the data of a file that loses its name, and is in a layer below, is there whenever the process is
// killed.
func TestReplayUnlinkOpen(t *testing.T) {
	for _, seals := range []bool{false, true} {
		for _, q := range []request{
			{"unlink", func(v Noted, _ func(string) NodeID) (Entry, error) { return statusOnly(v.Unlink(RootNode, "low")) }},
			{"rename over", func(v Noted, _ func(string) NodeID) (Entry, error) {
				return statusOnly(v.Rename(RootNode, "up", RootNode, "low", 0))
			}},
		} {
			for kill, hit := 1, true; hit; kill++ {
				m := newMortal(t, lowerFile(t, "low", "text"), "")
				if err := m.setattr("low", SetAttr{Valid: SetMode, Mode: 0o600}); err != nil {
					t.Fatal(err)
				}
				m.create("up", "up")
				id := m.nodeOf("low")
				m.seals = seals
				var err error
				if _, err, hit = m.do(q, kill); err != nil {
					t.Errorf("%s, killed at step %d: %v", q.name, kill, err)
				}
				m.seals = false
				for i := range 2 {
					if got := m.rig.state(id); got != "100600 0 0 4 0[]oktextok" {
						t.Errorf("%s, killed at step %d, sealed %v, successor %d: it is %s", q.name, kill, seals, i, got)
					}
					m.seal()
					m.succeed()
				}
			}
		}
	}
}
