package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// isFrozen reports whether the processes of a control group are.
func isFrozen(t *testing.T, group string) bool {
	t.Helper()
	if text, err := os.ReadFile(filepath.Join(group, "freezer.state")); err == nil {
		return strings.HasPrefix(string(text), "FROZEN")
	}
	text, err := os.ReadFile(filepath.Join(group, "cgroup.events"))
	require.NoError(t, err)
	return strings.Contains(string(text), "frozen 1")
}

// TestContainersPause freezes the containers that have a workspace, on plain bind mounts, and no others.
func TestContainersPause(t *testing.T) {
	h := newHome(t)
	d := newDocker(h)
	d.box()
	h.write("src/file", "from the host\n")
	h.ok("up", "ws", h.path("ws"), "--from", h.path("src"))
	h.ok("create", "other")
	h.ok("mount", "other", h.makeDir("other"))
	h.fails(4, "no container", "snapshot", "ws", "--consistent")
	// The counter is made anew each time: what a snapshot has of it is whole.
	count := `i=0; while :; do i=$((i+1)); echo $i >/workspace/new; mv /workspace/new /workspace/count; done`
	for name, dir := range map[string]string{"one": "ws", "two": "ws", "else": "other"} {
		d.ok(d.container("run", "-d", "--name", name, "-v", h.path(dir)+":/workspace", "box", "sh", "-c", count)...)
	}
	counted := func() string { return shell(t, soon, h.path("ws"), `cat count`) }
	waits := func() {
		t.Helper()
		for begin, last := time.Now(), counted(); counted() == last; time.Sleep(10 * time.Millisecond) {
			require.Less(t, time.Since(begin), time.Minute, "the containers do not go on")
		}
	}
	shell(t, soon, h.path("ws"), `until test -e count; do sleep 0.05; done`)

	h.ok("snapshot", "ws", "--consistent", "--name", "running")
	waits()
	h.ok("pause", "ws")
	groups := strings.Split(h.workspace("ws").Cgroup, "\n")
	require.Len(t, groups, 2, "two of the three containers have it")
	for _, g := range groups {
		require.True(t, isFrozen(t, g), g)
	}
	require.Equal(t, "from the host", d.in("else", `echo from the host`), "another workspace's goes on")
	before := counted()
	// They stay frozen when the daemon is killed, and are known to the next one.
	require.NoError(t, unix.Kill(h.pid(), unix.SIGKILL))
	h.ok("snapshot", "ws", "--consistent", "--name", "paused")
	require.Equal(t, before, counted())
	for _, g := range groups {
		require.True(t, isFrozen(t, g), g)
	}
	h.ok("resume", "ws")
	for _, g := range groups {
		require.False(t, isFrozen(t, g), g)
	}
	waits()
	require.Empty(t, h.workspace("ws").Cgroup, "containers come and go")

	// One that is removed while it is frozen leaves nothing that resume stumbles on.
	h.ok("pause", "ws")
	for _, g := range groups { // else SIGKILL waits
		shell(t, soon, g, `if [ -e freezer.state ]; then echo THAWED >freezer.state; else echo 0 >cgroup.freeze; fi`)
	}
	// What it was writing when it went on is held back by the pause, and its end with that.
	removed := make(chan result, 1)
	go func() { removed <- d.run("rm", "-f", "one") }()
	select {
	case r := <-removed:
		removed <- r
	case <-time.After(5 * time.Second):
	}
	h.ok("resume", "ws")
	r := <-removed
	require.Zero(t, r.code, "%s%s", r.out, r.err)
	waits()
	// Containers go on over a rollback and over another mount of the workspace's daemon.
	h.ok("rollback", "ws", "running")
	require.NoError(t, unix.Kill(h.pid(), unix.SIGKILL))
	require.Equal(t, "from the host", d.in("two", `cat /workspace/file`))
	waits()
	d.ok("rm", "-f", "two", "else")
}
