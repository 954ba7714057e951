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

	"snapfs/bench/internal/corpora/corporatest"
	"snapfs/bench/internal/program"
	"snapfs/bench/internal/report"
	"snapfs/bench/internal/scratch"
	"snapfs/bench/internal/suite"
	"snapfs/bench/internal/usage"
	"snapfs/internal/testseed"
)

// buildBench builds this program once for a test.
func buildBench(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "bench")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	require.NoError(t, program.Run(ctx, "go", "build", "-o", bin, "."))
	return bin
}

func TestUsage(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"storage", "--subject", "rsync"}, "there are: borg zstd"},
		{[]string{"storage", "--corpus", "C9"}, "there are: C1, C2, C3, C4, C5, C6"},
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
			e := &suite.Env{Guard: &scratch.Guard{}}
			err := run(t.Context(), e, append(c.args, "--cache", filepath.Join(t.TempDir(), "cache")))
			require.ErrorAs(t, err, new(usage.Error))
			require.ErrorContains(t, err, c.want)
			require.Equal(t, exitUsage, exitCode(t.Context(), err))
		})
	}
}

// TestRun runs the program on two small trees with every peer, and what it writes.
func TestRun(t *testing.T) {
	h := corporatest.Tiny(t)
	dir := t.TempDir()
	cache, out := filepath.Join(dir, "cache"), filepath.Join(dir, "out")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	bin := buildBench(t)
	base := []string{"storage", "--cache", cache, "--out", out, "--tree", h.States[0], h.States[1], h.States[2]}
	printed, err := program.Output(
		ctx,
		bin,
		append(base, "--subject", "snapfs,snapfs create,git gc,tar gzip of changes")...)
	require.NoError(t, err)
	r, err := report.Load(filepath.Join(out, "storage.json"))
	require.NoError(t, err)
	require.Equal(t, []string{"tree/snapfs", "tree/snapfs create", "tree/git gc", "tree/tar gzip of changes"}, r.Whole)
	require.NotEmpty(t, r.Digests["tree"])
	require.NotEmpty(t, r.Machine.Kernel)
	require.NotEmpty(t, r.Machine.Programs["git"])
	require.False(t, r.Date.IsZero())
	require.Contains(t, string(printed), "verified states")
	require.Contains(t, string(printed), "note: tar gzip of changes: deleting states is not offered")
	for _, s := range []string{"snapfs", "git gc"} {
		m, ok := report.ValueOf(r.Metrics, s, "verified")
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
	printed, err = program.Setup{Env: []string{"PATH=" + path}}.Output(
		ctx,
		bin,
		append(base, "--resume", "--subject", "git gc,git repack,restic max", "--against", out)...)
	require.NoError(t, err)
	require.Contains(
		t, string(printed),
		"note: restic max: not measured, missing restic (make bench-peers installs Debian's restic)",
	)
	require.Contains(t, string(printed), "0 of")
	r, err = report.Load(filepath.Join(out, "storage.json"))
	require.NoError(t, err)
	require.Contains(t, r.Whole, "tree/git repack")
	require.Contains(t, r.Whole, "tree/snapfs")
	require.Len(t, r.Earlier, 1)
}

func thereIs(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// requireNothingLeft looks for what a run must not leave: mounts, loop devices, processes, scratch.
func requireNothingLeft(t *testing.T, dir, cache string) {
	t.Helper()
	mounts, err := scratch.MountsBelow(dir)
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
			require.NotContains(t, string(text), scratch.Mark+"="+dir, path)
		}
	}
	left, err := filepath.Glob(filepath.Join(cache, "*-*"))
	require.NoError(t, err)
	require.Empty(t, left, "scratch")
}

// TestInterrupt: SIGINT at any moment ends everything, and so does a second one, at once.
func TestInterrupt(t *testing.T) {
	h := corporatest.Tiny(t)
	bin := buildBench(t)
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
		cmd := exec.Command(
			bin, "storage", "--cache", cache, "--out", filepath.Join(dir, "out"), "--subject",
			subjects[i%len(subjects)], "--tree", h.States[0], h.States[1], h.States[2],
		)
		var stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stderr, &stderr
		cmd.WaitDelay = time.Minute
		require.NoError(t, cmd.Start())
		// The directory is made at the very start; the signals come at any time of the two seconds after.
		for begin := time.Now(); time.Since(begin) < time.Minute && !thereIs(cache); {
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
	h := corporatest.Tiny(t)
	bin := buildBench(t)
	dir := t.TempDir()
	cache := filepath.Join(dir, "cache")
	args := []string{
		"storage", "--cache", cache, "--out", filepath.Join(dir, "out"), "--subject", "btrfs zstd", "--tree",
		h.States[0], h.States[1],
	}
	cmd := exec.Command(bin, args...)
	require.NoError(t, cmd.Start())
	for begin := time.Now(); time.Since(begin) < 2*time.Minute; time.Sleep(5 * time.Millisecond) {
		if mounts, err := scratch.MountsBelow(dir); err != nil || len(mounts) > 0 {
			require.NoError(t, err)
			break
		}
	}
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	require.NoError(
		t,
		program.Run(
			ctx, bin, "storage", "--cache", cache, "--out", filepath.Join(dir, "out"), "--subject", "git gc", "--tree",
			h.States[0], h.States[1],
		),
	)
	requireNothingLeft(t, dir, cache)
}
