package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"snapfs/sandbox"
	"snapfs/sandbox/api"
)

// pluginDirectory is where Docker looks for the sockets of plugins.
const pluginDirectory = "/run/docker/plugins"

// serveVolumes starts the daemon of the test's home, which from now on serves volumes, and gives the name of their driver:
// one of the test's own.
func (d *docker) serveVolumes() (driver string) {
	h := d.h
	h.t.Helper()
	driver = d.driver()
	socket := filepath.Join(pluginDirectory, driver+".sock")
	d.socket = socket
	r := process(h.t, soon, h.tmp, append(h.env, "SNAPFS_DOCKER_PLUGIN="+socket), snapfs, "create", "app")
	require.Zero(h.t, r.code, r.err)
	fi, err := os.Lstat(socket)
	require.NoError(h.t, err)
	require.Equal(h.t, os.ModeSocket|0o600, fi.Mode())
	require.Contains(h.t, h.ok("status"), "unix://"+socket)
	return driver
}

// mountpointOf is where the volume of an engine is, as the engine sees it.
func (d *docker) mountpointOf(volume string) string {
	d.h.t.Helper()
	return d.ok("volume", "inspect", "--format", "{{.Mountpoint}}", volume)
}

// TestDockerVolumes has containers on volumes, from the first write to the removal: snapshots while they run, branches,
// rollback, a full quota, and the end of every process that takes part.
func TestDockerVolumes(t *testing.T) {
	h := newHome(t)
	d := newDocker(h)
	driver := d.serveVolumes()
	d.box()
	h.write("src/file", "from the host\n")
	h.ok("create", "base", "--from", h.path("src"))
	h.ok("snapshot", "base", "--name", "built")
	volume := func(name string, options ...string) {
		t.Helper()
		d.ok(append(append([]string{"volume", "create", "-d", driver}, options...), name)...)
	}
	begin := func(name string, options ...string) {
		t.Helper()
		line := append([]string{"-d", "--name", name}, options...)
		d.ok(d.container("run", append(line, "box", "sleep", "100000")...)...)
	}
	state := func(want api.WorkspaceState) { t.Helper(); require.Equal(t, want, h.workspace("ws").State) }

	// Written as root and as another user, with the right owners on both sides.
	volume("ws", "-o", "from=base:built", "-o", "size=64MB", "-o", "inodes=10k")
	state(api.Unmounted)
	begin("one", "-v", "ws:/workspace")
	require.Equal(t, "from the host", d.in("one", `cat /workspace/file`))
	d.in("one", `cd /workspace; echo root >root; mkdir -m 1777 open`)
	d.in("one", `cd /workspace/open; echo somebody >mine; ! echo x 2>/dev/null >>../root`, "--user", "somebody")
	at := d.mountpointOf("ws")
	require.Equal(t, h.workspace("ws").Mountpoint, at)
	require.Equal(t, "0 0 644\n1000 1000 644\n", shell(t, soon, at, `stat -c '%u %g %a' root open/mine`))
	shell(t, soon, at, `chown 33:34 file`)
	require.Equal(t, "33 34", d.in("one", `stat -c '%u %g' /workspace/file`))

	// Files that are copied come and go with the container running, and it keeps the mount.
	d.ok("cp", h.path("src"), "one:/workspace/copied")
	require.Equal(t, "from the host", d.in("one", `cat /workspace/copied/file; rm -r /workspace/copied`))
	d.ok("cp", "one:/workspace/open/mine", h.path("out"))
	require.Equal(t, "somebody\n", h.read("out"))
	state(api.Mounted)

	// A snapshot while it runs, a branch of that in a second container, and back.
	h.ok("snapshot", "ws", "--name", "first")
	volume("two", "-o", "from=ws:first")
	begin("two", "-v", "two:/workspace")
	d.in("two", `cd /workspace; rm root; echo two >two`)
	require.Equal(t, "file open root", d.in("one", `cd /workspace; echo *`))
	require.Equal(t, "file open two", d.in("two", `cd /workspace; echo *`))
	d.in("one", `cd /workspace; rm file; echo junk >junk`)
	h.ok("rollback", "ws", "ws:first")
	require.Equal(t, "file open root", d.in("one", `cd /workspace; echo *`))

	// It is mounted for as long as one container uses it, however the others end.
	begin("three", "-v", "ws:/workspace:ro")
	d.ok("kill", "one")
	d.ok("rm", "one")
	require.Equal(t, "root", d.in("three", `cat /workspace/root`))
	d.fails("in use", "volume", "rm", "ws")
	state(api.Mounted)
	d.ok("rm", "-f", "three")
	state(api.Unmounted)

	// The daemon dies: the container goes on, and so does the plugin.
	begin("one", "-v", "ws:/workspace", "--restart", "no")
	require.NoError(t, unix.Kill(h.pid(), unix.SIGKILL))
	d.in("one", `echo after >>/workspace/root`)
	require.Equal(t, "root\nafter", d.in("one", `cat /workspace/root`))
	require.Equal(t, at, d.mountpointOf("ws"))
	begin("four", "-v", "ws:/workspace")
	require.Equal(t, "after", d.in("four", `tail -n 1 /workspace/root`))

	// Docker dies, too. What it ran is stopped when it comes back, and what it forgot to end does not last.
	d.end(unix.SIGKILL)
	d.start()
	require.Equal(t, "false", d.ok("inspect", "--format", "{{.State.Running}}", "one"))
	d.ok("start", "one")
	require.Equal(t, "root\nafter", d.in("one", `cat /workspace/root`))
	d.ok("stop", "one")
	state(api.Unmounted)

	// The daemon ends, and the next one, which a verb starts, serves volumes, too.
	h.ok("stop")
	require.NoFileExists(t, filepath.Join(pluginDirectory, driver+".sock"))
	h.ok("list")
	d.ok("start", "one")
	require.Equal(t, "root\nafter", d.in("one", `cat /workspace/root`))

	// Containers go on while another Docker takes over, also when the daemon is killed with it.
	d.liveRestore = true
	d.end(unix.SIGKILL)
	d.start()
	d.ok("start", "one") // it was stopped, as the last one did not know
	d.ok("exec", "-d", "one", "sh", "-c", `cd /workspace; exec 3>>held; echo before >&3; until [ -e go ]; do sleep 0.1; done; echo after >&3; mv go gone`)
	d.in("one", `until [ -s /workspace/held ]; do sleep 0.1; done`)
	d.end(unix.SIGTERM)
	d.start()
	require.NoError(t, unix.Kill(h.pid(), unix.SIGKILL))
	d.end(unix.SIGKILL)
	d.start()
	require.Equal(t, "true", d.ok("inspect", "--format", "{{.State.Running}}", "one"))
	require.Equal(t, "before\nafter", d.in("one", `cd /workspace; touch go; until [ -e gone ]; do sleep 0.1; done; cat held`))
	d.ok("cp", h.path("src/file"), "one:/workspace/live")
	state(api.Mounted)

	// A full quota is ENOSPC in the container, and what it has frees it.
	const free = `df -k /workspace | awk 'NR == 2 { print $2, $4 }'`
	require.Regexp(t, `^62500 62\d\d\d$`, d.in("one", free))
	require.Contains(t, d.in("one", `cd /workspace; ! dd if=/dev/urandom of=big bs=1M count=100 2>&1`), "No space left on device")
	require.Equal(t, "62500 0", d.in("one", free))
	d.in("one", `cd /workspace; ! echo x 2>/dev/null >more; rm big; echo goes on >after`, "--user", "root")

	// All ends. Snapshots stay; so does, for a while, what none of them has.
	d.ok("rm", "-f", "one", "two", "four")
	d.ok(d.container("run", "--rm", "-v", "ws:/workspace", "box", "true")...) // the engine that was killed has forgotten one
	state(api.Unmounted)
	d.ok("volume", "rm", "ws", "two")
	h.fails(3, "not found", "show", "ws")
	require.Equal(t, "first", h.snapshot("ws:first").Name)
	require.Empty(t, d.volumes())
	require.ElementsMatch(t, []string{"app", "base"}, workspaceNames(h))
}

