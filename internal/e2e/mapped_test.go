package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestDockerRemapsUsers has volumes in containers of an engine that gives all of them a user namespace: root of the
// container is another user of the host.
func TestDockerRemapsUsers(t *testing.T) {
	h := newHome(t)
	ranges := h.write("ranges", "games:200000:65536\n")
	for _, file := range []string{"/etc/subuid", "/etc/subgid"} {
		require.NoError(t, unix.Mount(ranges, file, "", unix.MS_BIND, ""))
		t.Cleanup(func() { require.NoError(t, unix.Unmount(file, unix.MNT_DETACH)) })
	}
	d := newDocker(h, "--userns-remap="+userUID+":"+userGID)
	driver := d.serveVolumes()
	d.box()
	h.write("src/file", "from the host\n")
	h.ok("create", "base", "--from", h.path("src"))
	h.ok("snapshot", "base", "--name", "built")
	d.ok("volume", "create", "-d", driver, "-o", "from=base:built", "ws")
	run := func(script string, options ...string) string {
		t.Helper()
		return d.ok(d.container("run", append(append([]string{"--rm"}, options...), "box", "sh", "-c", script)...)...)
	}
	// What is of the host's root is nobody's in the container.
	require.Equal(t, "65534 65534\nfrom the host\nrefused", run(`cd /workspace; stat -c '%u %g' file; cat file; echo x 2>/dev/null >new || echo refused`,
		"-v", "ws:/workspace"))
	h.ok("mount", "ws", h.path("at"))
	shell(t, soon, h.path("at"), `chown 200000:200000 .`)
	require.Equal(t, "0 0\n1000 1000", run(`cd /workspace; echo root >root; mkdir -m 1777 open; su somebody -c 'echo mine >open/mine'; stat -c '%u %g' root open/mine`,
		"-v", "ws:/workspace"))
	require.Equal(t, "200000 200000\n201000 201000\n", shell(t, soon, h.path("at"), `stat -c '%u %g' root open/mine`))
	// Without the namespace the numbers are the host's.
	require.Equal(t, "200000 200000", run(`stat -c '%u %g' /workspace/root`, "--userns=host", "-v", "ws:/workspace"))
	h.ok("umount", "ws")
	// An empty one gets what the image has, and its owners.
	require.Equal(t, "0 0", run(`cd /workspace; echo root >root; stat -c '%u %g' root`, "--volume-driver", driver, "-v", "fresh:/workspace"))
	d.ok("volume", "rm", "ws", "fresh")
}

// TestContainerMapsVolume gives a volume of the plugin, id-mapped, to a container with a user namespace.
func TestContainerMapsVolume(t *testing.T) {
	if !idMapsFUSE(t) {
		t.Skip("the kernel does not id-map FUSE before Linux 6.12")
	}
	h := newHome(t)
	dir, err := os.MkdirTemp("", "dkr-") // short: paths of sockets are bounded
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	socket := filepath.Join(dir, "snapfs.sock")
	h.env = append(h.env, "CONTAINERS_CONF="+h.write("containers.conf", "[engine.volume_plugins]\nsnapfs = \""+socket+"\"\n"))
	h.write("home/daemon.toml", "docker-plugin = \""+socket+"\"\n")
	root := mappedRoot(t, h)
	h.write("src/file", "from the host\n")
	shell(t, soon, h.path("src"), `chown 33:34 file && chmod 666 file`)
	h.ok("create", "ws", "--from", h.path("src"))
	h.ok("mount", "ws", h.path("ws")) // the engine is in another mount namespace, which has what is mounted already
	r := crunPodman(t, h, "volume", "create", "--driver", "snapfs", "--opt", "workspace=ws", "ws")
	require.Zero(t, r.code, r.err)
	for options, want := range map[string]string{":idmap": "33 34\n", "": "65534 65534\n"} {
		r = container(t, h, root, append(mappedOptions(), "-v", "ws:/work"+options), "/bin/sh", "-ec", `
			ls -ln /work/file | { read -r mode links owner group rest; echo $owner $group; }
			echo inside >>/work/file; [ "$1" = "" ] || echo made >/work/made`, "sh", options)
		require.Zero(t, r.code, r.err)
		require.Equal(t, want, r.out, options)
	}
	require.Equal(t, "33 34 666\n0 0 644\n", shell(t, soon, h.path("ws"), `stat -c '%u %g %a' file made`))
}
