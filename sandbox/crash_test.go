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
	"testing"
	"time"

	"snapfs/internal/testseed"
	"snapfs/sandbox"
)

// Environment of child processes.
const (
	crashHome = "SNAPFS_TEST_CRASH"
	openEnv   = "SNAPFS_TEST_OPEN"
)

// crashChild turns this process into one that works in a home until it is killed, or that only opens one.
func crashChild() {
	if dir, ok := os.LookupEnv(openEnv); ok {
		h, err := sandbox.Open(context.Background(), dir, sandbox.Options{})
		if err == nil {
			err = h.Close()
		}
		fmt.Println(err)
		os.Exit(0)
	}
	dir, ok := os.LookupEnv(crashHome)
	if !ok {
		return
	}
	if err := crashWork(context.Background(), dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// crashWork writes into a mounted workspace, freezes it, derives from it and deletes, for ever. Every line it prints is
// a promise: "begin N", "snap N ID" after the snapshot with contents N is acknowledged, "del ID" before one is deleted.
func crashWork(ctx context.Context, dir string) error {
	h, err := sandbox.Open(ctx, dir, sandbox.Options{Remount: true})
	if err != nil {
		return err
	}
	at := filepath.Join(filepath.Dir(dir), "m")
	if _, err = h.Create(ctx, sandbox.CreateRequest{Name: "w", Source: filepath.Join(filepath.Dir(dir), "src")}); err != nil && !errors.Is(err, sandbox.ErrConflict) {
		return err
	}
	if _, err := h.Mount(ctx, sandbox.MountRequest{Workspace: "w", Mountpoint: at, MakeMountpoint: true}); err != nil {
		return err
	}
	seed, err := strconv.ParseUint(os.Getenv("SEED"), 10, 64)
	if err != nil {
		return err
	}
	rnd := rand.New(rand.NewPCG(seed, 0))
	var ids []string
	for i := range 100000 {
		n := fmt.Sprintf("%d-%d", seed, i)
		sh := exec.CommandContext(ctx, "sh", "-ec", `echo "$2" > "$1/n"; mkdir -p "$1/d"; head -c 20000 /dev/urandom > "$1/d/$2"`, "sh", at, n)
		if out, err := sh.CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		s, err := h.Snapshot(ctx, sandbox.SnapshotRequest{Workspace: "w", WaitStored: rnd.IntN(4) == 0})
		if err != nil {
			return err
		}
		fmt.Println("snap", n, s.ID)
		ids = append(ids, s.ID)
		switch k := rnd.IntN(len(ids)); rnd.IntN(6) {
		case 0:
			w, err := h.Restore(ctx, sandbox.RestoreRequest{Snapshot: ids[k]})
			if err != nil {
				return err
			}
			if _, err := h.Destroy(ctx, sandbox.DestroyRequest{Ref: w.ID, Now: true}); err != nil {
				return err
			}
		case 1:
			fmt.Println("del", ids[k])
			if err := h.Delete(ctx, sandbox.RefRequest{Ref: ids[k]}); err != nil {
				return err
			}
			ids = append(ids[:k], ids[k+1:]...)
		case 2:
			if _, err := h.Fork(ctx, sandbox.ForkRequest{Workspace: "w"}); err != nil {
				return err
			}
		case 4:
			sh := exec.CommandContext(ctx, "sh", "-ec", `echo more > "$1/d/more"; rm -r "$1/d"`, "sh", at)
			if out, err := sh.CombinedOutput(); err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			if _, err := h.Rollback(ctx, sandbox.RollbackRequest{Workspace: "w", Snapshot: s.ID}); err != nil && !errors.Is(err, sandbox.ErrNotFound) {
				return err
			}
		case 3:
			if _, err := h.GC(ctx, sandbox.GCRequest{}); err != nil {
				return err
			}
		}
	}
	return nil
}

// TestKill kills a working process at random times; the home must open clean every time, with everything it promised.
func TestKill(t *testing.T) {
	rounds := 5
	if os.Getenv("SNAPFS_LONG") != "" {
		rounds = 60
	}
	rnd := rand.New(rand.NewPCG(testseed.Of(t), 0))
	base, err := os.MkdirTemp("", "snapfs-kill-")
	if err != nil {
		t.Fatal(err)
	}
	home, at := filepath.Join(base, "home"), filepath.Join(base, "m")
	t.Cleanup(func() {
		_ = exec.Command("umount", "-l", at).Run() // usually nothing is there
		if err := os.RemoveAll(base); err != nil {
			t.Error(err)
		}
	})
	if err := os.MkdirAll(filepath.Join(base, "src/sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	alive := map[string]string{} // acknowledged snapshots and their contents
	for round := range rounds {
		last := killedRun(t, home, rnd.Uint64N(1<<32), time.Duration(rnd.IntN(700))*time.Millisecond, alive)
		verifyHome(t, home, at, alive, last)
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
	}
}

// killedRun runs the child, kills it some time after its first word, or at once in one of eight runs, and notes its
// promises.
func killedRun(t *testing.T, home string, seed uint64, after time.Duration, alive map[string]string) (last string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	started := false
	child(ctx, t, []string{crashHome + "=" + home, "SEED=" + strconv.FormatUint(seed, 10)}, func(kill func()) {
		if seed%8 == 0 {
			time.AfterFunc(after/4, kill) // while it opens
		}
	}, func(line []byte, kill func()) {
		if !started {
			started = true
			time.AfterFunc(after, kill) // it may have ended
		}
		switch f := strings.Fields(string(line)); f[0] {
		case "snap":
			alive[f[2]], last = f[1], f[1]
		case "del":
			delete(alive, f[1])
		}
	})
	return last
}

// verifyHome opens a home after a kill and compares it with what was promised.
func verifyHome(t *testing.T, dir, at string, alive map[string]string, last string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	h, err := sandbox.Open(ctx, dir, sandbox.Options{})
	if err != nil {
		t.Errorf("open after a kill: %v", err)
		return
	}
	defer func() {
		if err := h.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}()
	res, err := h.Check(ctx, sandbox.CheckRequest{ReadData: true})
	if err != nil || len(res.Problems) > 0 {
		t.Errorf("check: %v, %+v", err, res.Problems)
	}
	if left, err := os.ReadDir(filepath.Join(dir, "lost+found")); err != nil || len(left) > 0 {
		t.Errorf("lost+found: %v, %v", left, err)
	}
	contents := func(mount func() error, umount func()) string {
		t.Helper()
		if err := mount(); err != nil {
			t.Errorf("mount: %v", err)
			return ""
		}
		defer umount()
		out, err := exec.CommandContext(ctx, "cat", at+"/n").Output()
		if err != nil {
			t.Errorf("cat: %v", err)
		}
		return strings.TrimSpace(string(out))
	}
	n := 0
	for id, want := range alive {
		if _, err := h.Show(ctx, sandbox.RefRequest{Ref: id}); err != nil {
			t.Errorf("acknowledged snapshot: %v", err)
		}
		if n++; n > 5 { // maps are in random order
			continue
		}
		var w sandbox.Workspace
		got := contents(func() error {
			var err error
			w, err = h.Restore(ctx, sandbox.RestoreRequest{Snapshot: id, Mountpoint: at})
			return err
		}, func() {
			if _, err := h.Unmount(ctx, sandbox.UnmountRequest{Workspace: w.ID}); err != nil {
				t.Error(err)
			}
			if _, err := h.Destroy(ctx, sandbox.DestroyRequest{Ref: w.ID, Now: true}); err != nil {
				t.Error(err)
			}
		})
		if got != want {
			t.Errorf("snapshot %s: got contents %q, want %q", id, got, want)
		}
	}
	if last == "" {
		return // killed before its first snapshot
	}
	got := contents(func() error {
		_, err := h.Mount(ctx, sandbox.MountRequest{Workspace: "w", Mountpoint: at})
		return err
	}, func() {
		if _, err := h.Unmount(ctx, sandbox.UnmountRequest{Workspace: "w"}); err != nil {
			t.Error(err)
		}
	})
	if got != last && !isNext(got, last) && got != "" {
		t.Errorf("the workspace: got contents %q, want %q or what comes after", got, last)
	}
}

// isNext reports whether got is what was written after last.
func isNext(got, last string) bool {
	seed, i, _ := strings.Cut(last, "-")
	n, err := strconv.Atoi(i)
	return err == nil && got == fmt.Sprintf("%s-%d", seed, n+1)
}
