package sandbox_test

import (
	"path/filepath"
	"testing"

	"snapfs/sandbox"
)

// TestCopiedHome opens a copy of a home that is in use: its records tell of mounts, which are not the copy's to take
// away.
func TestCopiedHome(t *testing.T) {
	dir := t.TempDir()
	home, at := filepath.Join(dir, "home"), filepath.Join(dir, "m")
	h := openHome(t, home, sandbox.Options{})
	if _, err := h.Create(t.Context(), sandbox.CreateRequest{Name: "w"}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Mount(t.Context(), sandbox.MountRequest{Workspace: "w", Mountpoint: at, MakeMountpoint: true}); err != nil {
		t.Fatal(err)
	}
	if err := shell(t.Context(), `echo mine > "$1/m/f"; sync -f "$1/m"; cp -a "$1/home" "$1/copy"`, dir); err != nil {
		t.Fatal(err)
	}
	openHome(t, filepath.Join(dir, "copy"), sandbox.Options{Remount: true})
	if err := shell(t.Context(), `mountpoint -q "$1"; test "$(cat "$1/f")" = mine`, at); err != nil {
		t.Error(err)
	}
}
