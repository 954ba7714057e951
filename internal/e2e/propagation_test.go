package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"snapfs/sandbox/api"
)

// TestContainerPropagation: which mounts of the host come to a container that runs, and which of the container to the
// host, for each way to share them that docs/containers.md tells of. No container has a privilege but the one that mounts.
func TestContainerPropagation(t *testing.T) {
	h := newHome(t)
	p := newPodman(h, filepath.Join(h.tmp, "none.sock"))
	p.ok("import", "--change", "ENV=PATH=/bin", boxArchive(h), "box")
	ws, app, later := h.makeDir("ws"), h.path("ws/app"), h.path("ws/later")
	require.NoError(t, unix.Mount(ws, ws, "", unix.MS_BIND, ""))
	t.Cleanup(func() { require.NoError(t, unix.Unmount(ws, unix.MNT_DETACH)) })
	require.NoError(t, unix.Mount("", ws, "", unix.MS_SHARED, ""))
	h.write("src/file", "one\n")
	h.ok("up", "app", app, "--from", h.path("src"))
	for name, options := range map[string][]string{
		"plain":  {"-v", app + ":/ws/app"},
		"slave":  {"-v", ws + ":/ws:rslave"},
		"shared": {"-v", ws + ":/ws:rshared", "--cap-add", "SYS_ADMIN"},
	} {
		line := append([]string{"-d", "--name", name}, options...)
		p.ok(p.container(append(line, "box", "sleep", "100000")...)...)
	}
	in := func(name, script string) string {
		t.Helper()
		return p.ok("exec", name, "sh", "-c", script+" 2>&1 || true")
	}
	all := []string{"plain", "slave", "shared"}
	each := func(want, script string, names ...string) {
		t.Helper()
		for _, name := range names {
			require.Equal(t, want, in(name, script), name)
		}
	}
	each("one", "cat /ws/app/file", all...)

	// What is mounted later; and what the container mounts.
	h.ok("up", "later", later, "--from", h.path("src"))
	each("one", "cat /ws/later/file", "slave", "shared")
	each("", "ls /ws/later | grep -v No.such", "plain")
	h.makeDir("ws/theirs")
	in("shared", "mount -t tmpfs none /ws/theirs && echo theirs >/ws/theirs/file")
	require.Equal(t, "theirs\n", h.read("ws/theirs/file"))
	each("theirs", "cat /ws/theirs/file", "slave")
	in("shared", "umount /ws/theirs")
	require.NoFileExists(t, h.path("ws/theirs/file"))
	require.Contains(t, in("slave", "mount -t tmpfs none /ws/theirs"), "permission denied")

	// A snapshot, a rollback, and the end of the daemon.
	h.ok("snapshot", "app", "--name", "first")
	in("slave", "echo two >/ws/app/file")
	each("two", "cat /ws/app/file", all...)
	h.ok("rollback", "app", "app:first")
	each("one", "cat /ws/app/file", all...)
	require.NoError(t, unix.Kill(h.pid(), unix.SIGKILL))
	in("plain", "echo three >/ws/app/file")
	each("three", "cat /ws/app/file", all...)

	// Unmounted, and mounted again.
	h.ok("umount", "app")
	require.Equal(t, api.Detached, h.workspace("app").State)
	each("three", "cat /ws/app/file", "plain")
	each("gone", "[ -e /ws/app/file ] || echo gone", "slave", "shared")
	h.ok("umount", "--force", "app")
	require.Contains(t, in("plain", "touch /ws/app/new"), "Transport endpoint is not connected")
	require.NoError(t, os.MkdirAll(app, 0o755))
	h.ok("mount", "app", app)
	each("three", "cat /ws/app/file", "slave", "shared")
	require.Contains(t, in("plain", "touch /ws/app/new"), "Transport endpoint is not connected")
	p.ok("restart", "-t", "0", "plain")
	each("three", "cat /ws/app/file", "plain")

	// Forced while all use it.
	h.ok("umount", "--force", "app")
	each("gone", "[ -e /ws/app/file ] || echo gone", "slave", "shared")
	p.ok("rm", "-f", "-t", "0", "-a")
	h.ok("umount", "later")
}
