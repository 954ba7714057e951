package main

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"snapfs/internal/testmount"
	"snapfs/internal/testseed"
)

// program builds this program once for a test.
func program(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "bench")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	require.NoError(t, tool{}.run(ctx, "go", "build", "-o", bin, "."))
	return bin
}

func TestUsage(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"storage", "--subject", "rsync"}, "there are: borg zstd"},
		{[]string{"storage", "--corpus", "C9"}, "there are: C1, C2, C3, C4, C5"},
		{[]string{"io", "--workload", "dance"}, "there are: find cold"},
		{[]string{"nosuch"}, "unknown command"},
		{[]string{"storage", "--nosuch"}, "unknown flag"},
		{[]string{"storage", "stray"}, `unknown argument "stray"`},
		{[]string{"storage", "--tree", "/nonexistent"}, "not a directory"},
		{[]string{"storage", "--tree", ".", "--git", "."}, "exclude"},
		{[]string{"storage", "--git", ".", "--every", "0"}, "at least 1"},
		{[]string{"compare", "a"}, "accepts 2 arg"},
		{[]string{"compare", "/nonexistent/a", "/nonexistent/b"}, "no such file"},
		{[]string{"storage", "--noise", "-1"}, "negative"},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			e := &env{guard: &guard{}}
			err := run(t.Context(), e, append(c.args, "--cache", filepath.Join(t.TempDir(), "cache")))
			require.ErrorAs(t, err, new(usageError))
			require.ErrorContains(t, err, c.want)
			require.Equal(t, exitUsage, exitCode(t.Context(), err))
		})
	}
}

// oncePerRun leaves a test out of the second pass, over io_uring: it is not about mounts.
func oncePerRun(t *testing.T) {
	t.Helper()
	if os.Getenv(testmount.TransportEnv) == "uring" {
		t.Skip("done in the first pass")
	}
}

// TestNoRoom: what the disk cannot hold is not started.
func TestNoRoom(t *testing.T) {
	e := &env{work: t.TempDir()}
	err := e.roomFor([]suite{{name: "huge", space: func(*env) int64 { return 1 << 60 }}})
	require.ErrorContains(t, err, "are missing")
	require.NoError(t, e.roomFor([]suite{{name: "small"}}))
}

// TestRun runs the program on two small trees with every peer, and what it writes.
func TestRun(t *testing.T) {
	oncePerRun(t)
	h := tinyHistory(t)
	dir := t.TempDir()
	cache, out := filepath.Join(dir, "cache"), filepath.Join(dir, "out")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	bin := program(t)
	base := []string{"storage", "--cache", cache, "--out", out, "--tree", h.states[0], h.states[1], h.states[2]}
	printed, err := tool{}.output(ctx, bin, append(base, "--subject", "snapfs,snapfs create,git gc,tar gzip of changes")...)
	require.NoError(t, err)
	r, err := loadReport(filepath.Join(out, "storage.json"))
	require.NoError(t, err)
	require.Equal(t, []string{"tree/snapfs", "tree/snapfs create", "tree/git gc", "tree/tar gzip of changes"}, r.Whole)
	require.NotEmpty(t, r.Digests["tree"])
	require.NotEmpty(t, r.Machine.Kernel)
	require.NotEmpty(t, r.Machine.Programs["git"])
	require.False(t, r.Date.IsZero())
	require.Contains(t, string(printed), "verified states")
	require.Contains(t, string(printed), "note: tar gzip of changes: deleting states is not offered")
	for _, s := range []string{"snapfs", "git gc"} {
		m, ok := valueOf(r.Metrics, s, "verified")
		require.True(t, ok)
		require.InDelta(t, 3, m.Value, 0, s)
	}
	for _, theme := range []string{"light", "dark"} {
		svg, err := os.ReadFile(filepath.Join(out, "storage-"+theme+".svg"))
		require.NoError(t, err)
		require.Contains(t, string(svg), r.Machine.Kernel)
		require.Contains(t, string(svg), "git "+r.Machine.Programs["git"])
		require.Contains(t, string(svg), r.Date.Format(time.DateOnly))
	}
	requireNothingLeft(t, dir, cache)

	// It goes on with what lacks, and a missing program is named.
	path := filepath.Join(dir, "path")
	require.NoError(t, os.Mkdir(path, 0o755))
	for _, p := range []string{"git", "tar", "gzip", "rsync", "cp", "fusermount3", "go"} {
		full, err := exec.LookPath(p)
		require.NoError(t, err)
		require.NoError(t, os.Symlink(full, filepath.Join(path, p)))
	}
	printed, err = tool{env: []string{"PATH=" + path}}.output(ctx, bin, append(base, "--resume", "--subject", "git gc,git repack,restic max", "--against", out)...)
	require.NoError(t, err)
	require.Contains(t, string(printed), "note: restic max: not measured, missing restic (make bench-peers installs Debian's restic)")
	require.Contains(t, string(printed), "0 of")
	r, err = loadReport(filepath.Join(out, "storage.json"))
	require.NoError(t, err)
	require.Contains(t, r.Whole, "tree/git repack")
	require.Contains(t, r.Whole, "tree/snapfs")
	require.Len(t, r.Earlier, 1)
}

