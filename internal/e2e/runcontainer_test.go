package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"snapfs/sandbox"
)

// TestRunContainer runs commands in containers of both engines.
func TestRunContainer(t *testing.T) {
	h := newHome(t)
	h.write("src/file", "from the host\n")
	p := newPodman(h, filepath.Join(h.tmp, "none.sock"))
	d := newDocker(h)
	d.box()
	p.ok("import", "--change", "ENV=PATH=/bin", h.path("box.tar"), "box")
	podman := h.write("podman-here", "#!/bin/sh\nunset DOCKER_CONFIG\nexport CONTAINERS_CONF="+p.dir+"/containers.conf\nexec podman --root "+p.dir+"/root --runroot "+p.dir+
		"/run --tmpdir "+p.dir+"/tmp --storage-driver vfs --runtime runc --cgroup-manager cgroupfs --events-backend none \"$@\"\n")
	require.NoError(t, os.Chmod(podman, 0o755))
	env := append(append([]string{}, h.env...), "DOCKER_HOST=unix://"+d.path("docker.sock"), "DOCKER_CONFIG="+d.dir)
	for _, c := range []struct {
		engine string
		flags  []string
		left   func() string
	}{
		{podman, p.container()[1:], func() string { return p.ok("ps", "-aq") }},
		{"docker", d.container("run")[1:], func() string { return d.ok("ps", "-aq") }},
	} {
		t.Run(filepath.Base(c.engine), func(t *testing.T) {
			run := func(args ...string) result {
				t.Helper()
				line := append([]string{snapfs, "run", "--from", h.path("src"), "--engine-cmd", c.engine, "--container", "box"}, withArgs(c.flags)...)
				return process(t, soon, h.tmp, env, append(line, args...)...)
			}
			r := run("--discard", "--", "sh", "-c", `pwd; cat file; echo made >made; chown 1000:1000 made; rm file; exit 7`)
			require.Equal(t, 7, r.code, r.err)
			require.Equal(t, "/workspace\nfrom the host\nD file\nA made\n", r.out)
			require.Equal(t, "from the host\n", shell(t, soon, h.path("src"), `cat *`))

			kept := "kept-" + filepath.Base(c.engine) // what is destroyed is a snapshot of its name for a time
			r = run("--keep", "--name", kept, "--", "sh", "-c", `echo made >made`)
			require.Zero(t, r.code, r.err)
			require.Contains(t, r.err, "has what is in workspace "+kept)
			require.Len(t, decode[sandbox.SnapshotPage](h, "snapshots", "--workspace", kept).Snapshots, 1)
			r = run("--", "true") // without a terminal it is discarded
			require.Zero(t, r.code, r.err)
			r = run("--name", kept, "--", "true")
			require.Equal(t, 4, r.code, "the name is taken: %s", r.err)
			h.ok("destroy", kept)

			r = run("--apply", "--", "sh", "-c", `echo made >made`)
			require.Zero(t, r.code, r.err)
			require.Equal(t, "made\n", shell(t, soon, h.path("src"), `cat made; rm made`))

			require.Equal(t, 127, run("--", "no-such-command").code)

			// What is sent to snapfs ends the command, and a container that is killed tells so. Neither leaves anything.
			meanwhile := func(script string) result {
				t.Helper()
				require.NoError(t, os.RemoveAll(h.path("out")))
				script = `mkfifo out; engine=$1; shift; "$@" >out & exec 9<out; read line <&9; ` + script + `; wait $!`
				line := []string{"sh", "-c", script, "sh", c.engine, snapfs, "run", "--from", h.path("src"), "--discard", "--engine-cmd", c.engine, "--container", "box"}
				return process(t, soon, h.tmp, env, append(append(line, withArgs(c.flags)...),
					"--", "sh", "-c", `trap 'exit 3' TERM; echo ready; while :; do sleep 0.1; done`)...)
			}
			r = meanwhile(`kill -TERM $!`)
			require.Equal(t, 3, r.code, r.err)
			r = meanwhile(`until "$engine" kill $("$engine" ps -q) >&2; do sleep 0.1; done`) // it may write before the engine knows that it runs
			require.Equal(t, 137, r.code, r.err)

			r = process(t, soon, h.tmp, env, append(append([]string{snapfs, "run", "--from", h.path("src"), "--engine-cmd", c.engine},
				withArgs(append(c.flags, "--pull=never"))...), "--container", "none-such", "--", "true")...)
			require.Equal(t, 125, r.code, r.err)
			require.Contains(t, r.err, "has started no container of image none-such")
			require.Empty(t, c.left())
			require.Empty(t, decode[sandbox.WorkspacePage](h, "list").Workspaces)
		})
	}
	h.fails(7, "cannot be run", "run", "--from", h.path("src"), "--engine-cmd", "no-such-engine", "--container", "box", "--", "true")
	r := process(t, soon, h.tmp, append(env, "PATH="+h.makeDir("empty")), snapfs, "run", "--from", h.path("src"), "--container", "box", "--", "true")
	require.Equal(t, 7, r.code)
	require.Contains(t, r.err, "apt install podman")

	// An engine that dies leaves its container; the workspace stays for it.
	script := `mkfifo gone; dockerd=$1; shift; "$@" >gone & exec 9<gone; read line <&9; kill -KILL $dockerd; wait $! || echo $?`
	line := []string{"sh", "-ec", script, "sh", itoa(d.engine.Process.Pid), snapfs, "run", "--from", h.path("src"), "--discard"}
	line = append(append(line, "--name", "orphan", "--engine-cmd", "docker", "--container", "box"), withArgs(d.container("run")[1:])...)
	r = process(t, soon, h.tmp, env, append(line, "--", "sh", "-c", `echo ready; exec sleep 100000`)...)
	require.Contains(t, r.err, "may still run", r.out)
	d.finish(d.engine, unix.SIGKILL)
	d.start()
	for _, id := range strings.Fields(d.ok("ps", "-aq")) {
		d.run("rm", "-f", id) // the engine removes it itself, too
	}
	h.ok("down", "--destroy", "--force", "orphan")
}

// withArgs gives options of an engine to run --container.
func withArgs(flags []string) []string {
	var line []string
	for _, f := range flags {
		line = append(line, "--container-arg", f)
	}
	return line
}
