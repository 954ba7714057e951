package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"snapfs/internal/testseed"
	"snapfs/sandbox"
	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/guard"
	"snapfs/sandbox/internal/mountns"
)

// Environment of a child that uses a workspace by the kernel engine in a directory, and kills itself at a point.
const (
	kernelWork  = "SNAPFS_TEST_KERNEL"
	kernelPoint = "SNAPFS_TEST_KERNEL_POINT"
)

// abandonedPoint is where a child kills itself that rolls back by force while another process is in the mount.
const abandonedPoint = "upper of the kernel abandoned"

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

// kernelLife prints each step that is done. Points that are passed while a program works are left out.
func kernelLife(work, at string) error {
	ctx := context.Background()
	mountns.Enable()
	var count, counted atomic.Int64
	h, err := sandbox.Open(ctx, filepath.Join(work, "home"), sandbox.WithPoints(sandbox.Options{}, func(point string) {
		if counted.Load() == 0 {
			return
		}
		if n := strconv.FormatInt(count.Add(1), 10); point == at || n == at {
			fmt.Println("killed " + point)
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
	m := filepath.Join(work, "m")
	run := func(text string) error {
		if out, err := exec.Command("sh", "-ec", `cd "$0"; `+text, m).CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}
	kernel := sandbox.MountOptions{Engine: api.EngineKernel}
	mount := func() error {
		_, err := h.Mount(ctx, sandbox.MountRequest{Workspace: "w", Mountpoint: m, MountOptions: kernel})
		return err
	}
	for i, step := range []func() error{
		mount,
		func() error { return run(`mv d e; echo new >e/new; rm one; sync -f .`) },
		func() error {
			_, err := h.Snapshot(ctx, sandbox.SnapshotRequest{Workspace: "w", Name: "s"})
			return err
		},
		func() error { return run(`echo later >later; sync -f .`) },
		func() error { _, err := h.Unmount(ctx, sandbox.UnmountRequest{Workspace: "w"}); return err },
		mount,
		func() error { return run(`mv later two; sync -f .`) },
		func() error {
			_, err := h.Branch(ctx, sandbox.RestoreRequest{
				Snapshot: "w:s", Name: "k", Mountpoint: filepath.Join(work, "k"), MountOptions: kernel,
			})
			return err
		},
		func() error {
			_, err := h.Rollback(ctx, sandbox.RollbackRequest{Workspace: "w", Snapshot: "s"})
			return err
		},
		func() error { return run(`echo >last; sync -f .`) },
		func() error { _, err := h.Unmount(ctx, sandbox.UnmountRequest{Workspace: "k"}); return err },
		func() error { _, err := h.Destroy(ctx, sandbox.DestroyRequest{Ref: "k"}); return err },
		h.Close,
	} {
		if kernelSteps[i+1].program {
			counted.Store(0)
		}
		if at == abandonedPoint && i == 4 { // nothing that the program has would end with an unmount
			step = func() error { return kernelAbandons(ctx, h, work) }
		}
		if err := step(); err != nil {
			return fmt.Errorf("step %d: %w", i+1, err)
		}
		fmt.Println("done", i+1)
		counted.Store(1)
	}
	return nil
}

// kernelAbandons rolls back by force while another process, whose number it leaves, is in the mount.
func kernelAbandons(ctx context.Context, h *sandbox.Home, work string) error {
	c := exec.Command("sleep", "1000")
	c.Dir = filepath.Join(work, "m")
	if err := c.Start(); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(work, "pid"), []byte(strconv.Itoa(c.Process.Pid)), 0o600); err != nil {
		return err
	}
	_, err := h.Rollback(ctx, sandbox.RollbackRequest{Workspace: "w", Snapshot: "s", Force: true})
	return err
}

// kernelSteps are the steps of a kernelLife, beginning with what is there before: what the workspace has after each.
var kernelSteps = []struct {
	has     string
	program bool // it is no step of the home
}{
	{has: "d one"},
	{has: "d one"},
	{has: "e", program: true},
	{has: "e"}, // the snapshot is there
	{has: "e later", program: true},
	{has: "e later"},
	{has: "e later"},
	{has: "e two", program: true},
	{has: "e two"},
	{has: "e"},
	{has: "e last", program: true},
	{has: "e last"},
	{has: "e last"},
	{has: "e last"},
}

// TestKernelKilled kills a process that uses the kernel engine between its steps: at points of this engine, and at some
// others, or with $SNAPFS_LONG at all.
func TestKernelKilled(t *testing.T) {
	t.Setenv("GORACE", os.Getenv("GORACE")+" atexit_sleep_ms=0") // else processes that mount keep what they found
	for _, point := range []string{"mounted", "capture committed", "upper of the kernel settled", abandonedPoint, "none"} {
		kernelKilled(t, point)
	}
	if os.Getenv("SNAPFS_LONG") != "" {
		for n := 1; kernelKilled(t, strconv.Itoa(n)) && !t.Failed(); n++ {
		}
		return
	}
	rnd := rand.New(rand.NewPCG(testseed.Of(t), 4))
	for range 12 {
		kernelKilled(t, strconv.Itoa(1+rnd.IntN(230)))
	}
}

// kernelKilled verifies what one child leaves; false if it came to its end.
func kernelKilled(t *testing.T, at string) (killed bool) {
	t.Run(at, func(t *testing.T) {
		work := t.TempDir()
		m, k, b := filepath.Join(work, "m"), filepath.Join(work, "k"), filepath.Join(work, "b")
		script(t, work, `mkdir -p "$M/src/d" "$M/m" "$M/k" "$M/b"; echo 1 >"$M/src/one"; echo 2 >"$M/src/d/two"`)
		t.Cleanup(func() { // a failed test's
			_ = unix.Unmount(m, unix.MNT_DETACH)
			_ = unix.Unmount(k, unix.MNT_DETACH)
		})
		last := 0
		child(t.Context(), t, []string{kernelWork + "=" + work, kernelPoint + "=" + at}, nil, func(line []byte, _ func()) {
			if n, ok := strings.CutPrefix(string(line), "done "); ok {
				last, _ = strconv.Atoi(n)
			} else {
				killed = true
				t.Log(string(line))
			}
		})
		if !killed && last != len(kernelSteps)-1 {
			t.Fatal("it has ended after step ", last)
		}
		home := filepath.Join(work, "home")
		h := kernelHome(t, home)
		ctx := t.Context()
		if at == abandonedPoint {
			if _, err := h.GC(ctx, sandbox.GCRequest{}); err != nil {
				t.Fatal(err)
			}
			if uppersOf(t, home, "later") != 1 {
				t.Error("the upper is gone that a program uses")
			}
			script(t, work, `kill "$(cat "$M/pid")"`)
			waitForgotten(t, home, "later")
		}
		fuse := sandbox.MountOptions{Engine: api.EngineFUSE}
		if _, err := h.Mount(ctx, sandbox.MountRequest{Workspace: "w", Mountpoint: m, MountOptions: fuse}); err != nil {
			t.Fatal(err)
		}
		next := min(last+1, len(kernelSteps)-1)
		got := strings.TrimSpace(script(t, m, `cd "$M"; echo *`))
		if got != kernelSteps[last].has && got != kernelSteps[next].has {
			t.Errorf("after step %d it has %q", last, got)
		}
		_, err := h.Branch(ctx, sandbox.RestoreRequest{Snapshot: "w:s", Name: "b", Mountpoint: b})
		switch {
		case errors.Is(err, sandbox.ErrNotFound) && last < 3:
		case err != nil:
			t.Error(err)
		default:
			if got := script(t, b, `cd "$M"; echo *; cat e/two e/new`); got != "e\n2\nnew\n" {
				t.Errorf("the snapshot has %q", got)
			}
		}
		if _, err := h.Check(ctx, sandbox.CheckRequest{ReadData: true}); err != nil {
			t.Error(err)
		}
		for _, name := range []string{"w", "b", "k"} {
			_, err := h.Unmount(ctx, sandbox.UnmountRequest{Workspace: name})
			if err != nil && !errors.Is(err, sandbox.ErrNotFound) && (name != "k" || !errors.Is(err, sandbox.ErrConflict)) {
				t.Error(err) // k may have been unmounted before
			}
		}
		if left := script(t, work, `ls "$M/home/mnt"; grep "$M" /proc/mounts || true`); left != "" {
			t.Errorf("what is left: %q", left)
		}
	})
	return killed
}

// TestKernelLowerLeft: the directory of a lower that a crash has left goes when the home is opened.
func TestKernelLowerLeft(t *testing.T) {
	home := filepath.Join(t.TempDir(), "home")
	if err := kernelHome(t, home).Close(); err != nil {
		t.Fatal(err)
	}
	left := sandbox.ServiceMountpoint(home, "kernel-lower-0123")
	if err := os.MkdirAll(left, 0o700); err != nil {
		t.Fatal(err)
	}
	other := sandbox.ServiceMountpoint(home, "other")
	if err := os.Mkdir(other, 0o700); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(left)
	if err != nil {
		t.Fatal(err)
	}
	if err := guard.Set(left, info.Sys().(*syscall.Stat_t).Ino); err != nil && !errors.Is(err, guard.ErrUnsupported) {
		t.Fatal(err)
	}
	kernelHome(t, home)
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Error("it is still there: ", err)
	}
	if _, err := os.Stat(other); err != nil {
		t.Error(err)
	}
}
