package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"snapfs/sandbox"
)

func TestRun(t *testing.T) {
	h := newHome(t)
	h.write("src/file", "old\n")
	h.write("src/gone", "")

	script := "cat file; echo new > file; rm gone; mkdir d; touch d/made; exit 7"
	r := h.run("run", "--from", "src", "--", "sh", "-c", script)
	require.Equal(t, 7, r.code, r.err)
	require.Equal(t, []string{"old", "A d", "A d/made", "M file", "D gone"}, strings.Split(strings.TrimSpace(r.out), "\n"))
	require.Equal(t, "old\n", shell(t, soon, h.tmp, `cat src/file; test -e src/gone`), "the source is as it was")

	r = h.run("--json", "run", "--from", "src", "--", "sh", "-c", "echo out; touch made")
	require.Zero(t, r.code, r.err)
	var doc struct {
		Changes  []sandbox.Change `json:"changes"`
		ExitCode int              `json:"exit_code"`
	}
	require.NoError(t, json.Unmarshal([]byte(r.out), &doc), r.out)
	require.Len(t, doc.Changes, 1)
	require.Contains(t, r.err, "out\n")

	require.Equal(t, 127, h.run("run", "--empty", "--", "no-such-program").code)
	require.Equal(t, 126, h.run("run", "--empty", "--", "/etc/passwd").code)
	require.Equal(t, 137, h.run("run", "--empty", "--", "sh", "-c", "kill -9 $$").code)
	require.Empty(t, decode[sandbox.WorkspacePage](h, "list").Workspaces)

	require.Equal(t, "A here", h.ok("run", "--empty", "--keep", "--name", "kept", "--", "touch", "here"))
	require.Equal(t, sandbox.Unmounted, h.workspace("kept").State)
	h.ok("destroy", "kept")
	require.ElementsMatch(t, []string{"home", "src"}, names(t, h.tmp))
}

// TestRunInterrupted sends signals to a run in the middle of its command: the command gets each of them, and decides; all
// is cleaned up.
func TestRunInterrupted(t *testing.T) {
	h := newHome(t)
	h.ok("create", "other") // so that a daemon is there
	for _, sig := range []unix.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGUSR1} {
		ctx, cancel := context.WithTimeout(t.Context(), soon)
		cmd := exec.CommandContext(ctx, snapfs, "run", "--empty", "--", "python3", "-c", `
import signal, sys, time
n = getattr(signal, sys.argv[1])
def again(*_):
    signal.signal(n, signal.SIG_DFL)
    print("again", flush=True)
signal.signal(n, again)
print("started", flush=True)
while True:
    time.sleep(0.02)`, unix.SignalName(sig))
		cmd.Env = append(os.Environ(), h.env...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // or a signal is taken for a key of the terminal
		cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
		cmd.WaitDelay = time.Second
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		lines := bufio.NewReader(out)
		for _, want := range []string{"started\n", "again\n"} {
			line, err := lines.ReadString('\n')
			require.NoError(t, err)
			require.Equal(t, want, line)
			require.NoError(t, cmd.Process.Signal(sig))
		}
		_ = cmd.Wait() // its code is what counts
		require.Equal(t, 128+int(sig), cmd.ProcessState.ExitCode())
		cancel()
		require.Len(t, decode[sandbox.WorkspacePage](h, "list").Workspaces, 1)
		require.Empty(t, mountsBelow(h.tmp))
	}
	r := process(t, soon, h.tmp, h.env, "nohup", snapfs, "run", "--empty", "--", "sh", "-c", `kill -HUP $PPID $$; echo lives`)
	require.Equal(t, "lives\n", r.out, r.err)
	require.Equal(t, []string{"home"}, names(t, h.tmp))
}

// TestRunLeavesChild holds that a process that stays in the workspace is named.
func TestRunLeavesChild(t *testing.T) {
	h := newHome(t)
	r := h.run("run", "--empty", "--name", "stays", "--", "sh", "-c", `setsid sleep 1000 >/dev/null 2>&1 </dev/null & until grep -qx sleep /proc/$!/comm; do :; done`)
	require.Equal(t, 4, r.code, r.err)
	require.Contains(t, r.err, "(sleep)")
	require.Contains(t, r.err, "snapfs down --destroy stays")
	pid, err := strconv.Atoi(strings.Fields(r.err[strings.Index(r.err, "by pid ")+len("by pid "):])[0])
	require.NoError(t, err)
	require.NoError(t, unix.Kill(pid, unix.SIGKILL))
	gone(t, pid)
	h.ok("umount", "stays")
	h.ok("destroy", "stays")
}

// TestInterrupt interrupts a create of a large tree: it ends soon, with 130, and nothing is there. Or it was done
// already.
func TestInterrupt(t *testing.T) {
	h := newHome(t)
	h.ok("create", "other")
	src := goSource(t)
	for _, after := range []time.Duration{5 * time.Millisecond, 100 * time.Millisecond, 400 * time.Millisecond} {
		ctx, cancel := context.WithTimeout(t.Context(), soon)
		cmd := exec.CommandContext(ctx, snapfs, "create", "cut", "--from", src)
		cmd.Env = append(os.Environ(), h.env...)
		cmd.WaitDelay = time.Second
		var errOut strings.Builder
		cmd.Stderr = &errOut
		require.NoError(t, cmd.Start())
		time.Sleep(after)
		require.NoError(t, cmd.Process.Signal(unix.SIGINT))
		_ = cmd.Wait()
		cancel()
		switch code := cmd.ProcessState.ExitCode(); code {
		case 130:
			require.Equal(t, 1, strings.Count(errOut.String(), "\n"), errOut.String())
			if h.run("show", "cut").code == 0 { // it was done when the signal came
				h.ok("destroy", "cut")
			}
			require.Len(t, decode[sandbox.WorkspacePage](h, "list").Workspaces, 1, "nothing half made")
		case 0:
			h.ok("destroy", "cut")
		default:
			// The signal may have come before the program could catch it.
			require.Equal(t, -1, code, errOut.String())
			if h.run("show", "cut").code == 0 {
				h.ok("destroy", "cut")
			}
		}
	}
	require.Empty(t, decode[sandbox.CheckResult](h, "check").Problems)
}