// workspaceNames are those of all workspaces.
func workspaceNames(h *home) (all []string) {
	h.t.Helper()
	for _, w := range decode[sandbox.WorkspacePage](h, "list").Workspaces {
		all = append(all, w.ID)
	}
	return all
}

// TestDockerVolumesRefused: what the plugin refuses, Docker says.
func TestDockerVolumesRefused(t *testing.T) {
	h := newHome(t)
	d := newDocker(h)
	driver := d.serveVolumes()
	create := []string{"volume", "create", "-d", driver}
	d.fails("unknown option", append(create, "-o", "form=app", "theirs")...)
	d.fails("engine of a volume is fuse, kernel or auto", append(create, "-o", "engine=steam", "theirs")...)
	d.fails("engine=kernel has no limits", append(create, "-o", "engine=kernel", "-o", "size=1G", "theirs")...)
	d.fails("not found", append(create, "-o", "from=none:built", "theirs")...)
	d.fails("want a number such as 10G", append(create, "-o", "size=much", "theirs")...)
	d.fails("-o workspace=app", append(create, "app")...)
	d.fails("not found", append(create, "-o", "workspace=none", "theirs")...)
	require.Empty(t, d.volumes())

	// A workspace that is there keeps its place, and stays when the volume goes.
	h.ok("mount", "app", h.makeDir("app"))
	d.ok(append(create, "-o", "workspace=app", "theirs")...)
	d.box()
	d.ok(d.container("run", "--rm", "-v", "theirs:/workspace", "box", "sh", "-c", "echo from inside >/workspace/file")...)
	require.Equal(t, "from inside\n", shell(t, soon, h.path("app"), `cat file`))

	// At two places, one of them read-only; copied to while no container runs; and a volume without a name, which goes with its
	// container.
	script := `echo twice >/b/file; cat /a/file; ! echo x 2>/dev/null >/a/x`
	require.Equal(t, "twice", d.ok(d.container("run", "--rm", "-v", "theirs:/a:ro", "-v", "theirs:/b", "box", "sh", "-ec", script)...))
	d.ok(d.container("create", "--name", "idle", "-v", "theirs:/workspace", "box", "true")...)
	d.ok("cp", h.write("copied", "copied\n"), "idle:/workspace")
	require.Equal(t, "copied\n", shell(t, soon, h.path("app"), `cat copied`))
	d.ok("rm", "idle")
	script = `echo x >/data/x; grep -c ' /data fuse.snapfs ' /proc/mounts`
	require.Equal(t, "1", d.ok(d.container("run", "--rm", "-v", "/data", "--volume-driver", driver, "box", "sh", "-ec", script)...))
	require.Equal(t, []string{"app"}, workspaceNames(h))
	d.ok("volume", "rm", "theirs")
	require.Equal(t, h.path("app"), h.workspace("app").Mountpoint)

	// Docker puts what the image has into an empty volume, with owners. A file tells of a plugin that is elsewhere: here at the
	// socket of the home, where root may do everything.
	spec := "/etc/docker/plugins/" + driver + "-too.spec" // d.volumes knows of it
	require.NoError(t, os.MkdirAll(filepath.Dir(spec), 0o755))
	t.Cleanup(func() { _ = os.Remove(spec) }) // it is there if the test got that far
	require.NoError(t, os.WriteFile(spec, []byte("unix://"+filepath.Join(h.dir, "daemon.sock")+"\n"), 0o644))
	d.ok("volume", "create", "-d", driver+"-too", "fresh")
	require.Equal(t, "root:x:0:0::/:/bin/sh", d.ok(d.container("run", "--rm", "-v", "fresh:/etc", "box", "head", "-n", "1", "/etc/passwd")...))
	require.Equal(t, "1000", d.ok(d.container("run", "--rm", "-v", "own:/home/somebody", "--volume-driver", driver, "--user", "somebody", "box",
		"sh", "-c", "echo x >/home/somebody/x; stat -c %u /home/somebody/x")...))
	d.ok("volume", "rm", "fresh", "own")

	// A name that no workspace can have.
	d.ok(append(create, "Odd_Name.1")...)
	var v []struct{ Status struct{ Workspace string } }
	require.NoError(t, json.Unmarshal([]byte(d.ok("volume", "inspect", "Odd_Name.1")), &v))
	require.True(t, strings.HasPrefix(v[0].Status.Workspace, "odd-name-1-"), v[0].Status.Workspace)
	d.ok("volume", "rm", "Odd_Name.1")
}
