package e2e

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"snapfs/internal/processes"
	"snapfs/internal/treewalk"
	"snapfs/sandbox"
)

// tree fills a directory with a small tree of every kind of content.
func tree(t *testing.T, dir string) {
	t.Helper()
	shell(t, soon, dir, `for i in $(seq 1 200); do mkdir -p d$((i % 10)); seq 1 $((i * 7)) > d$((i % 10))/f$i; done; head -c 3000000 /dev/urandom > big; ln -s d1 link; ln big hard`)
}

func TestRestart(t *testing.T) {
	h := newHome(t)
	h.keepsNothing()
	ws := h.path("ws")
	h.ok("create", "one")
	h.ok("mount", "one", ws)
	tree(t, ws)
	h.ok("snapshot", "one", "--name", "before")
	shell(t, soon, ws, `echo more > more; rm d3/f3`)
	now := walk(t, ws)

	for _, end := range []string{"stop", "SIGTERM", "SIGKILL"} {
		pid := h.pid()
		switch end {
		case "stop":
			h.ok("stop")
			require.Empty(t, mountsBelow(h.tmp), "stop unmounts")
		case "SIGTERM":
			require.NoError(t, unix.Kill(pid, unix.SIGTERM))
		case "SIGKILL":
			require.NoError(t, unix.Kill(pid, unix.SIGKILL))
		}
		gone(t, pid)
		h.fails(7, "no daemon", "status")
		r := h.run("show", "one")
		require.Zero(t, r.code, r.err)
		require.Contains(t, r.err, "started daemon pid", "after %s", end)
		require.NotEqual(t, pid, h.pid())
		h.ok("up", "one", ws)
		same(t, "after "+end, now, walk(t, ws), treewalk.Options{})
		restored := h.ok("restore", "before", h.path("restored"))
		shell(t, soon, h.path("restored"), `test ! -e more; test -e d3/f3`)
		h.ok("umount", restored)
		h.ok("destroy", restored)
	}
	require.Empty(t, decode[sandbox.CheckResult](h, "check", "--read-data").Problems)
}

// gone waits for the end of a process.
func gone(t *testing.T, pid int) {
	t.Helper()
	for range 2400 {
		if unix.Kill(pid, 0) != nil {
			return
		}
		if stat, err := os.ReadFile("/proc/" + itoa(pid) + "/stat"); err == nil && strings.Contains(string(stat), ") Z ") {
			return // not reaped yet
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("process %d lives", pid)
}

// halt stops a process, and waits until none of its threads runs any more.
func halt(t *testing.T, pid int) {
	t.Helper()
	require.NoError(t, unix.Kill(pid, unix.SIGSTOP))
	require.Eventually(t, func() bool {
		threads, err := filepath.Glob("/proc/" + itoa(pid) + "/task/*")
		require.NoError(t, err)
		return !slices.ContainsFunc(threads, func(dir string) bool {
			stat, ok := processes.StatOf(dir)
			return ok && stat.State != 'T'
		})
	}, soon, time.Millisecond)
}

// disconnected checks the error of a call on a mount that was just left without a server: a request that was on its way when
// the last descriptor was closed gets another one than those after it.
func disconnected(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, unix.ECONNABORTED) {
		require.ErrorIs(t, err, unix.ENOTCONN)
	}
}

// TestKillWhileStoring kills the daemon repeatedly while snapshots are being made and stored: what was
// acknowledged is there afterwards.
func TestKillWhileStoring(t *testing.T) {
	h := newHome(t)
	ws := h.path("ws")
	h.ok("up", "one", ws)
	type point struct {
		id   string
		tree []treewalk.Node
	}
	var points []point
	for round := range 4 {
		shell(t, soon, ws, `head -c 4000000 /dev/urandom > noise$1; seq 1 20000 > text; mkdir -p dir$1; for i in $(seq 1 100); do echo $1 $i > dir$1/$i; done`, itoa(round))
		points = append(points, point{h.ok("snapshot", "one"), walk(t, ws)})
		time.Sleep(time.Duration(round*40) * time.Millisecond)
		pid := h.pid()
		require.NoError(t, unix.Kill(pid, unix.SIGKILL))
		gone(t, pid)
		h.ok("up", "one", ws)
	}
	for i, p := range points {
		restored := h.ok("restore", p.id, h.path("r"+itoa(i)))
		same(t, "snapshot "+itoa(i), p.tree, walk(t, h.path("r"+itoa(i))), treewalk.Options{})
		h.ok("umount", restored)
	}
	h.ok("snapshot", "one", "--wait", "stored")
	require.Empty(t, decode[sandbox.CheckResult](h, "check", "--read-data").Problems)
}

func TestSecondDaemon(t *testing.T) {
	h := newHome(t)
	h.ok("create", "one")
	h.fails(4, h.dir, "serve")
	h.ok("show", "one")
}

// TestManyStartOne runs many commands at once on a home that has no daemon, not even a directory.
func TestManyStartOne(t *testing.T) {
	h := newHome(t)
	const n = 12
	results := make([]result, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), soon)
			defer cancel()
			cmd := exec.CommandContext(ctx, snapfs, "create", "ws"+itoa(i))
			cmd.Env = append(os.Environ(), h.env...)
			var errOut strings.Builder
			cmd.Stderr = &errOut
			cmd.WaitDelay = time.Second
			if cmd.Run() != nil {
				results[i].code = 1
			}
			results[i].err = errOut.String()
		})
	}
	wg.Wait()
	starts := 0
	for i, r := range results {
		require.Zero(t, r.code, "create ws%d: %s", i, r.err)
		starts += strings.Count(r.err, "started daemon")
	}
	require.Equal(t, 1, starts)
	require.Len(t, decode[sandbox.WorkspacePage](h, "list").Workspaces, n)
	require.Len(t, marked(h.tmp), 2, "the daemon and its holder")
}
