package sandbox_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/sandbox"
)

// frozenFor is how long the file system of a test is frozen at most, whatever becomes of the test.
const frozenFor = "40"

// freezeHost makes a file system and gives its directory, and functions that freeze and thaw it.
func freezeHost(t *testing.T) (disk string, freeze, thaw func()) {
	t.Helper()
	t.Setenv("PATH", os.Getenv("PATH")+":/usr/sbin:/sbin")
	dir := t.TempDir()
	disk = filepath.Join(dir, "disk")
	if err := shell(t.Context(), `mkdir "$1/disk"; truncate -s 256M "$1/image"; mkfs.ext4 -q "$1/image"; mount -o loop "$1/image" "$1/disk"`, dir); err != nil {
		t.Fatal(err)
	}
	var watchdog *exec.Cmd // no process of the test's: a file system that stays frozen can be neither unmounted nor given up
	thaw = func() {
		if watchdog == nil {
			return
		}
		if err := shell(context.WithoutCancel(t.Context()), `fsfreeze --unfreeze "$1"`, disk); err != nil {
			t.Errorf("thaw: %v: frozen for too long?", err)
		}
		_ = unix.Kill(-watchdog.Process.Pid, unix.SIGKILL)
		_ = watchdog.Wait() // killed
		watchdog = nil
	}
	freeze = func() {
		t.Helper()
		watchdog = exec.Command("sh", "-c", `sleep "$1"; exec fsfreeze --unfreeze "$2"`, "sh", frozenFor, disk)
		watchdog.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := watchdog.Start(); err != nil {
			t.Fatal(err)
		}
		if err := shell(t.Context(), `fsfreeze --freeze "$1"`, disk); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if err := shell(context.WithoutCancel(t.Context()), `umount "$1"`, disk); err != nil {
			t.Error(err)
		}
	})
	return disk, freeze, thaw
}

// TestFrozenHost freezes the file system of a home. Calls that change something are refused in time, with its name and
// with nothing done, and end at once when they are cancelled; those that only look go on.
func TestFrozenHost(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to mount")
	}
	disk, freeze, thaw := freezeHost(t)
	home := filepath.Join(disk, "home")
	h := openHome(t, home, sandbox.Options{})
	t.Cleanup(thaw) // before the home is closed
	other := sandbox.Access{Session: "other", AllowCrossSession: true}
	for _, name := range []string{"w", "shown"} {
		if _, err := h.Create(t.Context(), sandbox.CreateRequest{Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	for _, mount := range []string{"w", "shown"} {
		at := filepath.Join(t.TempDir(), mount)
		if _, err := h.Mount(t.Context(), sandbox.MountRequest{Workspace: mount, Mountpoint: at, MakeMountpoint: true}); err != nil {
			t.Fatal(err)
		}
	}
	s, err := h.Snapshot(t.Context(), sandbox.SnapshotRequest{Workspace: "w", WaitStored: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.ShortHostWait(200 * time.Millisecond)
	calls := map[string]func(context.Context) error{
		"pause": func(ctx context.Context) error {
			_, err := h.Pause(ctx, sandbox.PauseRequest{Workspace: "w"})
			return err
		},
		"unmount": func(ctx context.Context) error {
			_, err := h.Unmount(ctx, sandbox.UnmountRequest{Workspace: "w"})
			return err
		},
		"snapshot": func(ctx context.Context) error {
			_, err := h.Snapshot(ctx, sandbox.SnapshotRequest{Workspace: "w"})
			return err
		},
		"create": func(ctx context.Context) error {
			_, err := h.Create(ctx, sandbox.CreateRequest{Name: "new"})
			return err
		},
		"branch": func(ctx context.Context) error {
			_, err := h.Branch(ctx, sandbox.RestoreRequest{Snapshot: s.ID})
			return err
		},
		"delete": func(ctx context.Context) error { return h.Delete(ctx, sandbox.RefRequest{Ref: s.ID}) },
	}
	freeze()
	for name, call := range calls {
		if err := call(t.Context()); !errors.Is(err, sandbox.ErrUnavailable) || !strings.Contains(err.Error(), home) || !strings.Contains(err.Error(), "frozen") {
			t.Errorf("%s in a frozen home: %v", name, err)
		}
	}
	h.ShortHostWait(time.Hour)
	// A list of another's leaves a record, which waits without end.
	calls["list of another session's"] = func(ctx context.Context) error {
		_, err := h.Workspaces(ctx, sandbox.ListRequest{Access: other})
		return err
	}
	for name, call := range calls {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		if err := call(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s, cancelled: %v", name, err)
		}
		cancel()
	}
	page, err := h.Workspaces(t.Context(), sandbox.ListRequest{})
	if err != nil || len(page.Workspaces) != 2 || page.Workspaces[1].State != sandbox.Mounted || page.Workspaces[1].Paused {
		t.Errorf("list: %+v, %v", page, err)
	}
	if w, err := h.Unmount(t.Context(), sandbox.UnmountRequest{Workspace: "shown", Force: true}); err != nil || w.State == sandbox.Mounted {
		t.Errorf("unmount with force: %+v, %v", w, err)
	}
	thaw()
	for _, name := range []string{"pause", "snapshot", "create", "branch", "delete", "list of another session's", "unmount"} {
		if err := calls[name](t.Context()); err != nil {
			t.Errorf("%s after the thaw: %v", name, err)
		}
	}
	if res, err := h.Check(t.Context(), sandbox.CheckRequest{ReadData: true}); err != nil || len(res.Problems) > 0 {
		t.Errorf("check: %+v, %v", res, err)
	}
}