// requireNothingLeft looks for what a run must not leave: mounts, loop devices, processes, scratch.
func requireNothingLeft(t *testing.T, dir, cache string) {
	t.Helper()
	mounts, err := mountsBelow(dir)
	require.NoError(t, err)
	require.Empty(t, mounts)
	backing, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	require.NoError(t, err)
	for _, path := range backing {
		if image, err := os.ReadFile(path); err == nil {
			require.NotContains(t, string(image), dir+"/")
		}
	}
	environs, err := filepath.Glob("/proc/[0-9]*/environ")
	require.NoError(t, err)
	for _, path := range environs {
		if text, err := os.ReadFile(path); err == nil {
			require.NotContains(t, string(text), runMark+"="+dir, path)
		}
	}
	left, err := filepath.Glob(filepath.Join(cache, "*-*"))
	require.NoError(t, err)
	require.Empty(t, left, "scratch")
}

// TestInterrupt: SIGINT at any moment ends everything, and so does a second one, at once.
func TestInterrupt(t *testing.T) {
	oncePerRun(t)
	h := tinyHistory(t)
	bin := program(t)
	seed := testseed.Of(t)
	r := rand.New(rand.NewPCG(seed, 0))
	rounds := 6
	if os.Getenv("SNAPFS_LONG") != "" {
		rounds = 60
	}
	subjects := []string{"snapfs", "btrfs zstd", "borg zstd", "restic max"}
	for i := range rounds {
		dir := t.TempDir()
		cache := filepath.Join(dir, "cache")
		cmd := exec.Command(bin, "storage", "--cache", cache, "--out", filepath.Join(dir, "out"), "--subject", subjects[i%len(subjects)],
			"--tree", h.states[0], h.states[1], h.states[2])
		var stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stderr, &stderr
		cmd.WaitDelay = time.Minute
		require.NoError(t, cmd.Start())
		// The directory is made at the very start; the signals come at any time of the two seconds after.
		for begin := time.Now(); time.Since(begin) < time.Minute && missingFile(cache); {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Duration(r.IntN(1500)) * time.Millisecond)
		_ = cmd.Process.Signal(syscall.SIGINT) // it may have ended
		if i >= rounds/2 {
			time.Sleep(time.Duration(r.IntN(300)) * time.Millisecond)
			_ = cmd.Process.Signal(syscall.SIGINT)
		}
		err := wait(cmd, 3*time.Minute)
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			require.Equal(t, exitInterrupted, exit.ExitCode(), stderr.String())
		} else {
			require.NoError(t, err, stderr.String()) // it was done before the signal
		}
		requireNothingLeft(t, dir, cache)
	}
}

// wait waits for a command, and kills it after limit.
func wait(cmd *exec.Cmd, limit time.Duration) error {
	timer := time.AfterFunc(limit, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	return cmd.Wait()
}

// TestKilled: the next run removes what a killed one left.
func TestKilled(t *testing.T) {
	oncePerRun(t)
	h := tinyHistory(t)
	bin := program(t)
	dir := t.TempDir()
	cache := filepath.Join(dir, "cache")
	args := []string{"storage", "--cache", cache, "--out", filepath.Join(dir, "out"), "--subject", "btrfs zstd", "--tree", h.states[0], h.states[1]}
	cmd := exec.Command(bin, args...)
	require.NoError(t, cmd.Start())
	for begin := time.Now(); time.Since(begin) < 2*time.Minute; time.Sleep(5 * time.Millisecond) {
		if mounts, err := mountsBelow(dir); err != nil || len(mounts) > 0 {
			require.NoError(t, err)
			break
		}
	}
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	require.NoError(t, tool{}.run(ctx, bin, "storage", "--cache", cache, "--out", filepath.Join(dir, "out"), "--subject", "git gc", "--tree", h.states[0], h.states[1]))
	requireNothingLeft(t, dir, cache)
}
