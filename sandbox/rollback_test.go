package sandbox

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"snapfs/layers"
)

// deafEngine makes mounts whose kernel forgets no names.
type deafEngine struct{ engine }

type deafMount struct{ mounted }

var errDeaf = errors.New("no names are forgotten")

func (e deafEngine) mount(ctx context.Context, o *layers.Overlay, workspace, mountpoint string, opts MountOptions, how attaching) (mounted, error) {
	m, err := e.engine.mount(ctx, o, workspace, mountpoint, opts, how)
	return deafMount{m}, err
}

func (deafMount) ExpireEntry(layers.NodeID, string) error     { return errDeaf }
func (deafMount) InvalidateEntry(layers.NodeID, string) error { return errDeaf }

// TestRollbackUntold: when the kernel cannot be told, the rollback is an error, and yet done: nothing of it is taken
// away.
func TestRollbackUntold(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	work, err := os.MkdirTemp("", "snapfs-rollback-") // not t.TempDir: the mount goes first
	if err != nil {
		t.Fatal(err)
	}
	h, err := Open(ctx, filepath.Join(work, "home"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(h.Close(), os.RemoveAll(work)); err != nil {
			t.Error(err)
		}
	})
	h.engine = deafEngine{h.engine}
	at := filepath.Join(work, "at")
	sh := func(script string) string {
		t.Helper()
		out, err := exec.CommandContext(ctx, "sh", "-ec", script, "sh", at).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", script, err, out)
		}
		return string(out)
	}
	if _, err := h.Create(ctx, CreateRequest{Name: "w"}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Mount(ctx, MountRequest{Workspace: "w", Mountpoint: at, MakeMountpoint: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Snapshot(ctx, SnapshotRequest{Workspace: "w", Name: "s"}); err != nil {
		t.Fatal(err)
	}
	sh(`echo x > "$1/later"`)
	if _, err := h.Rollback(ctx, RollbackRequest{Workspace: "w", Snapshot: "s"}); !errors.Is(err, errDeaf) {
		t.Errorf("rollback: %v, want %v", err, errDeaf)
	}
	sh(`echo new > "$1/new"`)
	if _, err := h.Unmount(ctx, UnmountRequest{Workspace: "w"}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Mount(ctx, MountRequest{Workspace: "w", Mountpoint: at}); err != nil {
		t.Fatal(err)
	}
	if got := sh(`ls "$1"; cat "$1/new"`); got != "new\nnew\n" {
		t.Errorf("after the rollback and a write: %q", got)
	}
	r, err := h.Check(ctx, CheckRequest{})
	if err != nil || len(r.Problems) > 0 {
		t.Errorf("check: %v, %v", r.Problems, err)
	}
}
