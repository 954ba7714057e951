package sandbox_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"snapfs/sandbox"
	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/mountns"
)

// kernelWorkspace makes a workspace, and shows it by the kernel engine.
func kernelWorkspace(t *testing.T, h *sandbox.Home, name, at string) {
	t.Helper()
	if _, err := h.Create(t.Context(), sandbox.CreateRequest{Name: name}); err != nil {
		t.Fatal(err)
	}
	mountByKernel(t, h, name, at)
}

// kernelTurned is a home with a workspace "w" that is mounted so, after a turn that made the file f.
func kernelTurned(t *testing.T, home, at string) *sandbox.Home {
	t.Helper()
	h := kernelHome(t, home)
	kernelWorkspace(t, h, "w", at)
	script(t, at, `echo 1 >"$M/f"`)
	if _, err := h.Turn(t.Context(), sandbox.TurnRequest{Workspace: "w"}); err != nil {
		t.Fatal(err)
	}
	return h
}

func mountByKernel(t *testing.T, h *sandbox.Home, name, at string) {
	t.Helper()
	_, err := h.Mount(t.Context(), sandbox.MountRequest{
		Workspace: name, Mountpoint: at, MakeMountpoint: true, MountOptions: sandbox.MountOptions{Engine: "kernel"},
	})
	if err != nil {
		t.Fatal(err)
	}
}

// uppersOf counts the uppers of a home that have a file.
func uppersOf(t *testing.T, home, file string) int {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(home, "uppers", "*", "upper", file))
	if err != nil {
		t.Fatal(err)
	}
	return len(found)
}

// waitForgotten waits until no upper of a home has a file.
func waitForgotten(t *testing.T, home, file string) {
	t.Helper()
	for until := time.Now().Add(time.Minute); uppersOf(t, home, file) > 0; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("what a program wrote that has ended is still there")
		}
	}
}

// TestKernelForce rolls a workspace back while a program is in it. The program keeps the old tree until it ends; what it
// wrote before the rollback is kept, what it wrote after that is lost, and takes no room for longer than it lives.
func TestKernelForce(t *testing.T) {
	work := t.TempDir()
	home, m := filepath.Join(work, "home"), filepath.Join(work, "m")
	ctx := t.Context()
	h := kernelTurned(t, home, m)
	if _, err := h.Unmount(ctx, sandbox.UnmountRequest{Workspace: "w"}); err != nil {
		t.Fatal(err)
	}
	mountByKernel(t, h, "w", m) // the file is below now
	script(t, m, `echo 2 >"$M/g"`)
	out := filepath.Join(work, "out")
	end := startIn(t, m, "sh", "-c", `exec 3>>old; echo before >&3; echo ready; read x || true; echo after >&3; echo new >new; cat f old g >"`+out+`"`)
	s, err := h.Show(ctx, sandbox.RefRequest{Ref: "w"})
	if err != nil {
		t.Fatal(err)
	}
	back := sandbox.RollbackRequest{Workspace: "w", Snapshot: s.Workspace.Head}
	_, err = h.Rollback(ctx, back)
	if !errors.Is(err, sandbox.ErrConflict) || !strings.Contains(err.Error(), "(sh) with its working directory") {
		t.Errorf("without force: %v", err)
	}
	if _, err := h.Undo(ctx, sandbox.UndoRequest{Workspace: "w", Steps: 9, Force: true}); !errors.Is(err, sandbox.ErrConflict) {
		t.Error(err)
	}
	if n := uppersOf(t, home, "old"); n != 1 {
		t.Errorf("%d uppers", n)
	}
	back.Force = true
	got, err := h.Rollback(ctx, back)
	if err != nil {
		t.Fatal(err)
	}
	if has := script(t, m, `cd "$M"; stat -f -c %T .; echo *; cat f`); has != "overlayfs\nf\n1\n" {
		t.Errorf("after the rollback: %q", has)
	}
	end() // its input ends: it writes on
	if has := script(t, m, `cd "$M"; echo *`); has != "f\n" {
		t.Errorf("after the program has written: %q", has)
	}
	if got.Kept == nil {
		t.Fatal("nothing is kept of what was unsaved")
	}
	if _, err := h.Rollback(ctx, sandbox.RollbackRequest{Workspace: "w", Snapshot: got.Kept.ID}); err != nil {
		t.Fatal(err)
	}
	if has := script(t, m, `cd "$M"; echo *; cat f g old`); has != "f g old\n1\n2\nbefore\n" {
		t.Errorf("what was kept: %q", has)
	}
	if text, err := os.ReadFile(out); err != nil || string(text) != "1\nbefore\nafter\n2\n" {
		t.Errorf("the program has read %q, %v", text, err)
	}
	waitForgotten(t, home, "new")
	if _, err := h.Check(ctx, sandbox.CheckRequest{ReadData: true}); err != nil {
		t.Error(err)
	}
}

