package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"snapfs/sandbox/internal/catalog"
	"snapfs/sandbox/internal/layerstore"
)

// TestParked seals a layer that squashfs cannot hold, with too many owners. It is told of and not tried again, other
// workspaces' layers are stored, and it can still be restored, also after the home was opened again. So is one whose
// storing has ended the daemon several times.
func TestParked(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to give files away")
	}
	ctx, dir := t.Context(), filepath.Join(t.TempDir(), "home")
	open := func() *Home {
		t.Helper()
		h, err := Open(ctx, dir, Options{})
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	h := open()
	defer func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, name := range []string{"bad", "good"} {
		if _, err := h.Create(ctx, CreateRequest{Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	upper := h.uppers.Path(h.catalog.Workspace("bad").Upper)
	for i := range 1<<15 + 1 {
		path := filepath.Join(upper, strconv.Itoa(i))
		if err := os.Symlink("x", path); err != nil {
			t.Fatal(err)
		}
		if err := os.Lchown(path, 2*i+10, 2*i+11); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(h.uppers.Path(h.catalog.Workspace("good").Upper), "f"), []byte("good"), 0o644); err != nil {
		t.Fatal(err)
	}
	bad, err := h.Snapshot(ctx, SnapshotRequest{Workspace: "bad"})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.storer.Wait(ctx, bad.Layers[0].ID, nil); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "owners") {
		t.Fatalf("stored with %v, want a limit of owners", err)
	}
	above, err := h.Snapshot(ctx, SnapshotRequest{Workspace: "bad", Name: "above"})
	if err != nil {
		t.Fatal(err)
	}
	if good, err := h.Snapshot(ctx, SnapshotRequest{Workspace: "good", WaitStored: true}); err != nil || good.State != Stored {
		t.Errorf("another workspace's snapshot is %s, %v", good.State, err)
	}
	parked := func(why string) {
		t.Helper()
		s, err := h.describeSnapshot(h.catalog.Snapshot(bad.ID), 1)
		if err != nil || s.State != Sealed || !strings.Contains(s.Layers[0].Problem, why) {
			t.Errorf("shown as %+v, %v, want a layer with %q", s.Layers, err, why)
		}
		workspaces, err := h.Workspaces(ctx, ListRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range workspaces.Workspaces {
			if told := strings.Contains(w.Problem, why); told != (w.ID != "good") {
				t.Errorf("workspace %s is listed with problem %q", w.ID, w.Problem)
			}
		}
		snapshots, err := h.Snapshots(ctx, ListRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range snapshots.Snapshots { // bad, above it, good
			if told := strings.Contains(s.Problem, why); told != (s.Workspace == "bad") {
				t.Errorf("snapshot %s of %s is listed with problem %q", s.ID, s.Workspace, s.Problem)
			}
		}
		res, err := h.Check(ctx, CheckRequest{})
		if err != nil || len(res.Problems) != 1 || !strings.Contains(res.Problems[0].What, why) {
			t.Errorf("check: %+v, %v, want a problem with %q", res.Problems, err, why)
		}
	}
	reopen := func() {
		t.Helper()
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
		h = open()
	}
	parked("owners")
	reopen()
	parked("owners")
	if err := h.catalog.PutAttempts(ctx, bad.Layers[0].ID, catalog.Attempts{Begun: layerstore.ParkAfter}); err != nil {
		t.Fatal(err)
	}
	reopen()
	parked("ended 3 times")
	if _, err := h.Restore(ctx, RestoreRequest{Snapshot: above.ID}); err != nil {
		t.Error(err)
	}
	if err := h.storer.Wait(ctx, bad.Layers[0].ID, nil); err == nil || !strings.Contains(err.Error(), "owners") {
		t.Errorf("who asks for it has it tried once more, with %v", err)
	}
}
