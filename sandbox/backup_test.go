package sandbox_test

import (
	"path/filepath"
	"testing"

	"snapfs/sandbox"
	"snapfs/sandbox/api"
)

// TestBackupTellsNothingOfOthers: a backup of a workspace that is gone does not tell where another session has mounted
// one of the same name.
func TestBackupTellsNothingOfOthers(t *testing.T) {
	h := openHome(t, filepath.Join(t.TempDir(), "home"), sandbox.Options{})
	a, b := sandbox.Access{Session: "a"}, sandbox.Access{Session: "b"}
	if _, err := h.Create(t.Context(), sandbox.CreateRequest{Access: a, Name: "w"}); err != nil {
		t.Fatal(err)
	}
	s, err := h.Snapshot(t.Context(), sandbox.SnapshotRequest{Access: a, Workspace: "w", Name: "first"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Destroy(t.Context(), sandbox.DestroyRequest{Access: a, Ref: "w", Now: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Create(t.Context(), sandbox.CreateRequest{Access: b, Name: "w"}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Mount(t.Context(), sandbox.MountRequest{
		Access: b, Workspace: "w", Mountpoint: sandbox.ServiceMountpoint(h.Dir(), "w"), MakeMountpoint: true,
	}); err != nil {
		t.Fatal(err)
	}
	got, err := h.Export(t.Context(), sandbox.ExportRequest{
		Access: a, Snapshot: s.ID, Format: api.FormatBackup, Path: t.TempDir(),
	})
	if err != nil {
		t.Fatal(err)
	}
	if got.Backup.Directory != "/" {
		t.Errorf("it is of %s", got.Backup.Directory)
	}
}
