package sandbox_test

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"snapfs/sandbox"
	"snapfs/sandbox/api"
)

// startIn starts a program, and returns when it has printed a line.
func startIn(t *testing.T, dir, name string, args ...string) (end func()) {
	t.Helper()
	c := exec.Command(name, args...)
	c.Dir = dir
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	end = func() {
		_ = in.Close() // it ends then
		_ = c.Wait()
	}
	t.Cleanup(end)
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(line, err)
	}
	return end
}

// TestKernelDetached: what keeps a mount that is in no table any more is said, and when it has ended, the next call does
// what it is asked for. A copy of a mount is mounted again.
func TestKernelDetached(t *testing.T) {
	work := t.TempDir()
	m := filepath.Join(work, "m")
	h := kernelHome(t, filepath.Join(work, "home"))
	ctx := t.Context()
	if _, err := h.Create(ctx, sandbox.CreateRequest{Name: "w"}); err != nil {
		t.Fatal(err)
	}
	mount := func() error {
		_, err := h.Mount(ctx, sandbox.MountRequest{
			Workspace: "w", Mountpoint: m, MakeMountpoint: true, MountOptions: sandbox.MountOptions{Engine: "kernel"},
		})
		return err
	}
	if err := mount(); err != nil {
		t.Fatal(err)
	}
	script(t, m, `echo 1 >"$M/one"`)
	if _, err := h.Turn(ctx, sandbox.TurnRequest{Workspace: "w"}); err != nil {
		t.Fatal(err)
	}
	script(t, m, `echo 2 >"$M/two"`)
	const hold = `echo ready; read x || true`
	for what, call := range map[string]func() error{
		"mount": mount,
		"umount": func() error {
			_, err := h.Unmount(ctx, sandbox.UnmountRequest{Workspace: "w"})
			return err
		},
		"undo": func() error {
			_, err := h.Undo(ctx, sandbox.UndoRequest{Workspace: "w"})
			if err == nil {
				_, err = h.Redo(ctx, sandbox.UndoRequest{Workspace: "w"})
			}
			return err
		},
	} {
		end := startIn(t, m, "sh", "-c", hold)
		script(t, m, `umount -l "$M"`)
		if err := call(); !errors.Is(err, sandbox.ErrConflict) || !strings.Contains(err.Error(), "programs still use") ||
			strings.Contains(err.Error(), "force") != (what == "undo") {
			t.Errorf("%s while a program is in it: %v", what, err)
		}
		end()
		if err := call(); err != nil {
			t.Errorf("%s after that: %v", what, err)
		}
		if err := mount(); err != nil {
			t.Fatal(err)
		}
		if got := script(t, m, `cd "$M"; echo *`); got != "one two\n" {
			t.Errorf("after %s it has %q", what, got)
		}
	}
	end := startIn(t, work, "unshare", "-m", "--propagation", "private", "sh", "-c", hold)
	script(t, m, `umount "$M"`)
	if err := mount(); err != nil {
		t.Error("while a mount namespace has a copy:", err)
	}
	script(t, m, `echo 3 >"$M/three"`)
	end()
	if w, err := h.Unmount(ctx, sandbox.UnmountRequest{Workspace: "w"}); err != nil || w.State != api.Unmounted {
		t.Error(w.State, err)
	}
	if err := mount(); err != nil {
		t.Fatal(err)
	}
	if got := script(t, m, `cd "$M"; echo *`); got != "one three two\n" {
		t.Errorf("after a copy it has %q", got)
	}
}

