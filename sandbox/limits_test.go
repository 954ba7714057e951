package sandbox_test

import (
	"errors"
	"path/filepath"
	"testing"

	"snapfs/sandbox"
)

func TestLimits(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "home")
	snap := func(h *sandbox.Home, session string) error {
		_, err := h.Snapshot(t.Context(), sandbox.SnapshotRequest{
			Access: sandbox.Access{Session: session, AllowCrossSession: true}, Workspace: "w", NoSync: true, WaitStored: true,
		})
		return err
	}
	h := openHome(t, dir, sandbox.Options{Limits: sandbox.Limits{Snapshots: 2}})
	if _, err := h.Create(t.Context(), sandbox.CreateRequest{Name: "w"}); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if err := snap(h, "loop"); (err != nil) != (i == 2) || err != nil && !errors.Is(err, sandbox.ErrConflict) {
			t.Errorf("snapshot %d: %v", i, err)
		}
	}
	if err := snap(h, "other"); err != nil {
		t.Errorf("another session: %v", err)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	h = openHome(t, dir, sandbox.Options{Limits: sandbox.Limits{Bytes: 1}})
	if err := snap(h, "loop"); !errors.Is(err, sandbox.ErrConflict) {
		t.Errorf("bytes: %v", err)
	}
	if err := snap(h, "new"); err != nil {
		t.Errorf("a session without any: %v", err)
	}
}
