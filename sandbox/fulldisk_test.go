package sandbox_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/sandbox"
)

// TestFullDisk fills the file system of a home: calls fail with ENOSPC and nothing half made, the workspace goes on,
// and when there is room again, everything does.
func TestFullDisk(t *testing.T) {
	dir, err := os.MkdirTemp("", "snapfs-full-")
	if err != nil {
		t.Fatal(err)
	}
	sh := func(script string, args ...string) (string, error) {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, "sh", append([]string{"-ec", script, "sh"}, args...)...)
		cmd.WaitDelay = time.Second
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	mustSh := func(script string, args ...string) {
		t.Helper()
		if out, err := sh(script, args...); err != nil {
			t.Fatalf("%s: %v: %s", script, err, out)
		}
	}
	disk := filepath.Join(dir, "disk")
	t.Cleanup(func() { mustSh(`if mountpoint -q "$2"; then umount "$2"; fi; rm -rf "$1"`, dir, disk) })
	mustSh(`mkdir "$1/disk" "$1/m" "$1/src"; truncate -s 104M "$1/image"; mkfs.ext4 -q -m 0 "$1/image"; mount -o loop "$1/image" "$1/disk"
		head -c 70000000 /dev/urandom > "$1/src/big"`, dir)

	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	h, err := sandbox.Open(ctx, filepath.Join(disk, "home"), sandbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := h.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}()
	clean := func(when string) {
		t.Helper()
		res, err := h.Check(ctx, sandbox.CheckRequest{ReadData: true})
		if err != nil || len(res.Problems) > 0 {
			t.Errorf("check %s: %v, %+v", when, err, res.Problems)
		}
	}
	at := filepath.Join(dir, "m")
	if _, err := h.Create(ctx, sandbox.CreateRequest{Name: "w"}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Mount(ctx, sandbox.MountRequest{Workspace: "w", Mountpoint: at}); err != nil {
		t.Fatal(err)
	}
	mustSh(`echo precious > "$1/f"; cat "$1/f"`, at)
	before, err := h.Snapshot(ctx, sandbox.SnapshotRequest{Workspace: "w"})
	if err != nil {
		t.Fatal(err)
	}

	// A base that does not fit.
	_, err = h.Create(ctx, sandbox.CreateRequest{Name: "big", Source: filepath.Join(dir, "src"), WaitImported: true})
	if !errors.Is(err, unix.ENOSPC) {
		t.Errorf("create from what does not fit: got %v", err)
	}
	if _, err := h.Show(ctx, sandbox.RefRequest{Ref: "big"}); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("a workspace that could not be created: got %v", err)
	}
	// One that stands on its source says why that is not imported.
	if _, err := h.Create(ctx, sandbox.CreateRequest{Name: "big", Source: filepath.Join(dir, "src")}); err != nil {
		t.Fatal(err)
	}
	for problem := ""; !strings.Contains(problem, "no space left"); time.Sleep(10 * time.Millisecond) {
		o, err := h.Show(ctx, sandbox.RefRequest{Ref: "big"})
		if err != nil || o.Workspace.Import == nil {
			t.Fatalf("a workspace whose source does not fit: %+v, %v", o.Workspace, err)
		}
		problem = o.Workspace.Import.Problem
	}
	if _, err := h.Destroy(ctx, sandbox.DestroyRequest{Ref: "big", Now: true}); err != nil {
		t.Fatal(err)
	}
	// The index wants some room to work in; where what is left is less, a collection says so.
	if _, err := h.GC(ctx, sandbox.GCRequest{}); err != nil && !errors.Is(err, unix.ENOSPC) {
		t.Errorf("collecting what it left: %v", err)
	}
	clean("after a create that did not fit")

	// A workspace that fills the disk.
	if out, err := sh(`dd if=/dev/urandom of="$1/filler" bs=1M 2>&1; sync -f "$1/filler"`, at); err == nil {
		t.Errorf("the disk was not filled: %s", out)
	}
	mustSh(`for size in 4096 512; do dd if=/dev/urandom of="$1/filler$size" bs=$size 2>/dev/null || :; done`, at)
	s, snapErr := h.Snapshot(ctx, sandbox.SnapshotRequest{Workspace: "w", WaitStored: true})
	if snapErr == nil {
		t.Error("a full disk took the image of as much again as is on it")
	}
	t.Logf("snapshot on a full disk: %v %v", s.ID, snapErr)
	mustSh(`test "$(cat "$1/f")" = precious; rm -f "$1"/filler*; test -e "$1/f"`, at)
	clean("on a full disk")

	// Room again, by giving up what filled it.
	page, err := h.Snapshots(ctx, sandbox.ListRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range page.Snapshots {
		if s.ID != before.ID {
			if err := h.Delete(ctx, sandbox.RefRequest{Ref: s.ID}); err != nil {
				t.Errorf("delete: %v", err)
			}
		}
	}
	// The room of a removed file comes when the kernel forgets it, a moment later, and that of each by itself.
	eventually := func(what string, do func() error) {
		t.Helper()
		err := do()
		for end := time.Now().Add(2 * time.Minute); errors.Is(err, unix.ENOSPC) && time.Now().Before(end); err = do() {
			time.Sleep(10 * time.Millisecond)
		}
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	eventually("restore", func() error {
		_, err := h.Restore(ctx, sandbox.RestoreRequest{Snapshot: before.ID})
		return err
	})
	eventually("write", func() error {
		out, err := sh(`echo more | cat > "$1/g"`, at) // cat says what is wrong
		if strings.Contains(out, "No space left") {
			return unix.ENOSPC
		}
		return err
	})
	clean("with room again")
}