// TestKernelHomeOverlay: a home on a file system that cannot hold an upper is told so.
func TestKernelHomeOverlay(t *testing.T) {
	work := t.TempDir()
	on := filepath.Join(work, "on")
	script(t, work, `cd "$M"; mkdir on l u x`)
	opts := "lowerdir=" + filepath.Join(work, "l") + ",upperdir=" + filepath.Join(work, "u") + ",workdir=" + filepath.Join(work, "x")
	if err := unix.Mount("test", on, "overlay", 0, opts); err != nil {
		t.Fatal(os.NewSyscallError("mount", err))
	}
	t.Cleanup(func() {
		if err := unix.Unmount(on, 0); err != nil {
			t.Error(err)
		}
	})
	h := kernelHome(t, filepath.Join(on, "home"))
	t.Cleanup(func() { _ = h.Close() })
	if _, err := h.Create(t.Context(), sandbox.CreateRequest{Name: "w"}); err != nil {
		t.Fatal(err)
	}
	_, err := h.Mount(t.Context(), sandbox.MountRequest{
		Workspace: "w", Mountpoint: filepath.Join(work, "m"), MakeMountpoint: true,
		MountOptions: sandbox.MountOptions{Engine: "kernel"},
	})
	if !errors.Is(err, sandbox.ErrUnavailable) || !strings.Contains(err.Error(), "--engine fuse") {
		t.Error(err)
	}
	t.Log(err)
}

// TestKernelDeviceReused: an overlay of somebody else, which has the device number of one of ours that was unmounted, is
// left alone.
func TestKernelDeviceReused(t *testing.T) {
	work := t.TempDir()
	m := filepath.Join(work, "m")
	h := kernelHome(t, filepath.Join(work, "home"))
	ctx := t.Context()
	if _, err := h.Create(ctx, sandbox.CreateRequest{Name: "w"}); err != nil {
		t.Fatal(err)
	}
	script(t, work, `cd "$M"; mkdir m l u x`)
	t.Cleanup(func() {
		if err := unix.Unmount(m, 0); err != nil {
			t.Error("what others mounted is not there any more:", err)
		}
	})
	_, err := h.Mount(ctx, sandbox.MountRequest{
		Workspace: "w", Mountpoint: m, MountOptions: sandbox.MountOptions{Engine: "kernel"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Log(script(t, work, `cd "$M"; stat -c %d m; umount m; mount -t overlay w -o lowerdir=l,upperdir=u,workdir=x m; stat -c %d m`))
	if w, err := h.Unmount(ctx, sandbox.UnmountRequest{Workspace: "w"}); err == nil && w.State != api.Unmounted {
		t.Error(w.State)
	}
	if o, err := h.Show(ctx, sandbox.RefRequest{Ref: "w"}); err != nil || o.Workspace.State != api.Unmounted {
		t.Error(o.Workspace.State, err)
	}
}

// TestKernelDiff: a comparison with a workspace that is mounted sees what the kernel has written until then.
func TestKernelDiff(t *testing.T) {
	work := t.TempDir()
	m := filepath.Join(work, "m")
	h := kernelHome(t, filepath.Join(work, "home"))
	ctx := t.Context()
	script(t, work, `cd "$M"; mkdir -p src/d; echo a >src/d/a`)
	if _, err := h.Create(ctx, sandbox.CreateRequest{Name: "w", Source: filepath.Join(work, "src")}); err != nil {
		t.Fatal(err)
	}
	_, err := h.Mount(ctx, sandbox.MountRequest{
		Workspace: "w", Mountpoint: m, MakeMountpoint: true, MountOptions: sandbox.MountOptions{Engine: "kernel"},
	})
	if err != nil {
		t.Fatal(err)
	}
	diff := func(a, want string) {
		t.Helper()
		var all []string
		err := h.Diff(ctx, sandbox.DiffRequest{A: a}, func(c sandbox.Change) error {
			all = append(all, c.Kind+" "+c.Path)
			return nil
		})
		if got := strings.Join(all, ", "); err != nil || got != want {
			t.Errorf("changes of %s: %q, not %q: %v", a, got, want, err)
		}
	}
	script(t, m, `echo 1 >"$M/one"; rm "$M/d/a"`)
	if _, err := h.Snapshot(ctx, sandbox.SnapshotRequest{Workspace: "w", Name: "s"}); err != nil {
		t.Fatal(err)
	}
	diff("w", "")
	script(t, m, `echo 2 >"$M/d/two"; rm "$M/one"`)
	diff("w", "A d/two, D one")
	diff("w:s", "A d/two, D one")
	if _, err := h.Unmount(ctx, sandbox.UnmountRequest{Workspace: "w"}); err != nil {
		t.Fatal(err)
	}
	diff("w:s", "A d/two, D one")
}
