package sandbox_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"snapfs/sandbox"
)

// TestUnsyncedLost takes away what a loss of power may take after a snapshot without sync: the new upper, or also the
// directory that was sealed. The workspace can be used, and the home is clean.
func TestUnsyncedLost(t *testing.T) {
	for lost := 1; lost <= 2; lost++ {
		t.Run(fmt.Sprint(lost), func(t *testing.T) {
			ctx := t.Context()
			dir := t.TempDir()
			home, at := filepath.Join(dir, "home"), filepath.Join(dir, "m")
			killed := filepath.Join(dir, "killed")
			copied := false
			h := openHome(t, home, sandbox.WithPoints(sandbox.Options{}, func(point string) {
				if point == "gate opened" && !copied { // before it is stored
					copied = true
					if err := shell(ctx, `cp -a "$1" "$2"`, home, killed); err != nil {
						t.Error(err)
					}
				}
			}))
			if _, err := h.Create(ctx, sandbox.CreateRequest{Name: "w"}); err != nil {
				t.Fatal(err)
			}
			if _, err := h.Snapshot(ctx, sandbox.SnapshotRequest{Workspace: "w", NoSync: true}); err != nil {
				t.Fatal(err)
			}
			uppers, err := filepath.Glob(filepath.Join(killed, "uppers", "*"))
			if err != nil || len(uppers) != 2 {
				t.Fatalf("uppers %v, %v", uppers, err)
			}
			for _, upper := range uppers[2-lost:] {
				if err := os.RemoveAll(upper); err != nil {
					t.Fatal(err)
				}
			}
			h = openHome(t, killed, sandbox.Options{})
			if _, err := h.Mount(ctx, sandbox.MountRequest{Workspace: "w", Mountpoint: at, MakeMountpoint: true}); err != nil {
				t.Fatal(err)
			}
			if err := shell(ctx, `echo more > "$1/f"`, at); err != nil {
				t.Error(err)
			}
			if res, err := h.Check(ctx, sandbox.CheckRequest{ReadData: true}); err != nil || len(res.Problems) > 0 {
				t.Errorf("check: %+v, %v", res, err)
			}
			if err := h.Settle(ctx); err != nil {
				t.Error(err)
			}
		})
	}
}
