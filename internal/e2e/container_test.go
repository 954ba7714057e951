package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// container runs argv with podman and crun in a container whose root file system is a directory. Nothing is pulled and
// nothing of the host's container storage is touched. It runs in a mount namespace with cgroup2 alone, because crun
// refuses hosts that have both kinds of cgroups.
func container(t *testing.T, h *home, root string, options []string, argv ...string) result {
	t.Helper()
	line := []string{
		"run", "--rm", "--network", "none", "--cgroups=disabled", "--log-driver", "none", "--ulimit", "nofile=1024:1024",
		"--ulimit", "nproc=1024:1024", "--security-opt", "seccomp=unconfined",
	}
	return crunPodman(t, h, append(append(append(line, options...), "--rootfs", root), argv...)...)
}

// crunPodman runs a command of the podman of func container.
func crunPodman(t *testing.T, h *home, args ...string) result {
	t.Helper()
	script := `umount -R /sys/fs/cgroup 2>/dev/null || true
		mount -t cgroup2 none /sys/fs/cgroup
		mount -t tmpfs none /run # podman wants a short path
		exec podman --root "$1" --runroot /run/podman --runtime crun --cgroup-manager cgroupfs --events-backend none \
			"${@:2}"`
	line := []string{"unshare", "--mount", "--propagation", "slave", "bash", "-c", script, "script", h.makeDir("podman")}
	return process(t, 2*time.Minute, h.tmp, h.env, append(line, args...)...)
}

// containerRoot makes a root file system with snapfs in one file, a shell and a few programs of this machine with their
// libraries.
func containerRoot(t *testing.T, h *home) string {
	t.Helper()
	root := h.makeDir("root")
	shell(t, soon, root, `mkdir -p proc sys dev tmp work var/lib bin
		cp "$1" bin/snapfs
		for p in sh ls cat echo mkdir rm grep sleep diff find ps; do
			path=$(command -v -p $p) || continue
			case $path in /*) ;; *) path=/usr/bin/$p ;; esac
			cp -L $path bin/
			ldd $path | grep -o '/[^ ]*' | while read -r lib; do mkdir -p .$(dirname $lib); cp -Ln $lib .$lib; done
		done`, complete)
	return root
}

// TestContainerUsesWorkspace gives a mounted workspace to a container as a directory.
func TestContainerUsesWorkspace(t *testing.T) {
	h := newHome(t)
	root := containerRoot(t, h)
	h.ok("up", "ws", h.path("ws"), "--from", filepath.Dir(h.write("src/file", "from the host\n")))
	h.ok("snapshot", "ws", "--name", "before")
	r := container(t, h, root, []string{"-v", h.path("ws") + ":/work"}, "/bin/sh", "-c",
		`cat /work/file; echo from inside > /work/made; mkdir /work/d; ls /work > /work/d/listing; rm /work/file`)
	require.Zero(t, r.code, r.err)
	require.Equal(t, "from the host\n", r.out)
	require.Equal(t, []string{"A d", "A d/listing", "D file", "A made"}, strings.Split(h.ok("diff", "ws"), "\n"))
	require.Equal(t, "from inside\n", shell(t, soon, h.path("ws"), `cat made`))
}

// TestContainerMapsUsers gives a workspace, id-mapped, to a container whose root is a user without rights on the host:
// owners are right on both sides.
func TestContainerMapsUsers(t *testing.T) {
	if !idMapsFUSE(t) {
		t.Skip("the kernel does not id-map FUSE before Linux 6.12")
	}
	for _, transport := range []string{"dev", "auto"} {
		t.Run(transport, func(t *testing.T) {
			h := newHome(t)
			root := mappedRoot(t, h)
			h.write("src/file", "from the host\n")
			shell(t, soon, h.path("src"), `chown 33:34 file && chmod 666 file`)
			h.ok("create", "ws", "--from", h.path("src"))
			h.ok("mount", "ws", h.path("ws"), "--transport", transport)
			options := append(mappedOptions(), "-v", h.path("ws")+":/work:idmap")
			r := container(t, h, root, options, "/bin/sh", "-ec", `
				ls -ln /work/file | { read -r mode links owner group rest; echo $owner $group; }
				echo inside >> /work/file
				mkdir /work/d; echo made > /work/d/made`)
			require.Zero(t, r.code, r.err)
			require.Equal(t, "33 34\n", r.out)
			require.Equal(t, "33 34 666\n0 0 755\n0 0 644\n", shell(t, soon, h.path("ws"), `stat -c '%u %g %a' file d d/made`))
			require.Equal(t, "from the host\ninside\n", shell(t, soon, h.path("ws"), `cat file`))
		})
	}
}

// idMapsFUSE reports whether the kernel id-maps FUSE.
func idMapsFUSE(t *testing.T) bool {
	t.Helper()
	var system unix.Utsname
	require.NoError(t, unix.Uname(&system))
	var major, minor int
	_, err := fmt.Sscanf(unix.ByteSliceToString(system.Release[:]), "%d.%d", &major, &minor)
	return err == nil && (major > 6 || major == 6 && minor >= 12)
}

// mappedOptions give a container a user namespace, whose root has no rights on the host.
func mappedOptions() []string {
	return []string{"--uidmap", "0:100000:65536", "--gidmap", "0:100000:65536"}
}

// mappedRoot makes a root file system for a container with mappedOptions.
func mappedRoot(t *testing.T, h *home) string {
	t.Helper()
	root := containerRoot(t, h)
	for dir := root; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		require.NoError(t, os.Chmod(dir, 0o755)) // for a user without rights on the host
	}
	shell(t, soon, root, `mkdir -p etc run; touch etc/hosts etc/hostname etc/resolv.conf run/.containerenv; chown -hR 100000:100000 .`)
	return root
}

// TestInsideContainer runs snapfs itself in a container that has the FUSE device, as a command that starts its daemon
// and as the first process.
func TestInsideContainer(t *testing.T) {
	h := newHome(t)
	root := containerRoot(t, h)
	h.write("root/src/file", "original\n")
	volume := h.makeDir("volume") // a home is kept on a volume
	fuse := []string{"--device", "/dev/fuse", "--cap-add", "SYS_ADMIN", "-v", volume + ":/var/lib/snapfs"}

	r := container(t, h, root, fuse, "/bin/sh", "-ec", `
		snapfs up app /work --from /src
		echo changed > /work/file
		snapfs snapshot app --name one --wait stored > /dev/null
		snapfs branch one /tmp/try > /dev/null
		rm /tmp/try/file
		cat /work/file
		snapfs stop`)
	require.Zero(t, r.code, r.err)
	require.Equal(t, "app on /work\nchanged\n", r.out)

	// The volume outlives the container.
	r = container(t, h, root, fuse, "/bin/sh", "-ec", `snapfs --quiet mount app /work; cat /work/file; snapfs --quiet stop`)
	require.Zero(t, r.code, r.err)
	require.Equal(t, "app on /work\nchanged\n", r.out)

	// As process 1 it reaps and ends when it is told to.
	r = container(t, h, root, fuse,
		"/bin/snapfs", "run", "--quiet", "--from", "/src", "--", "/bin/sh", "-c", "sleep 0.1 & cat file")
	require.Zero(t, r.code, r.err)
	require.Equal(t, "original\n", r.out)
	_, err := os.Stat(filepath.Join(volume, "daemon.sock"))
	require.ErrorIs(t, err, os.ErrNotExist, "the daemon had time to end")
}
