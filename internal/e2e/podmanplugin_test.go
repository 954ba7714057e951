package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"snapfs/sandbox/api"
)

// podmanEngine is Podman with a storage and a configuration of a test's own, in the mount namespace of the test: volumes are
// mounted there.
type podmanEngine struct {
	h      *home
	dir    string // short: paths of sockets are bounded
	driver string // of its storage
}

// newPodman has Podman know the plugin of a socket as the driver snapfs.
func newPodman(h *home, socket string) *podmanEngine {
	h.t.Helper()
	dir, err := os.MkdirTemp("", "dkr-")
	require.NoError(h.t, err)
	p := &podmanEngine{h: h, dir: dir, driver: "vfs"}
	h.t.Cleanup(p.close)
	require.NoError(h.t, os.WriteFile(filepath.Join(dir, "containers.conf"),
		[]byte("[engine.volume_plugins]\nsnapfs = \""+socket+"\"\n"), 0o644))
	return p
}

func (p *podmanEngine) run(args ...string) result {
	p.h.t.Helper()
	line := []string{
		"podman", "--root", filepath.Join(p.dir, "root"), "--runroot", filepath.Join(p.dir, "run"), "--tmpdir", filepath.Join(p.dir, "tmp"),
		"--storage-driver", p.driver, "--runtime", "runc", "--cgroup-manager", "cgroupfs", "--events-backend", "none",
	}
	return process(p.h.t, soon, p.h.tmp, append(p.h.env, "CONTAINERS_CONF="+filepath.Join(p.dir, "containers.conf")), append(line, args...)...)
}

func (p *podmanEngine) ok(args ...string) string {
	p.h.t.Helper()
	r := p.run(args...)
	require.Zero(p.h.t, r.code, "podman %q: %s%s", args, r.out, r.err)
	return strings.TrimSuffix(r.out, "\n")
}

func (p *podmanEngine) fails(text string, args ...string) {
	p.h.t.Helper()
	if r := p.run(args...); r.code == 0 || !strings.Contains(r.err, text) {
		p.h.t.Errorf("podman %q ended with %d: %s%s, want %q", args, r.code, r.out, r.err, text)
	}
}

// container is a command line for a container without a network, whose processes have the mark of the test.
func (p *podmanEngine) container(options ...string) []string {
	line := []string{
		"run", "--network", "none", "--log-driver", "none", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024",
		"--cgroup-parent", "/snapfs-" + filepath.Base(p.dir),
	}
	for _, name := range []string{"SNAPFS_E2E", "SNAPFS_CI_MARK"} {
		line = append(line, "--env", name)
	}
	return append(line, options...)
}

func (p *podmanEngine) close() {
	p.run("rm", "-f", "-a", "-t", "0")
	p.run("image", "unmount", "-a", "-f")
	p.run("volume", "rm", "-a", "-f")
	for _, m := range mountsBelow(p.dir) {
		_ = unix.Unmount(m.dir, unix.MNT_DETACH) // a layer, or a network namespace
	}
	removeCgroups(p.h.t, "snapfs-"+filepath.Base(p.dir))
	require.NoError(p.h.t, os.RemoveAll(p.dir))
}

// TestPodmanVolumes has containers of Podman on volumes, by the same plugin.
func TestPodmanVolumes(t *testing.T) {
	h := newHome(t)
	dir, err := os.MkdirTemp("", "dkr-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	socket := filepath.Join(dir, "snapfs.sock")
	h.write("home/daemon.toml", "docker-plugin = \""+socket+"\"\n")
	h.write("src/file", "from the host\n")
	h.ok("create", "base", "--from", h.path("src"))
	h.ok("snapshot", "base", "--name", "built")
	p := newPodman(h, socket)
	p.ok("import", "--change", "ENV=PATH=/bin", boxArchive(h), "box")
	state := func(want api.WorkspaceState) { t.Helper(); require.Equal(t, want, h.workspace("ws").State) }

	p.fails("unknown option", "volume", "create", "--driver", "snapfs", "--opt", "form=base:built", "ws")
	p.ok("volume", "create", "--driver", "snapfs", "--opt", "from=base:built", "--opt", "inodes=10k", "ws")
	script := `cd /workspace; cat file; echo root >root; mkdir -m 1777 open; su somebody -c 'echo mine >open/mine'`
	require.Equal(t, "from the host", p.ok(p.container("--rm", "-v", "ws:/workspace", "box", "sh", "-ec", script)...))
	state(api.Unmounted)

	// A user namespace: its root is another user of the host.
	mapped := []string{"--rm", "--uidmap", "0:100000:65536", "--gidmap", "0:100000:65536", "-v", "ws:/workspace"}
	for at := p.dir; at != os.TempDir(); at = filepath.Dir(at) {
		require.NoError(t, os.Chmod(at, 0o755)) // for a user without rights on the host
	}
	script = `cd /workspace; cat root; echo theirs >open/theirs; stat -c '%u %g' open/theirs; ! echo x 2>/dev/null >>root`
	require.Equal(t, "root\n0 0", p.ok(p.container(append(mapped, "box", "sh", "-ec", script)...)...))

	p.ok(p.container("-d", "--name", "one", "-v", "ws:/workspace", "box", "sleep", "100000")...)
	p.ok(p.container("-d", "--name", "two", "-v", "ws:/workspace", "box", "sleep", "100000")...)
	require.Equal(t, "0 0\n1000 1000\n100000 100000\n",
		shell(t, soon, h.workspace("ws").Mountpoint, `stat -c '%u %g' root open/mine open/theirs`))
	p.ok("rm", "-f", "-t", "0", "one")
	state(api.Mounted)
	require.NoError(t, unix.Kill(h.pid(), unix.SIGKILL))
	p.ok("exec", "two", "sh", "-ec", `echo after >>/workspace/root`)
	require.Equal(t, "root\nafter", p.ok("exec", "two", "cat", "/workspace/root"))
	require.NoError(t, unix.Kill(h.pid(), unix.SIGKILL)) // Podman does not ask again: it waits in the socket
	require.Equal(t, "after", p.ok(p.container("--rm", "-v", "ws:/workspace", "box", "tail", "-n", "1", "/workspace/root")...))
	p.ok("rm", "-f", "-t", "0", "two")
	state(api.Unmounted)
	p.ok("volume", "rm", "ws")
	h.fails(3, "not found", "show", "ws")
}
