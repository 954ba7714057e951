package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"snapfs/sandbox"
	"snapfs/sandbox/api"
)

// rootlessScript makes a mount namespace in which the user may use FUSE and has numbers for user namespaces, and runs a
// test binary there as the user.
const rootlessScript = `
	dir=$1 uid=$2 gid=$3 self=$4
	mount "--make-r$5" /
	mkdir -p "$dir/dev"
	mount -t tmpfs none "$dir/dev"
	mknod -m 666 "$dir/dev/fuse" c 10 229
	mount --bind "$dir/dev/fuse" /dev/fuse
	echo user_allow_other >"$dir/dev/fuse.conf"
	chown "$uid" "$dir/dev/fuse.conf" # a test changes it
	mount --bind "$dir/dev/fuse.conf" /etc/fuse.conf
	echo "$uid:200000:65536" >"$dir/dev/subid"
	for file in /etc/subuid /etc/subgid; do
		mount --bind "$dir/dev/subid" "$file"
	done
	exec setpriv --reuid "$uid" --regid "$gid" --clear-groups --inh-caps=-all "$self" -test.run '^TestRootlessPodman$' -test.v`

// TestRootlessPodman has Podman of a plain user use workspaces of that user's own daemon, on a machine that shares mounts
// with Podman's namespace, as systemd has it, and on one that does not.
func TestRootlessPodman(t *testing.T) {
	if os.Getenv(commandsEnv) != "" {
		rootlessTests(t)
		return
	}
	h := newHome(t)
	box := boxArchive(h)
	self, err := os.Executable()
	require.NoError(t, err)
	for at := filepath.Dir(snapfs); at != filepath.Clean(os.TempDir()) && at != "/"; at = filepath.Dir(at) {
		require.NoError(t, os.Chmod(at, 0o755))
	}
	for name, propagation := range map[string]string{"Shared": "shared", "Private": "private"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, err := os.MkdirTemp("", "dkr-") // short: paths of sockets are bounded
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) }) // with files of the user's further numbers
			shell(t, soon, dir, `cp "$1" test; chmod 755 . test; mkdir user user/run; cp "$2" user/box.tar
				chown -R "$3:$4" user; chmod 700 user user/run`, self, box, userUID, userGID)
			user := filepath.Join(dir, "user")
			env := []string{
				commandsEnv + "=" + filepath.Dir(snapfs), "SNAPFS_HOME=", "SNAPFS_E2E=",
				"TMPDIR=" + user, "HOME=" + user, "XDG_RUNTIME_DIR=" + filepath.Join(user, "run"),
				"XDG_CONFIG_HOME=", "XDG_DATA_HOME=", "CONTAINERS_CONF=" + filepath.Join(user, "containers.conf"),
			}
			r := process(t, 5*time.Minute, user, env, "unshare", "--mount", "--propagation", "private", "bash", "-euc", rootlessScript,
				"bash", dir, userUID, userGID, filepath.Join(dir, "test"), propagation)
			if r.code != 0 || !strings.Contains(r.out, "--- PASS: TestRootlessPodman/") {
				t.Errorf("ended with %d:\n%s%s", r.code, r.out, r.err)
			}
			for _, line := range strings.Split(r.out, "\n") {
				if strings.Contains(line, "--- PASS") {
					t.Log(strings.TrimSpace(line))
				}
			}
		})
	}
}

// rootlessTests are those of the user.
func rootlessTests(t *testing.T) {
	user := os.Getenv("HOME")
	podman := filepath.Join(user, "podman")
	require.NoError(t, os.WriteFile(podman, []byte(`#!/bin/sh
exec podman --root "$HOME/root" --runroot "$HOME/run/root" --storage-driver vfs --runtime runc --cgroup-manager cgroupfs --events-backend none "$@"
`), 0o755))
	require.NoError(t, os.WriteFile(os.Getenv("CONTAINERS_CONF"), []byte("[engine.volume_plugins]\n"+
		"plain = \""+user+"/plain/docker/snapfs.sock\"\ninside = \""+user+"/inside/docker/snapfs.sock\"\n"), 0o644))
	// The process that keeps Podman's namespace is of no home, and ends last.
	r := process(t, soon, user, nil, podman, "import", "--change", "ENV=PATH=/bin", "box.tar", "box")
	require.Zero(t, r.code, r.err)
	t.Cleanup(func() {
		process(t, soon, user, nil, podman, "rm", "-f", "-a", "-t", "0")
		process(t, soon, user, nil, podman, "volume", "rm", "-f", "-a")
		process(t, soon, user, nil, podman, "system", "migrate")
	})
	if shell(t, soon, user, `findmnt -no PROPAGATION /`) == "shared\n" {
		t.Run("Directory", func(t *testing.T) { rootlessDirectory(newRootless(t, podman, "dir")) })
		t.Run("Volumes", func(t *testing.T) { rootlessVolumes(newRootless(t, podman, "plain")) })
		t.Run("Run", func(t *testing.T) { rootlessRun(newRootless(t, podman, "other")) })
	} else {
		t.Run("Unseen", func(t *testing.T) { rootlessUnseen(newRootless(t, podman, "plain")) })
		t.Run("Inside", func(t *testing.T) { rootlessInside(newRootless(t, podman, "inside")) })
	}
}

