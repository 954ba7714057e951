package e2e

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// served is what 'snapfs status' tells of the processes of a home.
type served struct{ PID, Holder int }

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
	h := newKeptHome(t)
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