// TestKernelProbe: what tells whether an overlay has an upper writes nothing to it, and works for one with attributes of
// another lower.
func TestKernelProbe(t *testing.T) {
	work := t.TempDir()
	t.Cleanup(mountns.Enable())
	script(t, work, `cd "$M"; mkdir a b u; setfattr -n trusted.overlay.origin -v 0sAPsdAAEAAAAAAAAAAAAAAAAAAAAAOaObAIlu9rs= u`)
	look := func() string { return script(t, work, `cd "$M"; getfattr -d -m - u; stat -c %z u; ls`) }
	before := look()
	for _, lower := range []string{"a", "b"} {
		p, err := mountns.Run(t.Context(), mountns.Request{Do: mountns.InUse, Merge: &mountns.Merge{
			Source: "probe", Lower: filepath.Join(work, lower), Upper: filepath.Join(work, "u"), Work: work,
		}})
		if err != nil || p.Mounted {
			t.Errorf("over %s: %v, %v", lower, p, err)
		}
		if got := look(); got != before {
			t.Errorf("over %s it leaves %s", lower, got)
		}
	}
}

// TestKernelUnsaved: what programs have written since the last snapshot is kept when a mount is rolled back from which none
// was taken, also what they had written by FUSE before.
func TestKernelUnsaved(t *testing.T) {
	work := t.TempDir()
	m := filepath.Join(work, "m")
	h := kernelHome(t, filepath.Join(work, "home"))
	ctx := t.Context()
	kernelWorkspace(t, h, "w", m)
	unmount := func() {
		t.Helper()
		if _, err := h.Unmount(ctx, sandbox.UnmountRequest{Workspace: "w"}); err != nil {
			t.Fatal(err)
		}
	}
	script(t, m, `echo 1 >"$M/f"`)
	s, err := h.Snapshot(ctx, sandbox.SnapshotRequest{Workspace: "w", Name: "s"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ fuse, kernel, has string }{
		{"true", `echo 2 >"$M/g"`, "f g"},
		{`echo 2 >"$M/h"`, "true", "f h"},
		{`echo 2 >"$M/h"`, `echo 2 >"$M/g"`, "f g h"},
	} {
		unmount()
		if _, err := h.Mount(ctx, sandbox.MountRequest{Workspace: "w", Mountpoint: m, MountOptions: sandbox.MountOptions{Engine: "fuse"}}); err != nil {
			t.Fatal(err)
		}
		script(t, m, c.fuse)
		unmount()
		mountByKernel(t, h, "w", m)
		script(t, m, c.kernel)
		got, err := h.Rollback(ctx, sandbox.RollbackRequest{Workspace: "w", Snapshot: s.ID})
		if err != nil {
			t.Fatal(err)
		}
		if has := script(t, m, `cd "$M"; echo *`); has != "f\n" {
			t.Errorf("rolled back to %q", has)
		}
		if got.Kept == nil {
			t.Errorf("%s is not kept", c.has)
			continue
		}
		b := filepath.Join(work, "b")
		if _, err := h.Branch(ctx, sandbox.RestoreRequest{Snapshot: got.Kept.ID, Name: "b", Mountpoint: b, MakeMountpoint: true}); err != nil {
			t.Fatal(err)
		}
		if has := strings.TrimSpace(script(t, b, `cd "$M"; echo *`)); has != c.has {
			t.Errorf("%q is kept, not %q", has, c.has)
		}
		if _, err := h.Unmount(ctx, sandbox.UnmountRequest{Workspace: "b"}); err != nil {
			t.Fatal(err)
		}
		if _, err := h.Destroy(ctx, sandbox.DestroyRequest{Ref: "b", Now: true}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestKernelHolders: who holds a mount is named, and how: by calls that are refused, and by what asks for busy mounts.
func TestKernelHolders(t *testing.T) {
	work := t.TempDir()
	m := filepath.Join(work, "m")
	h := kernelHome(t, filepath.Join(work, "home"))
	ctx := t.Context()
	kernelWorkspace(t, h, "w", m)
	script(t, m, `echo 1 >"$M/f"; cp "$(command -v sleep)" "$M/prog"`)
	s, err := h.Snapshot(ctx, sandbox.SnapshotRequest{Workspace: "w", Name: "s"})
	if err != nil {
		t.Fatal(err)
	}
	const hold = `echo ready; read x || true`
	for _, c := range []struct {
		dir, want string
		detached  bool // names it also after the mount was taken away
		program   []string
	}{
		{m, "(sh) with its working directory", true, []string{"sh", "-c", hold}},
		{work, "(sh) with an open file", true, []string{"sh", "-c", "exec 5<" + m + "/f; " + hold}},
		{work, "a copy in the mount namespace of process", false, []string{"unshare", "-m", "--propagation", "private", "sh", "-c", hold}},
	} {
		end := startIn(t, c.dir, c.program[0], c.program[1:]...)
		refused := func(what string) {
			t.Helper()
			_, err := h.Rollback(ctx, sandbox.RollbackRequest{Workspace: "w", Snapshot: s.ID})
			if !errors.Is(err, sandbox.ErrConflict) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v", what, err)
			}
		}
		refused(c.want)
		busy, err := h.Busy(ctx)
		if err != nil || !slices.ContainsFunc(busy, func(b sandbox.BusyMount) bool { return b.Workspace == "w" && strings.Contains(b.By, c.want) }) {
			t.Errorf("busy: %v, %v", busy, err)
		}
		if by, err := h.UsedBy(ctx, "w"); err != nil || !strings.Contains(by, c.want) {
			t.Errorf("used by %q, %v", by, err)
		}
		if c.detached {
			script(t, m, `umount -l "$M"`)
			refused("taken away: " + c.want)
		}
		end()
		if c.detached {
			if _, err := h.Rollback(ctx, sandbox.RollbackRequest{Workspace: "w", Snapshot: s.ID}); err != nil {
				t.Fatal(err)
			}
			mountByKernel(t, h, "w", m)
		}
	}
}

// TestKernelForceLater: mounts that somebody took away, and those of an earlier process, are left to the programs that hold
// them, too. What was left to programs stays theirs when the home is opened again.
func TestKernelForceLater(t *testing.T) {
	work := t.TempDir()
	home, m := filepath.Join(work, "home"), filepath.Join(work, "m")
	ctx := t.Context()
	h := kernelTurned(t, home, m)
	const hold = `echo ready; read x || true`
	for _, reopen := range []bool{false, true} {
		script(t, m, `echo 2 >"$M/g"`)
		dir, program, how := m, hold, "its working directory"
		if reopen {
			dir, program, how = work, "exec 5<"+m+"/f; "+hold, "an open file"
		}
		end := startIn(t, dir, "sh", "-c", program)
		script(t, m, `umount -l "$M"`)
		if reopen {
			if err := h.Close(); err != nil {
				t.Fatal(err)
			}
			h = kernelHome(t, home)
		}
		if _, err := h.Undo(ctx, sandbox.UndoRequest{Workspace: "w"}); !errors.Is(err, sandbox.ErrConflict) ||
			!strings.Contains(err.Error(), "(sh) with "+how) {
			t.Errorf("without force: %v", err)
		}
		got, err := h.Undo(ctx, sandbox.UndoRequest{Workspace: "w", Force: true})
		if err != nil {
			t.Fatal(err)
		}
		if got.State != api.Unmounted || got.KeptTurn == 0 {
			t.Errorf("%s, kept turn %d", got.State, got.KeptTurn)
		}
		mountByKernel(t, h, "w", m)
		if has := script(t, m, `cd "$M"; echo *`); has != "f\n" {
			t.Errorf("it has %q", has)
		}
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
		h = kernelHome(t, home)
		if _, err := h.GC(ctx, sandbox.GCRequest{}); err != nil {
			t.Fatal(err)
		}
		if uppersOf(t, home, "g") == 0 {
			t.Error("the upper is gone that a program uses")
		}
		end()
		waitForgotten(t, home, "g")
		mountByKernel(t, h, "w", m)
	}
}