// rootless is a home of the user, with the user's Podman.
type rootless struct {
	*home
	podman string
}

func newRootless(t *testing.T, podman, name string) *rootless {
	h := newHome(t)
	h.dir = filepath.Join(os.Getenv("HOME"), name)
	h.env[0] = "SNAPFS_HOME=" + h.dir
	h.write("src/file", "from the host\n")
	return &rootless{h, podman}
}

// engine runs a command of Podman that has to succeed, and gives its standard output without the last newline.
func (r *rootless) engine(args ...string) string {
	r.t.Helper()
	got := r.try(args...)
	if got.code != 0 {
		r.t.Fatalf("podman %q ended with %d: %s%s\n%s", args, got.code, got.out, got.err, tail(r.log()))
	}
	return strings.TrimSuffix(got.out, "\n")
}

func (r *rootless) try(args ...string) result {
	r.t.Helper()
	return process(r.t, soon, r.tmp, r.env, append([]string{r.podman}, args...)...)
}

// rootlessRunOptions are for containers without a network.
var rootlessRunOptions = []string{"--network=none", "--log-driver=none", "--env=SNAPFS_E2E", "--env=SNAPFS_CI_MARK"}

// line is a command line that runs a shell script in a new container of the image "box".
func (r *rootless) line(script string, options ...string) []string {
	line := append([]string{"run", "--rm"}, rootlessRunOptions...)
	return append(append(line, options...), "box", "sh", "-ec", script)
}

// in runs a shell script in a new container of the image "box".
func (r *rootless) in(script string, options ...string) string {
	r.t.Helper()
	return r.engine(r.line(script, options...)...)
}

// refused runs a new container, which the engine has to refuse.
func (r *rootless) refused(text string, options ...string) {
	r.t.Helper()
	got := r.try(r.line("true", options...)...)
	if got.code == 0 || !strings.Contains(got.err, text) {
		r.t.Errorf("podman run %q ended with %d: %s%s, want %q", options, got.code, got.out, got.err, text)
	}
}

// serve starts a daemon that serves volumes: command goes before it.
func (r *rootless) serve(command ...string) {
	r.t.Helper()
	start(r.t, r.home, r.tmp, append(command, snapfs, "serve", "-q", "--docker-plugin")...)
	for end := time.Now().Add(soon); r.run("status").code != 0; time.Sleep(10 * time.Millisecond) {
		require.True(r.t, time.Now().Before(end), "the daemon does not serve")
	}
	require.Contains(r.t, r.ok("status"), "unix://"+filepath.Join(r.dir, "docker/snapfs.sock"))
}

// owners prints the owners of files of a directory.
func (r *rootless) owners(dir, files string) string {
	r.t.Helper()
	return shell(r.t, soon, dir, `stat -c '%u %g' `+files)
}

