package e2e

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"snapfs/internal/testseed"
)

// served is what 'snapfs status' tells of the processes of a home.
type served struct{ PID, Holder int }

// processes are those of the home.
func (h *home) processes() served {
	h.t.Helper()
	return decode[served](h, "status")
}

// begin starts a daemon in the foreground, by a command line in a directory. It is reaped in the background.
func (h *home) begin(dir string, argv ...string) {
	h.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	h.t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = dir, append(os.Environ(), h.env...), time.Second
	require.NoError(h.t, cmd.Start())
	go func() { _ = cmd.Wait() }() // it is killed
	require.Eventually(h.t, func() bool { return h.run("status").code == 0 }, soon, 10*time.Millisecond)
}

// killed kills the daemon, and gives the one that follows.
func (h *home) killed() served {
	h.t.Helper()
	before := decode[served](h, "status")
	require.NoError(h.t, unix.Kill(before.PID, unix.SIGKILL))
	var after served
	require.Eventually(h.t, func() bool {
		after = decode[served](h, "status")
		return after.PID != before.PID
	}, soon, 10*time.Millisecond)
	return after
}

// TestKilledInside: a daemon that was started in a directory on which a workspace is mounted now, with relative paths, is started again when it is killed.
func TestKilledInside(t *testing.T) {
	h := newHome(t)
	dir := h.makeDir("work")
	h.begin(dir, complete, "--home", "../home", "serve", "--log", "../log")
	h.ok("up", "ws", dir, "--from", dir, "--transport", "dev")
	for range 2 {
		h.killed()
		h.write("work/file", "text")
		require.Equal(t, "text", h.read("work/file"))
		require.NoError(t, os.Remove(h.path("work/file"))) // the attributes of the directory are not in the kernel's cache
	}
	h.ok("stop")
	require.FileExists(t, h.path("log"))
	require.NoFileExists(t, h.path("home/daemon.log"))
}

// TestCannotStart: a daemon that cannot start leaves the mounts of the one before to the next attempt. Verbs say why it
// does not start, and programs go on when it does; 'snapfs stop' gives the mounts up.
func TestCannotStart(t *testing.T) {
	h := newHome(t)
	log := h.makeDir("logs") + "/log"
	h.begin(h.tmp, complete, "serve", "--log", log)
	h.ok("up", "ws", h.path("ws"), "--transport", "dev")
	file, err := os.Create(h.path("ws/file"))
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	broken := func() {
		pid := h.pid()
		require.NoError(t, os.Rename(log, log+".old"))
		require.NoError(t, os.Mkdir(log, 0o755))
		require.NoError(t, unix.Kill(pid, unix.SIGKILL))
		gone(t, pid)
	}
	// On a busy machine the daemon that the holder tries may not answer before it ends.
	says := func(text, verb string) (r result) {
		t.Helper()
		r = h.run(verb)
		for end := time.Now().Add(soon); strings.Contains(r.err, "does not answer within") && time.Now().Before(end); {
			r = h.run(verb)
		}
		require.Contains(t, r.err, text)
		return r
	}
	broken()
	for range 2 {
		for _, r := range []result{
			says("cannot be started again: process", "list"),
			says("log: is a directory; 1 mounts wait for it: 'snapfs stop' gives them up", "status"),
		} {
			require.Equal(t, result{7, "", strings.SplitAfter(r.err, "\n")[0]}, r, "one line")
		}
	}
	require.NoError(t, os.Remove(log))
	h.ok("list")
	_, err = file.WriteString("text")
	require.NoError(t, err)
	require.Equal(t, "text", h.read("ws/file"))
	broken()
	says("its mounts were given up", "stop")
	_, err = file.WriteString("more")
	disconnected(t, err)
	require.NoError(t, os.Remove(log))
	h.ok("list")
	require.Equal(t, "text", h.read("ws/file"))
}

// TestHolder: the holder is a process of its own, which status shows, and ends with 'snapfs stop'. One that dies is followed by
// another one. If both die, nothing is lost but what was open: the next daemon mounts again.
func TestHolder(t *testing.T) {
	h := newHome(t)
	h.ok("up", "ws", h.path("ws"), "--transport", "dev")
	h.write("ws/file", "text")
	first := decode[served](h, "status")
	require.Positive(t, first.Holder)
	require.Contains(t, h.ok("status"), itoa(first.Holder))
	require.NoError(t, unix.Kill(first.Holder, unix.SIGKILL))
	gone(t, first.Holder)
	var second served
	require.Eventually(t, func() bool {
		second = decode[served](h, "status")
		return second.Holder != 0 && second.Holder != first.Holder
	}, soon, 10*time.Millisecond)
	require.Equal(t, first.PID, second.PID)
	third := h.killed()
	require.Equal(t, second.Holder, third.Holder)
	require.Equal(t, "text", h.read("ws/file"))

	halt(t, third.PID) // it makes no other holder
	require.NoError(t, unix.Kill(third.Holder, unix.SIGKILL))
	require.NoError(t, unix.Kill(third.PID, unix.SIGKILL))
	gone(t, third.PID)
	gone(t, third.Holder)
	_, err := os.Create(h.path("ws/other"))
	disconnected(t, err)
	h.ok("list")
	require.Equal(t, "text", h.read("ws/file"))
	last := decode[served](h, "status")
	h.ok("stop")
	gone(t, last.PID)
	gone(t, last.Holder)
}

