package sandbox_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"snapfs/sandbox"
	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/mountns"
)

// Environment of a child that uses a workspace by the kernel engine in a directory, and kills itself at a point.
const (
	kernelWork  = "SNAPFS_TEST_KERNEL"
	kernelPoint = "SNAPFS_TEST_KERNEL_POINT"
)

// kernelChild turns this process into such a child.
func kernelChild() {
	work, ok := os.LookupEnv(kernelWork)
	if !ok {
		return
	}
	if err := kernelLife(work, os.Getenv(kernelPoint)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func kernelLife(work, at string) error {
	ctx := context.Background()
	mountns.Enable()
	begun := false
	h, err := sandbox.Open(ctx, filepath.Join(work, "home"), sandbox.WithPoints(sandbox.Options{}, func(point string) {
		if begun && point == at {
			_ = unix.Kill(os.Getpid(), unix.SIGKILL)
			select {} // nothing more happens in this process
		}
	}))
	if err != nil {
		return err
	}
	if _, err := h.Create(ctx, sandbox.CreateRequest{Name: "w", Source: filepath.Join(work, "src"), WaitImported: true}); err != nil {
		return err
	}
	begun = true
	m := filepath.Join(work, "m")
	_, err = h.Mount(ctx, sandbox.MountRequest{
		Workspace: "w", Mountpoint: m, MountOptions: sandbox.MountOptions{Engine: api.EngineKernel},
	})
	if err != nil {
		return err
	}
	if out, err := exec.Command("sh", "-ec", `cd "$0"; mv d e; echo new >e/new; rm one; sync -f .`, m).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	if _, err := h.Snapshot(ctx, sandbox.SnapshotRequest{Workspace: "w", Name: "s"}); err != nil {
		return err
	}
	if out, err := exec.Command("sh", "-ec", `echo later >"$0/later"`, m).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	if _, err := h.Unmount(ctx, sandbox.UnmountRequest{Workspace: "w"}); err != nil {
		return err
	}
	return h.Close()
}

// TestKernelKilled kills a process that uses the kernel engine between its steps.
func TestKernelKilled(t *testing.T) {
	for _, c := range []struct{ point, has, snapshot string }{
		{"mounted", "d one", ""},
		{"capture committed", "e", "e"},
		{"upper of the kernel settled", "e later", "e"},
		{"none", "e later", "e"},
	} {
		t.Run(c.point, func(t *testing.T) {
			work := t.TempDir()
			m := filepath.Join(work, "m")
			script(t, work, `mkdir -p "$M/src/d" "$M/m" "$M/b"; echo 1 >"$M/src/one"; echo 2 >"$M/src/d/two"`)
			t.Cleanup(func() { _ = unix.Unmount(m, unix.MNT_DETACH) }) // a failed test's
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), kernelWork+"="+work, kernelPoint+"="+c.point)
			out, err := cmd.CombinedOutput()
			if killed := err != nil && strings.Contains(err.Error(), "killed"); !killed && c.point != "none" {
				t.Fatalf("it was not killed: %v: %s", err, out)
			} else if c.point == "none" && err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			h := kernelHome(t, filepath.Join(work, "home"))
			ctx := t.Context()
			if _, err := h.Mount(ctx, sandbox.MountRequest{Workspace: "w", Mountpoint: m, MountOptions: sandbox.MountOptions{Engine: "fuse"}}); err != nil {
				t.Fatal(err)
			}
			if got := strings.TrimSpace(script(t, m, `cd "$M"; echo *`)); got != c.has {
				t.Errorf("it has %q, not %q", got, c.has)
			}
			if c.snapshot == "" {
				return
			}
			b := filepath.Join(work, "b")
			if _, err := h.Branch(ctx, sandbox.RestoreRequest{Snapshot: "w:s", Name: "b", Mountpoint: b}); err != nil {
				t.Fatal(err)
			}
			if got := strings.TrimSpace(script(t, b, `cd "$M"; echo *; cat e/two e/new`)); got != c.snapshot+"\n2\nnew" {
				t.Errorf("the snapshot has %q", got)
			}
			if _, err := h.Check(ctx, sandbox.CheckRequest{ReadData: true}); err != nil {
				t.Error(err)
			}
		})
	}
}