// rootlessDirectory gives a directory to containers.
func rootlessDirectory(r *rootless) {
	t := r.t
	ws := r.path("ws")
	share := []string{"-v", ws + ":/workspace", "--workdir", "/workspace"}
	r.ok("up", "ws", ws, "--from", r.path("src"))
	require.Equal(t, "0 0\nfrom the host", r.in(`stat -c '%u %g' file; cat file; echo root >root; mkdir -m 1777 open`, share...))
	require.Equal(t, userUID+" "+userGID+"\n", r.owners(ws, "root"))
	// Other numbers of the user are kept out.
	require.Equal(t, "kept out", r.in(`! su somebody -c 'cat root' 2>/dev/null; echo kept out`, share...))
	r.refused("permission denied", append(share, "--userns=keep-id")...)

	r.ok("umount", "ws")
	r.ok("mount", "ws", "--allow-other")
	r.in(`su somebody -c 'echo mine >open/mine'; chown somebody file`, share...)
	require.Equal(t, "200999 "+userGID+"\n200999 200999\n", r.owners(ws, "file open/mine"))
	keep := append(share, "--userns=keep-id")
	require.Equal(t, userUID+" "+userGID+"\n"+userUID+" "+userGID+"\n1000 1000", r.in(`echo x >kept; stat -c '%u %g' root kept open/mine`, keep...))
	r.in(`echo x >zero`, append(keep, "--user=0")...)
	require.Equal(t, userUID+" "+userGID+"\n200000 200000\n", r.owners(ws, "kept zero"))

	line := append(append([]string{"run", "-d", "--name", "one"}, rootlessRunOptions...), share...)
	r.engine(append(line, "box", "sleep", "100000")...)
	livingContainer(r, "ws")
	r.engine("rm", "-f", "-t", "0", "one")
	r.ok("down", "ws", "--destroy", "--force")
}

// livingContainer takes a snapshot of what the container "one" uses at /workspace, rolls it back and kills the daemon.
func livingContainer(r *rootless, ws string) {
	t := r.t
	t.Helper()
	in := func(script string) string {
		t.Helper()
		return r.engine("exec", "one", "sh", "-ec", "cd /workspace; "+script)
	}
	in(`echo before >state`)
	r.ok("snapshot", ws, "--name", "first")
	in(`echo junk >state; rm root; echo junk >junk`)
	r.ok("rollback", ws, ws+":first")
	require.Equal(t, "before", in(`cat state; ls root >/dev/null; ! ls junk 2>/dev/null`))
	pid := r.pid()
	require.NoError(t, unix.Kill(pid, unix.SIGKILL))
	gone(t, pid)
	require.Equal(t, "before\nafter", in(`echo after >>state; cat state`))
	require.NotEqual(t, pid, r.pid())
	require.Contains(t, r.ok("diff", ws), "M state")
}

// rootlessVolumes has volumes of the user's own daemon.
func rootlessVolumes(r *rootless) {
	t := r.t
	r.serve()
	r.ok("create", "base", "--from", r.path("src"))
	r.ok("snapshot", "base", "--name", "built")
	for _, name := range []string{"ws", "own"} {
		line := []string{"volume", "create", "--driver", "plain", "-o", "from=base:built"}
		if name == "own" {
			line = append(line, "-o", "allow_other=false")
		}
		r.engine(append(line, name)...)
	}
	script := `cd /workspace; cat file; echo root >root; mkdir -m 1777 open`
	for _, name := range []string{"ws", "own"} {
		require.Equal(t, "from the host", r.in(script, "-v", name+":/workspace"))
		require.Equal(t, api.Unmounted, r.workspace(name).State)
	}
	r.in(`su somebody -c 'echo mine >/workspace/open/mine'`, "-v", "ws:/workspace")
	require.Equal(t, userUID+" "+userGID+"\n1000 1000", r.in(`stat -c '%u %g' /workspace/root /workspace/open/mine`, "-v", "ws:/workspace", "--userns=keep-id"))
	require.Equal(t, "kept out", r.in(`! su somebody -c 'cat /workspace/root' 2>/dev/null; echo kept out`, "-v", "own:/workspace"))
	r.refused("permission denied", "-v", "own:/workspace", "--userns=keep-id")
	require.Equal(t, api.Unmounted, r.workspace("own").State, "a container that was not started uses nothing")

	// The administrator does not allow it.
	require.NoError(t, os.WriteFile("/etc/fuse.conf", nil, 0o644))
	r.refused("-o allow_other=false", "-v", "ws:/workspace")
	require.Equal(t, "root", r.in(`cat /workspace/root`, "-v", "own:/workspace"))
	require.NoError(t, os.WriteFile("/etc/fuse.conf", []byte("user_allow_other\n"), 0o644))

	line := append(append([]string{"run", "-d", "--name", "one"}, rootlessRunOptions...), "-v", "ws:/workspace")
	r.engine(append(line, "box", "sleep", "100000")...)
	at := r.workspace("ws").Mountpoint
	require.Equal(t, userUID+" "+userGID+"\n200999 200999\n", r.owners(at, "root open/mine"))
	livingContainer(r, "ws")
	r.engine("rm", "-f", "-t", "0", "one")
	r.engine("volume", "rm", "ws", "own")
	r.fails(3, "not found", "show", "ws")
}

