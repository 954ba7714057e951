package sandbox

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"snapfs/sandbox/internal/catalog"
)

// stageSeal records the seal of a workspace as freeze does, up to the gate.
func stageSeal(t *testing.T, h *Home, name string) (s *catalog.Staged, upper uint64) {
	t.Helper()
	upper, err := h.uppers.Create(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w := h.catalog.Workspace(name)
	layer := &catalog.Layer{ID: h.catalog.NewID(), Parent: w.Base, State: Sealed, Upper: w.Upper}
	s, err = h.catalog.Stage(t.Context(), true, func(ch *catalog.Change) error {
		next := *w
		next.Upper, next.Base = upper, layer.ID
		snap := &catalog.Snapshot{ID: h.catalog.NewID(), Workspace: name, Session: w.Session, Top: layer.ID, ParentTop: w.Base}
		next.Head = snap.ID
		ch.PutWorkspaces = append(ch.PutWorkspaces, &next)
		ch.PutLayers = append(ch.PutLayers, layer)
		ch.PutSnapshots = append(ch.PutSnapshots, snap)
		ch.Events = append(ch.Events, h.event(EventSnapshotted, name, w.Session, snap.ID, ""))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return s, upper
}

func openTest(t *testing.T, dir string) *Home {
	t.Helper()
	h, err := Open(t.Context(), dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() }) // where the test did not get that far
	return h
}

// soundHome checks a home, tells how many snapshots it shows, and closes it.
func soundHome(t *testing.T, h *Home) (snapshots int) {
	t.Helper()
	c, err := h.Check(t.Context(), CheckRequest{ReadData: true})
	if err != nil || len(c.Problems) > 0 {
		t.Errorf("check: %v %v", c.Problems, err)
	}
	page, err := h.Snapshots(t.Context(), ListRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	return len(page.Snapshots)
}

// TestStaged: a seal that is recorded is seen by nobody before its gate was closed, is complete after a crash there,
// and leaves nothing if it is withdrawn.
func TestStaged(t *testing.T) {
	for _, test := range []struct {
		name string
		then func(h *Home, s *catalog.Staged, upper uint64) error
		want int // snapshots that the next process finds
	}{
		{"crash", func(*Home, *catalog.Staged, uint64) error { return nil }, 1},
		{"withdrawn", func(h *Home, s *catalog.Staged, upper uint64) error {
			return h.withdraw(context.Background(), s, upper)
		}, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "home")
			h := openTest(t, dir)
			if _, err := h.Create(t.Context(), CreateRequest{Name: "w"}); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(h.uppers.Path(h.catalog.Workspace("w").Upper), "f")
			if err := os.WriteFile(file, []byte("1"), 0o644); err != nil {
				t.Fatal(err)
			}
			s, upper := stageSeal(t, h, "w")
			// Until the gate closes, programs go on.
			if err := os.WriteFile(file, []byte("2"), 0o644); err != nil {
				t.Fatal(err)
			}
			if err := test.then(h, s, upper); err != nil {
				t.Fatal(err)
			}
			if n := soundHome(t, h); n != 0 {
				t.Errorf("%d snapshots are visible", n)
			}
			h = openTest(t, dir)
			if w := h.catalog.Workspace("w"); (w.Upper == upper) != (test.want == 1) {
				t.Errorf("the upper is %d, the new one was %d", w.Upper, upper)
			}
			if test.want == 0 && h.uppers.Exists(upper) {
				t.Error("the new upper is still there")
			}
			r, err := h.Restore(t.Context(), RestoreRequest{Snapshot: snapshotOf(t, h).ID})
			if err != nil {
				t.Fatal(err)
			}
			if err := h.Diff(t.Context(), DiffRequest{A: "w", B: r.ID}, func(c Change) error {
				t.Errorf("the snapshot differs: %v", c)
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			soundHome(t, h)
		})
	}
}

// snapshotOf gives the one snapshot of workspace w, which it takes if there is none.
func snapshotOf(t *testing.T, h *Home) Snapshot {
	t.Helper()
	page, err := h.Snapshots(t.Context(), ListRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if len(page.Snapshots) == 1 {
		return page.Snapshots[0]
	}
	s, err := h.Snapshot(t.Context(), SnapshotRequest{Workspace: "w"})
	if err != nil {
		t.Fatal(err)
	}
	return s
}
