package sandbox

import (
	"os"
	"path/filepath"
	"testing"

	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/mountns"
)

// TestKernelHandOver: programs that use a workspace by the kernel's overlayfs see nothing of a change of the process
// that serves what it stands on.
func TestKernelHandOver(t *testing.T) {
	t.Cleanup(mountns.Enable())
	t.Setenv("GORACE", os.Getenv("GORACE")+" atexit_sleep_ms=0") // of the processes that mount, as in package testchild
	s := newSuccession(t)
	s.sh(`mkdir -p src/d; seq 100000 >src/d/a; echo b >src/d/b`)
	if _, err := s.home.Create(s.ctx, CreateRequest{Name: "w", Source: filepath.Join(s.work, "src"), WaitImported: true}); err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(s.work, "w")
	mount := func() {
		t.Helper()
		_, err := s.home.Mount(s.ctx, MountRequest{
			Workspace: "w", Mountpoint: at, MakeMountpoint: true, MountOptions: MountOptions{Engine: api.EngineKernel},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	mount()
	if _, err := s.home.Snapshot(s.ctx, SnapshotRequest{Workspace: "w", Name: "first"}); err != nil {
		t.Fatal(err)
	}
	x := hold(t, filepath.Join(s.work, "w/d"))
	s.sh(`mv w/d/b w/d/c; echo more >w/more`)
	for i := range 3 {
		s.next(Options{})
		if state := s.state("w"); state != Mounted {
			t.Fatalf("the workspace is %s", state)
		}
		x.look()
		s.sh(`echo 2 | tee /proc/sys/vm/drop_caches >/dev/null; seq 100000 | cmp - w/d/a; test "$(cat w/d/c)" = b; echo more >>w/more`)
		if _, err := s.home.Snapshot(s.ctx, SnapshotRequest{Workspace: "w"}); err != nil {
			t.Fatal(i, err)
		}
	}
	x.end()
	if _, err := s.home.Unmount(s.ctx, UnmountRequest{Workspace: "w"}); err != nil {
		t.Fatal(err)
	}
	mount()
	s.sh(`test "$(wc -l <w/more)" = 4; rm -r w/d`)
	// Without a keeper, what it stands on ends with the process, and it is mounted again.
	if err := s.home.Close(); err != nil {
		t.Fatal(err)
	}
	s.open(Options{Remount: true})
	if state := s.state("w"); state != Mounted {
		t.Errorf("mounted again, the workspace is %s", state)
	}
	s.sh(`test "$(stat -f -c %T w)" = overlayfs; test "$(ls w)" = more`)
	if _, err := s.home.Unmount(s.ctx, UnmountRequest{Workspace: "w"}); err != nil {
		t.Fatal(err)
	}
	if all := s.home.catalog.Workspaces(); len(all) != 1 {
		t.Errorf("there are %d workspaces: a lower is left", len(all))
	}
}
