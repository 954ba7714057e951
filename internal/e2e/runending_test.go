package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"snapfs/sandbox"
)

// TestRunKeepsWork holds that a run destroys nothing for good unless it is told to.
func TestRunKeepsWork(t *testing.T) {
	h := newHome(t)
	src := h.makeDir("src")
	h.ok("create", "other") // so that a daemon is there
	kept := func(name string) {
		t.Helper()
		require.Equal(t, sandbox.Unmounted, h.workspace(name).State)
		require.Equal(t, "work", h.ok("cat", name+":made"))
		h.ok("destroy", name, "--now")
	}

	// The terminal is closed while the command runs.
	c := openTerminal(t, h, src, snapfs, "run", "--name", "hung", "--", "sh", "-c", "echo work > made; echo ready; exec sleep 1000")
	c.until("ready")
	require.NoError(t, c.pty.Close())
	require.Equal(t, 129, c.ends())
	kept("hung")

	// The question is asked though streams are redirected, and a key at it destroys nothing.
	c = openTerminal(t, h, src, "sh", "-c", `echo work | "$0" run --name asked -- sh -c 'cat > made' 2>../err`, snapfs)
	c.until("[a/k/d] ")
	c.send("k\n")
	require.Zero(t, c.ends())
	require.Contains(t, h.read("err"), "'snapfs diff asked', 'snapfs apply asked', 'snapfs destroy asked'")
	kept("asked")
	c = openTerminal(t, h, src, snapfs, "run", "--name", "quit", "--", "sh", "-c", "echo work > made; exit 3")
	c.until("[a/k/d] ")
	c.send("\x1c")
	require.Equal(t, 3, c.ends())
	kept("quit")

	// Nobody can be asked.
	in := func(args ...string) (got struct{ Snapshot string }) {
		r := process(t, soon, src, h.env, append([]string{snapfs, "--json", "run"}, args...)...)
		require.Zero(t, r.code, r.err)
		require.NoError(t, json.Unmarshal([]byte(r.out), &got), r.out)
		return got
	}
	h.ok("create", "back", "--from", in("--", "sh", "-c", "echo work > made").Snapshot)
	kept("back")
	require.Empty(t, in("--discard", "--", "touch", "made").Snapshot)
	require.Empty(t, in("--", "true").Snapshot)
	r := process(t, soon, src, h.env, snapfs, "run", "--", "touch", "made")
	require.Contains(t, r.err, "brings it back")

	// The reader of what it prints has gone.
	read, write, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, read.Close())
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	cmd := exec.CommandContext(ctx, snapfs, "run", "--discard", "--", "touch", "made")
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.WaitDelay = src, append(os.Environ(), h.env...), write, time.Second
	require.NoError(t, cmd.Run())
	require.NoError(t, write.Close())

	// Who kills snapfs itself ends the command, and finds the workspace.
	for _, flag := range []string{"--from=.", "--empty"} { // in namespaces, and without
		cmd = exec.CommandContext(ctx, snapfs, "run", "--name", "killed", flag, "--", "sh", "-c", "echo work > made; echo $$; exec sleep 1000")
		cmd.Dir, cmd.Env, cmd.WaitDelay = src, append(os.Environ(), h.env...), time.Second
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		line, err := bufio.NewReader(out).ReadString('\n')
		require.NoError(t, err)
		pid, err := strconv.Atoi(strings.TrimSpace(line))
		require.NoError(t, err)
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait() // it was killed
		gone(t, pid)
		_ = h.run("down", "killed") // what is left of the command's namespace may use it for a moment
		require.Eventually(t, func() bool { return h.workspace("killed").State == sandbox.Unmounted }, soon, 20*time.Millisecond)
		kept("killed")
	}

	require.Len(t, decode[sandbox.WorkspacePage](h, "list").Workspaces, 1)
	require.Empty(t, mountsBelow(h.tmp))
	require.ElementsMatch(t, []string{"home", "src", "err"}, names(t, h.tmp))
}