// container is a command line of run --container.
func (r *rootless) container(options ...string) []string {
	line := []string{"run", "--from", r.path("src"), "--engine-cmd", r.podman, "--container", "box"}
	return append(append(line, withArgs(rootlessRunOptions)...), options...)
}

// rootlessRun runs commands in containers.
func rootlessRun(r *rootless) {
	t := r.t
	require.Equal(t, "from the host\nA made", r.ok(r.container("--discard", "--", "sh", "-c", `cat file; echo made >made`)...))
	r.ok(r.container("--apply", "--", "sh", "-c", `echo made >made`)...)
	require.Equal(t, userUID+" "+userGID+"\n", r.owners(r.path("src"), "made"))
	got := r.run(r.container("--discard", "--", "sh", "-c", `exit 7`)...)
	require.Equal(t, 7, got.code, got.err)
	require.Empty(t, decode[sandbox.WorkspacePage](r.home, "list").Workspaces)
}

// rootlessUnseen has Podman in a namespace to which no mounts come: that is told, and nothing is written elsewhere.
func rootlessUnseen(r *rootless) {
	t := r.t
	r.serve()
	r.engine("volume", "create", "--driver", "plain", "ws")
	r.refused("podman unshare snapfs serve --docker-plugin", "-v", "ws:/workspace")
	require.Equal(t, api.Unmounted, r.workspace("ws").State)
	r.engine("volume", "rm", "ws")
	got := r.run(r.container("--discard", "--", "sh", "-c", `echo lost >/workspace/lost`)...)
	require.Equal(t, 7, got.code, got.err)
	require.Contains(t, got.err, "does not see the workspace")
	require.Contains(t, got.err, "unshare snapfs run")
	require.Empty(t, decode[sandbox.WorkspacePage](r.home, "list").Workspaces)
	// The daemon cannot mount there, either.
	got = r.try("unshare", snapfs, "up", "ws", r.path("ws"))
	require.Equal(t, 7, got.code, got.err)
	require.Contains(t, got.err, "no right to mount in the mount namespace of the command")
	require.NoDirExists(t, r.path("ws"))
}

// rootlessInside has a daemon in Podman's own namespace: no mount has to come there, and other users of containers need no
// leave of the administrator.
func rootlessInside(r *rootless) {
	t := r.t
	require.NoError(t, os.WriteFile("/etc/fuse.conf", nil, 0o644))
	r.serve(r.podman, "unshare")
	r.ok("create", "base", "--from", r.path("src"))
	r.ok("snapshot", "base", "--name", "built")
	r.engine("volume", "create", "--driver", "inside", "-o", "from=base:built", "ws")
	r.in(`cd /workspace; echo root >root; mkdir -m 1777 open; su somebody -c 'echo mine >open/mine'`, "-v", "ws:/workspace")
	require.Equal(t, userUID+" "+userGID+"\n1000 1000", r.in(`stat -c '%u %g' /workspace/root /workspace/open/mine`, "-v", "ws:/workspace", "--userns=keep-id"))
	line := append(append([]string{"run", "-d", "--name", "one"}, rootlessRunOptions...), "-v", "ws:/workspace")
	r.engine(append(line, "box", "sleep", "100000")...)
	require.Equal(t, "0 0\n1000 1000", r.engine("unshare", "stat", "-c", "%u %g", r.dir+"/mnt/ws/root", r.dir+"/mnt/ws/open/mine"))
	livingContainer(r, "ws")
	r.engine("rm", "-f", "-t", "0", "one")
	r.engine("volume", "rm", "ws")

	// Directories and commands, by commands in the namespace.
	r.engine("unshare", snapfs, "up", "dir", r.path("dir"), "--from", r.path("src"))
	require.Equal(t, "from the host", r.in(`su somebody -c 'cat /workspace/file'`, "-v", r.path("dir")+":/workspace"))
	r.engine("unshare", snapfs, "down", "dir", "--destroy", "--force")
	run := append([]string{"unshare", snapfs}, r.container("--discard", "--container-arg", "--userns=keep-id", "--", "cat", "file")...)
	require.Equal(t, "from the host", r.engine(run...))
	r.fails(7, "podman unshare", "up", "dir", r.path("dir"))
	r.ok("destroy", "base", "-q")
	r.engine("unshare", snapfs, "stop")
}
