package e2e

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestReload: SIGHUP and the verb reload open the log anew and take new limits. The mount and an open file in it stay.
func TestReload(t *testing.T) {
	h := newHome(t)
	h.ok("up", "ws", h.path("ws"))
	pid := h.pid()
	file, err := os.Create(h.path("ws/open"))
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	h.ok("snapshot", "ws")

	log, old := filepath.Join(h.dir, "daemon.log"), filepath.Join(h.dir, "daemon.log.old")
	require.NoError(t, os.Rename(log, old))
	h.write("home/daemon.toml", "max-snapshots = 1\n")
	require.NoError(t, unix.Kill(pid, unix.SIGHUP))
	for range 1200 {
		if strings.Contains(h.log(), "msg=reloaded") {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	require.Contains(t, h.log(), "max-snapshots=1")
	h.fails(4, "the limit is 1", "snapshot", "ws")

	h.write("home/daemon.toml", "max-snapshots = 2\nevents-age = \"soon\"\n")
	h.fails(2, "events-age = soon: want a duration", "reload")
	h.fails(4, "the limit is 1", "snapshot", "ws")
	h.write("home/daemon.toml", "max-snapshot = 2\n")
	h.fails(2, `unknown setting "max-snapshot"`, "reload")
	h.write("home/daemon.toml", "max-snapshots = 2\n")
	h.ok("reload")
	h.ok("snapshot", "ws")

	_, err = file.WriteString("still there")
	require.NoError(t, err)
	require.Equal(t, "still there", h.read("ws/open"))
	require.Equal(t, pid, h.pid())

	// What the file says also holds for the next daemon, unless the environment says otherwise.
	require.NoError(t, file.Close())
	h.ok("stop")
	h.fails(7, "no daemon runs", "reload")
	h.fails(4, "the limit is 2", "snapshot", "ws")
	h.ok("stop")
	h.env = append(h.env, "SNAPFS_MAX_SNAPSHOTS=3")
	h.ok("snapshot", "ws")
	h.write("home/daemon.toml", "max-snapshots = none\n")
	h.ok("stop")
	h.fails(2, "daemon.toml", "list")
}

// TestServiceManager plays the manager that makes the socket, starts the daemon when somebody connects, and is told how
// it fares. The socket outlives the daemon, and no second daemon is started beside it.
func TestServiceManager(t *testing.T) {
	h := newHome(t)
	h.makeDir("home")
	socket, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(h.dir, "daemon.sock"), Net: "unix"})
	require.NoError(t, err)
	defer func() { _ = socket.Close() }()
	fd, err := socket.File()
	require.NoError(t, err)
	defer func() { _ = fd.Close() }()
	told, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: h.path("notify"), Net: "unixgram"})
	require.NoError(t, err)
	defer func() { _ = told.Close() }()
	// next is the next message that is not of the watchdog, or the first of the watchdog.
	next := func(watchdog bool) string {
		require.NoError(t, told.SetReadDeadline(time.Now().Add(soon)))
		buf := make([]byte, 1024)
		for {
			n, err := told.Read(buf)
			require.NoError(t, err)
			if (string(buf[:n]) == "WATCHDOG=1") == watchdog {
				return string(buf[:n])
			}
		}
	}

	early := make(chan result, 1) // it waits in the socket
	go func() { early <- h.run("--verbose", "create", "ws") }()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	log := h.write("log", "")
	require.NoError(t, os.Truncate(log, 9<<20))
	start := func() *exec.Cmd {
		cmd := exec.CommandContext(ctx, "sh", "-c", `LISTEN_PID=$$ WATCHDOG_PID=$$ exec "$0" serve --log "$1"`, snapfs, log)
		cmd.Env = append(os.Environ(), h.env...)
		cmd.Env = append(cmd.Env, "LISTEN_FDS=1", "NOTIFY_SOCKET="+h.path("notify"), "WATCHDOG_USEC=300000")
		cmd.ExtraFiles = []*os.File{fd}
		cmd.WaitDelay = time.Second
		require.NoError(t, cmd.Start())
		return cmd
	}
	daemon := start()
	require.Equal(t, "READY=1", next(false))
	require.Equal(t, "WATCHDOG=1", next(true))
	r := <-early
	require.Zero(t, r.code, r.err)
	require.NotContains(t, r.err, "started daemon")
	require.Equal(t, log, decode[struct{ Log string }](h, "status").Log)
	halt(t, daemon.Process.Pid)
	h.says(7, "kill -CONT "+itoa(daemon.Process.Pid), snapfs, "list")
	require.NoError(t, daemon.Process.Signal(unix.SIGCONT))
	require.NoError(t, daemon.Process.Signal(unix.SIGHUP))
	require.Regexp(t, `^RELOADING=1\nMONOTONIC_USEC=[1-9][0-9]+\n$`, next(false))
	require.Equal(t, "READY=1", next(false))

	h.ok("stop")
	require.Equal(t, "STOPPING=1", next(false))
	require.NoError(t, daemon.Wait())
	require.FileExists(t, filepath.Join(h.dir, "daemon.sock"))
	late := make(chan result, 1)
	go func() { late <- h.run("show", "ws") }()
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd.Fd()), Events: unix.POLLIN}}, int(soon.Milliseconds()))
	require.NoError(t, err)
	require.Equal(t, 1, n, "somebody waits in the socket")
	daemon = start()
	r = <-late
	require.Zero(t, r.code, r.err)
	require.NotContains(t, r.err, "started daemon")
	require.Equal(t, "READY=1", next(false))
	require.NoError(t, daemon.Process.Signal(unix.SIGTERM))
	require.NoError(t, daemon.Wait())
	require.NoError(t, socket.Close())
	require.NoFileExists(t, log+".1") // the file is somebody else's to rotate
}
