package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// laterVersion builds the programs as version v2, once for all tests: the client, with the engine beside it.
var laterVersion = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(filepath.Dir(snapfs), "v2")
	for file, pkg := range map[string]string{"snapfs": "snapfs/cmd/snapfs-client", "snapfs-engine": "snapfs/cmd/snapfs"} {
		build := exec.Command("go", "build", "-ldflags", "-X main.version=v2", "-o", filepath.Join(dir, file), pkg)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%w: %s", err, out)
		}
	}
	return filepath.Join(dir, "snapfs"), nil
})

// TestUpgrade replaces a daemon by one of another version: not while a mount is in use, unless it is forced to. Other
// commands wait meanwhile, and the process stays.
func TestUpgrade(t *testing.T) {
	h := newHome(t)
	h.keepsNothing()
	h.ok("upgrade") // no daemon runs
	h.ok("up", "one", h.path("one"))
	h.ok("up", "two", h.path("two"))
	h.ok("upgrade")
	h.write("one/file", "text\n")
	pid := h.pid()
	type status struct{ Version, Protocol string }
	require.Equal(t, status{"devel", "1-4"}, decode[status](h, "status"))

	later, err := laterVersion()
	require.NoError(t, err)
	h.command = h.place(later, "prefix/bin/snapfs")
	h.place(later+"-engine", "prefix/libexec/snapfs/snapfs-engine")
	r := h.run("list")
	require.Zero(t, r.code)
	require.Contains(t, r.err, "the daemon is of version devel, this command of version v2; 'snapfs upgrade' replaces")
	require.Empty(t, h.run("--quiet", "list").err)

	sleeper := exec.Command("sleep", "1000")
	sleeper.Dir = h.path("two")
	require.NoError(t, sleeper.Start())
	defer func() { _ = sleeper.Wait() }() // it is killed
	defer func() { _ = sleeper.Process.Kill() }()
	h.fails(4, "two at "+h.path("two")+" by process "+itoa(sleeper.Process.Pid)+" (sleep)", "upgrade")
	require.Equal(t, "devel", decode[status](h, "status").Version)
	require.NoError(t, sleeper.Process.Kill())
	_ = sleeper.Wait() // killed

	stop, calls := make(chan struct{}), make(chan result, 1)
	go func() { // the first call that fails, or the last
		for {
			r := h.run("--quiet", "show", "one")
			select {
			case <-stop:
				calls <- r
				return
			default:
			}
			if r.code != 0 {
				calls <- r
				return
			}
		}
	}()
	u := decode[struct {
		Upgraded bool
		From, To string
		Mounts   int
	}](h, "upgrade")
	close(stop)
	r = <-calls
	require.Zero(t, r.code, r.err)
	require.True(t, u.Upgraded)
	require.Equal(t, []any{"devel", "v2", 2}, []any{u.From, u.To, u.Mounts})
	require.Equal(t, "v2", decode[status](h, "status").Version)
	require.Equal(t, pid, h.pid())
	require.Equal(t, "text\n", h.read("one/file"))
	require.Empty(t, h.run("list").err)
	h.ok("reload") // it has its log

	// By force, and once more: the process has had two successors.
	open, err := os.OpenFile(h.path("one/file"), os.O_RDWR, 0)
	require.NoError(t, err)
	defer func() { _ = open.Close() }()
	h.ok("upgrade", "--force")
	_, err = open.WriteString("lost")
	disconnected(t, err)
	require.Equal(t, "text\n", h.read("one/file"))
	require.Equal(t, pid, h.pid())
	require.NoError(t, unix.Kill(pid, unix.SIGHUP))
	h.ok("umount", "two")
	h.ok("stop")
	require.NoFileExists(t, filepath.Join(h.dir, "daemon.sock"))
	gone(t, pid)
	require.Empty(t, mountsBelow(h.tmp))

	// A program that does not run leaves the daemon as it is.
	h.ok("list")
	require.NoError(t, os.Remove(h.path("prefix/libexec/snapfs/snapfs-engine")))
	require.NoError(t, os.WriteFile(h.path("prefix/libexec/snapfs/snapfs-engine"), []byte("no program"), 0o755))
	h.fails(1, "does not run", "upgrade", "--force")
	require.Equal(t, "v2", decode[status](h, "status").Version)
}