// TestCopiedWhileMounted: a home is copied while a program works in its mount. The daemon of the copy has what was written, and
// neither takes nor ends the mount; a kill of the daemon of the first is not noticed by the program.
func TestCopiedWhileMounted(t *testing.T) {
	h := newHome(t)
	h.ok("up", "ws", h.path("ws"))
	file, err := os.Create(h.path("ws/file"))
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	_, err = file.WriteString("one")
	require.NoError(t, err)
	shell(t, soon, h.tmp, `sync -f ws; cp -a home copy`)
	other := *h
	other.dir = h.path("copy")
	other.env = []string{"SNAPFS_HOME=" + other.dir, "SNAPFS_E2E=" + h.tmp, "TMPDIR=" + h.tmp}
	defer other.run("stop")
	require.Equal(t, []string{"ws"}, workspaces(&other))
	require.NotEqual(t, h.processes(), other.processes())
	other.ok("mount", "ws", h.path("other"))
	other.killed()
	h.killed()
	_, err = file.WriteString(" two")
	require.NoError(t, err)
	require.Equal(t, "one two", h.read("ws/file"))
	require.Equal(t, "one", h.read("other/file"))
	other.ok("stop")
	require.Equal(t, "one two", h.read("ws/file"))
}

// TestStopForce: 'snapfs stop --force' ends a daemon that does not answer, and a holder that does not start another one. What
// was written is there, and the next daemon mounts again.
func TestStopForce(t *testing.T) {
	h := newHome(t)
	h.ok("up", "ws", h.path("ws"), "--transport", "dev")
	h.ok("stop", "--force") // one that answers is not killed
	h.ok("list")
	for _, stops := range []func(s served){
		func(s served) { halt(t, s.PID) },
		func(s served) {
			halt(t, s.Holder)
			require.NoError(t, unix.Kill(s.PID, unix.SIGKILL))
		},
	} {
		h.write("ws/file", "text")
		s := h.processes()
		stops(s)
		require.Contains(t, h.run("stop", "--force").err, ": killed process")
		gone(t, s.PID)
		gone(t, s.Holder)
		h.ok("list")
		require.Equal(t, "text", h.read("ws/file"))
	}
}

// TestHolderStopped: the holder is stopped, and then the daemon dies. Verbs say so soon, and what lets it go on. When it does, so
// do programs.
func TestHolderStopped(t *testing.T) {
	h := newHome(t)
	h.ok("up", "ws", h.path("ws"), "--transport", "dev")
	file, err := os.Create(h.path("ws/file"))
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	s := h.processes()
	halt(t, s.Holder)
	require.NoError(t, unix.Kill(s.PID, unix.SIGKILL))
	gone(t, s.PID)
	says := "it is stopped: process " + itoa(s.Holder) + ": 'kill -CONT " + itoa(s.Holder) + "' lets it go on; 'snapfs stop --force' ends it"
	for _, verb := range []string{"list", "status", "stop", "upgrade"} {
		r := h.runFor(frozenFor, verb)
		require.Equal(t, 7, r.code, r.err)
		require.Contains(t, r.err, says)
	}
	require.NoError(t, unix.Kill(s.Holder, unix.SIGCONT))
	h.ok("list")
	_, err = file.WriteString("text")
	require.NoError(t, err)
	require.Equal(t, "text", h.read("ws/file"))
}

// TestBothKilled: daemon and holder are killed at the same moment, in either order, while a program works in a mount. It
// goes on, or what it has open is gone; what it had written is there, and the next daemon mounts again.
func TestBothKilled(t *testing.T) {
	rng := newRand(testseed.Of(t))
	h := newHome(t)
	h.ok("up", "ws", h.path("ws"), "--transport", "dev")
	for round := range rounds(6, 100) {
		name := "ws/file" + itoa(round)
		file, err := os.Create(h.path(name))
		require.NoError(t, err)
		writing, served := make(chan int, 1), make(chan struct{})
		go func() {
			written := 0
			defer func() { writing <- written }()
			for {
				select {
				case <-served:
					return
				default:
				}
				if _, err := file.WriteString("x"); err != nil {
					return
				}
				written++
			}
		}()
		s := h.processes()
		both := []int{s.PID, s.Holder}
		time.Sleep(time.Duration(rng.IntN(30)) * time.Millisecond)
		for _, i := range rng.Perm(2) {
			_ = unix.Kill(both[i], unix.SIGKILL)
		}
		h.ok("list")
		close(served)
		require.NotEqual(t, s.PID, h.pid())
		if _, err := file.Stat(); err != nil {
			require.ErrorIs(t, err, unix.ENOTCONN)
		}
		written := <-writing
		_ = file.Close() // it may be gone
		got := len(h.read(name))
		require.True(t, got == written || got == written+1, "%d bytes of %d", got, written)
	}
}
