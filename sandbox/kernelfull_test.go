package sandbox_test

import (
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"snapfs/sandbox"
	"snapfs/sandbox/api"
)

// TestKernelNoInodes: a kernel mount that has taken all inodes of the home's file system can end, and be destroyed.
func TestKernelNoInodes(t *testing.T) {
	disk := t.TempDir()
	if err := unix.Mount("none", disk, "tmpfs", 0, "size=256m,nr_inodes=400"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(disk, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	m := filepath.Join(t.TempDir(), "m")
	h := kernelHome(t, filepath.Join(disk, "home"))
	ctx := t.Context()
	if _, err := h.Create(ctx, sandbox.CreateRequest{Name: "w"}); err != nil {
		t.Fatal(err)
	}
	_, err := h.Mount(ctx, sandbox.MountRequest{
		Workspace: "w", Mountpoint: m, MakeMountpoint: true, MountOptions: sandbox.MountOptions{Engine: "kernel"},
	})
	if err != nil {
		t.Fatal(err)
	}
	script(t, m, `cd "$M"; i=0; while mkdir $i 2>/dev/null; do i=$((i+1)); done; test $i -gt 100`)
	if w, err := h.Unmount(ctx, sandbox.UnmountRequest{Workspace: "w"}); err != nil || w.State != api.Unmounted {
		t.Fatal(w.State, err)
	}
	if _, err := h.Destroy(ctx, sandbox.DestroyRequest{Ref: "w", Now: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.GC(ctx, sandbox.GCRequest{}); err != nil { // waits until it is gone
		t.Error(err)
	}
}
