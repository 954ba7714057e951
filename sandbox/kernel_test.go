package sandbox_test

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"snapfs/sandbox"
	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/mountns"
)

// script runs a script with $M as a mountpoint, and gives what it prints.
func script(t *testing.T, m, text string) string {
	t.Helper()
	cmd := exec.Command("sh", "-euc", text)
	cmd.Env = append(os.Environ(), "M="+m)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", text, err, out)
	}
	return string(out)
}

const listed = `cd "$M"; find . -type d -printf "%P %y %m %U %G %T@\n" , ! -type d -printf "%P %y %m %U %G %s %T@ %l %n\n" | sort; find . -type f -exec sha256sum {} + | sort -k2`

// kernelHome opens a home that logs to the test.
func kernelHome(t *testing.T, dir string) *sandbox.Home {
	t.Helper()
	t.Cleanup(mountns.Enable())
	t.Setenv("GORACE", os.Getenv("GORACE")+" atexit_sleep_ms=0") // of the processes that mount, as in package testchild
	return openHome(t, dir, sandbox.Options{Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
}

// TestKernelEngine changes a workspace by the kernel engine, and sees the same of it and its snapshots by either engine.
func TestKernelEngine(t *testing.T) {
	work := t.TempDir()
	src, m := filepath.Join(work, "src"), filepath.Join(work, "m")
	script(t, src, `mkdir -p "$M/d/e" "$M/gone"; echo one >"$M/d/one"; echo two >"$M/d/two"; echo x >"$M/gone/x"; ln "$M/d/one" "$M/d/hard"; chmod 700 "$M"; chown 1000:1000 "$M"`)
	h := kernelHome(t, filepath.Join(work, "home"))
	ctx := t.Context()
	if _, err := h.Create(ctx, sandbox.CreateRequest{Name: "w", Source: src}); err != nil {
		t.Fatal(err)
	}
	mount := func(name, at, engine string) sandbox.Workspace {
		t.Helper()
		w, err := h.Mount(ctx, sandbox.MountRequest{
			Workspace: name, Mountpoint: at, MakeMountpoint: true, MountOptions: sandbox.MountOptions{Engine: engine},
		})
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	unmount := func(name string) {
		t.Helper()
		if w, err := h.Unmount(ctx, sandbox.UnmountRequest{Workspace: name}); err != nil || w.State != api.Unmounted {
			t.Fatal(w, err)
		}
	}
	mount("w", m, "kernel")
	if got := script(t, m, `stat -f -c %T "$M"`); got != "overlayfs\n" {
		t.Fatalf("it is a mount of %s", got)
	}
	script(t, m, `cd "$M"; echo new >d/new; mv d dd; rm -r gone; echo more >>dd/one; mkdir -p a/b/c; echo q >a/b/c/f`)
	s1, err := h.Snapshot(ctx, sandbox.SnapshotRequest{Workspace: "w", Name: "one"})
	if err != nil {
		t.Fatal(err)
	}
	was := script(t, m, listed)
	s2, err := h.Snapshot(ctx, sandbox.SnapshotRequest{Workspace: "w", Name: "same"})
	if err != nil || !s2.Unchanged || s2.Layers[0].ID != s1.Layers[0].ID {
		t.Fatal(s2, err)
	}
	script(t, m, `cd "$M"; echo later >dd/later; rm dd/two; mkdir gone; mv a/b dd/b`)
	var diff []string
	if _, err := h.Snapshot(ctx, sandbox.SnapshotRequest{Workspace: "w", Name: "three"}); err != nil {
		t.Fatal(err)
	}
	err = h.Diff(ctx, sandbox.DiffRequest{A: "w:three", Parent: true}, func(c sandbox.Change) error {
		diff = append(diff, c.Kind+" "+c.Path)
		return nil
	})
	if got := strings.Join(diff, ", "); err != nil || got != "R dd/b, A dd/later, D dd/two, A gone" {
		t.Errorf("changes since the snapshot before: %s, %v", got, err)
	}
	b := filepath.Join(work, "b")
	if _, err := h.Branch(ctx, sandbox.RestoreRequest{Snapshot: "w:one", Name: "b", Mountpoint: b, MakeMountpoint: true}); err != nil {
		t.Fatal(err)
	}
	if got := script(t, b, listed); got != was {
		t.Errorf("branch by FUSE:\n%s\nwas\n%s", got, was)
	}
	unmount("b")
	for _, name := range []string{"k1", "k2"} {
		_, err := h.Branch(ctx, sandbox.RestoreRequest{
			Snapshot: "w:one", Name: name, Mountpoint: b + name, MakeMountpoint: true,
			MountOptions: sandbox.MountOptions{Engine: "kernel"},
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := script(t, b+name, listed); got != was {
			t.Errorf("branch by the kernel:\n%s\nwas\n%s", got, was)
		}
	}
	for _, name := range strings.Fields(script(t, filepath.Join(work, "home"), `ls "$M/mnt"`)) {
		if _, err := h.Unmount(ctx, sandbox.UnmountRequest{Workspace: name}); !errors.Is(err, sandbox.ErrConflict) {
			t.Errorf("what workspaces stand on can be unmounted: %v", err)
		}
		_, err := h.Fork(ctx, sandbox.ForkRequest{Workspace: name, Name: "f"})
		if !errors.Is(err, sandbox.ErrConflict) || strings.Contains(err.Error(), "snapshot") {
			t.Errorf("a fork of what workspaces stand on: %v", err)
		}
	}
	now := script(t, m, listed)
	unmount("w")
	mount("w", m, "fuse")
	if got := script(t, m, listed); got != now {
		t.Errorf("by FUSE:\n%s\nwas\n%s", got, now)
	}
	diff = nil
	err = h.Diff(ctx, sandbox.DiffRequest{A: "w"}, func(c sandbox.Change) error {
		diff = append(diff, c.Kind+" "+c.Path)
		return nil
	})
	if err != nil || len(diff) > 0 {
		t.Error(err, diff)
	}
	unmount("w")
	mount("w", m, "kernel")
	if got := script(t, m, listed); got != now {
		t.Errorf("by the kernel again:\n%s\nwas\n%s", got, now)
	}
	cat := exec.Command("sleep", "100")
	cat.Dir = m
	if err := cat.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Unmount(ctx, sandbox.UnmountRequest{Workspace: "w"}); !errors.Is(err, sandbox.ErrConflict) {
		t.Error(err)
	} else {
		t.Log(err)
	}
	_ = cat.Process.Kill()
	_ = cat.Wait()
	unmount("w")
	unmount("k1")
	unmount("k2")
	if out := script(t, "", "grep "+work+" /proc/mounts || true"); out != "" {
		t.Error(out)
	}
}

// TestKernelEnds has kernel mounts end in all ways.
func TestKernelEnds(t *testing.T) {
	work := t.TempDir()
	m := filepath.Join(work, "m")
	home := filepath.Join(work, "home")
	h := kernelHome(t, home)
	ctx := t.Context()
	if _, err := h.Create(ctx, sandbox.CreateRequest{Name: "w"}); err != nil {
		t.Fatal(err)
	}
	mount := func() {
		t.Helper()
		_, err := h.Mount(ctx, sandbox.MountRequest{
			Workspace: "w", Mountpoint: m, MakeMountpoint: true, MountOptions: sandbox.MountOptions{Engine: "kernel"},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	state := func() api.WorkspaceState {
		t.Helper()
		o, err := h.Show(ctx, sandbox.RefRequest{Ref: "w"})
		if err != nil {
			t.Fatal(err)
		}
		return o.Workspace.State
	}
	ends := func() {
		t.Helper()
		for end := time.Now().Add(30 * time.Second); state() != api.Unmounted; time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("still ", state())
			}
		}
	}
	holder := func() (end func()) {
		t.Helper()
		c := exec.Command("sleep", "1000")
		c.Dir = m
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		return func() { _ = c.Process.Kill(); _ = c.Wait() }
	}
	has := func(want string) {
		t.Helper()
		if got := script(t, m, `cd "$M"; echo *`); strings.TrimSpace(got) != want {
			t.Errorf("it has %q, not %q", got, want)
		}
	}
	mount()
	script(t, m, `echo 1 >"$M/one"; umount "$M"`)
	ends()
	mount()
	has("one")
	script(t, m, `echo 2 >"$M/two"`)
	end := holder()
	script(t, m, `umount -l "$M"`)
	if s := state(); s != api.Detached {
		t.Errorf("while a program is in it: %s", s)
	}
	if _, err := h.Mount(ctx, sandbox.MountRequest{Workspace: "w", Mountpoint: m}); !errors.Is(err, sandbox.ErrConflict) {
		t.Errorf("mounted again while a program is in it: %v", err)
	}
	if _, err := h.Destroy(ctx, sandbox.DestroyRequest{Ref: "w"}); !errors.Is(err, sandbox.ErrConflict) {
		t.Errorf("destroyed while a program is in it: %v", err)
	}
	end()
	ends()
	mount()
	has("one two")
	script(t, m, `echo 3 >"$M/three"`)
	end = holder()
	if err := h.Close(); err != nil {
		t.Error("closing while a program is in it:", err)
	}
	h = kernelHome(t, home)
	if _, err := h.Mount(ctx, sandbox.MountRequest{Workspace: "w", Mountpoint: m}); !errors.Is(err, sandbox.ErrConflict) {
		t.Errorf("mounted again by another process while a program is in it: %v", err)
	}
	end()
	if _, err := h.Mount(ctx, sandbox.MountRequest{Workspace: "w", Mountpoint: m, MakeMountpoint: true}); err != nil {
		t.Fatal(err)
	}
	has("one three two")
	if _, err := h.Unmount(ctx, sandbox.UnmountRequest{Workspace: "w"}); err != nil {
		t.Fatal(err)
	}
	mount()
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	h = kernelHome(t, home)
	mount()
	has("one three two")
}

// TestKernelRollback moves the tree of a kernel mount.
func TestKernelRollback(t *testing.T) {
	work := t.TempDir()
	m := filepath.Join(work, "m")
	h := kernelHome(t, filepath.Join(work, "home"))
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
	script(t, m, `echo 1 >"$M/f"`)
	if _, err := h.Snapshot(ctx, sandbox.SnapshotRequest{Workspace: "w", Name: "all"}); err != nil {
		t.Fatal(err)
	}
	r, err := h.Rollback(ctx, sandbox.RollbackRequest{Workspace: "w", Snapshot: "w:all"})
	if err != nil || r.Kept != nil {
		t.Errorf("a rollback to what it has keeps %+v, %v", r.Kept, err)
	}
	for i := range 2 {
		if _, err := h.Turn(ctx, sandbox.TurnRequest{Workspace: "w"}); err != nil {
			t.Fatal(err)
		}
		script(t, m, fmt.Sprintf(`echo %d >"$M/f"`, i+2))
	}
	f, err := os.Open(filepath.Join(m, "f"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Undo(ctx, sandbox.UndoRequest{Workspace: "w", Steps: 2}); !errors.Is(err, sandbox.ErrConflict) {
		t.Errorf("an undo while a file is open: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Undo(ctx, sandbox.UndoRequest{Workspace: "w", Steps: 2}); err != nil {
		t.Fatal(err)
	}
	if got := script(t, m, `cat "$M/f"; stat -f -c %T "$M"`); got != "1\noverlayfs\n" {
		t.Errorf("after an undo: %q", got)
	}
	if _, err := h.Redo(ctx, sandbox.UndoRequest{Workspace: "w", Steps: 2}); err != nil {
		t.Fatal(err)
	}
	if got := script(t, m, `cat "$M/f"`); got != "3\n" {
		t.Errorf("after a redo: %q", got)
	}
	for what, call := range map[string]func() error{
		"quota": func() error {
			size := int64(1 << 30)
			_, err := h.SetQuota(ctx, sandbox.QuotaRequest{Workspace: "w", Size: &size})
			return err
		},
		"pause": func() error { _, err := h.Pause(ctx, sandbox.PauseRequest{Workspace: "w"}); return err },
	} {
		if err := call(); !errors.Is(err, sandbox.ErrConflict) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestKernelLinkCounts: a snapshot counts the directories that are left at the top, whatever FUSE has noted of it before.
func TestKernelLinkCounts(t *testing.T) {
	work := t.TempDir()
	m, b := filepath.Join(work, "m"), filepath.Join(work, "b")
	h := kernelHome(t, filepath.Join(work, "home"))
	ctx := t.Context()
	script(t, work, `mkdir -p "$M/src/1" "$M/src/2" "$M/src/3"`)
	if _, err := h.Create(ctx, sandbox.CreateRequest{Name: "w", Source: filepath.Join(work, "src")}); err != nil {
		t.Fatal(err)
	}
	for _, engine := range []string{"fuse", "kernel"} {
		if _, err := h.Unmount(ctx, sandbox.UnmountRequest{Workspace: "w"}); engine != "fuse" && err != nil {
			t.Fatal(err)
		}
		_, err := h.Mount(ctx, sandbox.MountRequest{
			Workspace: "w", Mountpoint: m, MakeMountpoint: true, MountOptions: sandbox.MountOptions{Engine: engine},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	script(t, m, `rmdir "$M/1" "$M/2"; mkdir "$M/4"`)
	if _, err := h.Snapshot(ctx, sandbox.SnapshotRequest{Workspace: "w", Name: "s"}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Branch(ctx, sandbox.RestoreRequest{Snapshot: "w:s", Name: "b", Mountpoint: b, MakeMountpoint: true}); err != nil {
		t.Fatal(err)
	}
	if got := script(t, b, `stat -c %h "$M"`); got != "4\n" {
		t.Errorf("the top has %s links, not 4", strings.TrimSpace(got))
	}
}

// TestKernelOddHome has a home whose path has what options of mounts give a meaning, and beside it what the path is
// without that.
func TestKernelOddHome(t *testing.T) {
	work := t.TempDir()
	m, home := filepath.Join(work, "m"), filepath.Join(work, `o\d,d:h=o me\`)
	other := filepath.Join(work, `od,d:h=o me`, "uppers")
	h := kernelHome(t, home)
	ctx := t.Context()
	if _, err := h.Create(ctx, sandbox.CreateRequest{Name: "w"}); err != nil {
		t.Fatal(err)
	}
	for _, upper := range strings.Fields(script(t, home, `cd "$M/uppers"; echo *`)) {
		script(t, filepath.Join(other, upper), `mkdir -p "$M/upper" "$M/work"; echo >"$M/upper/other"`)
	}
	_, err := h.Mount(ctx, sandbox.MountRequest{
		Workspace: "w", Mountpoint: m, MakeMountpoint: true, MountOptions: sandbox.MountOptions{Engine: "kernel"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := script(t, m, `cd "$M"; echo 1 >one; echo *`); got != "one\n" {
		t.Errorf("it has %q", got)
	}
	if o, err := h.Show(ctx, sandbox.RefRequest{Ref: "w"}); err != nil || o.Workspace.State != api.Mounted {
		t.Error(o.Workspace, err)
	}
	if w, err := h.Unmount(ctx, sandbox.UnmountRequest{Workspace: "w"}); err != nil || w.State != api.Unmounted {
		t.Error(w.State, err)
	}
}
