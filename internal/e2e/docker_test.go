package e2e

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// docker is a Docker engine of a test's own: containerd and dockerd on sockets in a directory of their own, without
// networks. They see the mounts of the test, and nothing of an engine of the machine.
type docker struct {
	h           *home
	dir         string // short: paths of sockets are bounded
	cgroup      string // of its containers, below the mount of each hierarchy
	liveRestore bool   // containers go on without the engine
	flags       []string
	socket      string // of the test's plugin; "": there is none

	containerd, engine *exec.Cmd // nil: not running
}

// newDocker starts an engine that ends with the test. Containers, volumes and what the engine has mounted are then gone.
func newDocker(h *home, flags ...string) *docker {
	h.t.Helper()
	dir, err := os.MkdirTemp("", "dkr-")
	require.NoError(h.t, err)
	d := &docker{h: h, dir: dir, cgroup: "snapfs-" + filepath.Base(dir), flags: flags}
	h.t.Cleanup(d.close)
	require.NoError(h.t, os.Chmod(dir, 0o711)) // for root of a container with a user namespace
	for name, text := range map[string]string{
		"containerd.toml": "version = 2\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\", \"io.containerd.snapshotter.v1.devmapper\", " +
			"\"io.containerd.snapshotter.v1.zfs\", \"io.containerd.snapshotter.v1.btrfs\"]\n",
		"dockerd.json": "{}\n",
	} {
		require.NoError(h.t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	d.start()
	return d
}

func (d *docker) path(name string) string { return filepath.Join(d.dir, name) }

// env is the environment of what belongs to the test; clean-ups find it by that.
func (d *docker) env() []string { return append(os.Environ(), d.h.env...) }

// start starts what does not run of the engine, and waits until it answers.
func (d *docker) start() {
	d.h.t.Helper()
	if d.containerd == nil {
		d.containerd = d.background("containerd", "--config", d.path("containerd.toml"), "--root", d.path("containerd"),
			"--state", d.path("containerd-run"), "--address", d.path("containerd.sock"), "--log-level", "warn")
		d.await(d.containerd, "containerd", func() bool {
			_, err := os.Stat(d.path("containerd.sock"))
			return err == nil
		})
	}
	d.engine = d.background("dockerd", append(d.flags, "--config-file", d.path("dockerd.json"), "--data-root", d.path("data"), "--exec-root", d.path("run"),
		"--pidfile", d.path("dockerd.pid"), "--host", "unix://"+d.path("docker.sock"), "--containerd", d.path("containerd.sock"),
		"--group", "root", "--storage-driver", "vfs", "--cgroup-parent", "/"+d.cgroup, "--exec-opt", "native.cgroupdriver=cgroupfs",
		"--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false", "--userland-proxy=false",
		fmt.Sprintf("--live-restore=%t", d.liveRestore), "--shutdown-timeout=1", "--log-level=warn")...)
	d.await(d.engine, "dockerd", func() bool { return d.run("version").code == 0 })
}

// background starts a program of the engine, whose output is a file of its name.
func (d *docker) background(program string, args ...string) *exec.Cmd {
	d.h.t.Helper()
	out, err := os.OpenFile(d.path(program+".log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	require.NoError(d.h.t, err)
	defer func() { _ = out.Close() }() // the program has its own
	cmd := exec.Command(program, args...)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = d.env(), "/", out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(d.h.t, cmd.Start())
	return cmd
}

// await waits until a program is ready.
func (d *docker) await(cmd *exec.Cmd, program string, ready func() bool) {
	d.h.t.Helper()
	for begin := time.Now(); !ready(); time.Sleep(20 * time.Millisecond) {
		if time.Since(begin) > time.Minute || hasExited(cmd.Process.Pid) {
			log, _ := os.ReadFile(d.path(program + ".log")) // it may have written nothing
			d.h.t.Fatalf("%s is not ready after %v:\n%s", program, time.Since(begin), tail(string(log)))
		}
	}
}

// hasExited reports whether a child of this process has ended, and leaves it to be waited for.
func hasExited(pid int) bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return err != nil || info.Signo != 0
}

// end ends dockerd with a signal. Containers go on after SIGKILL, or with liveRestore.
func (d *docker) end(signal syscall.Signal) {
	d.h.t.Helper()
	if d.engine == nil {
		return
	}
	d.finish(d.engine, signal)
	d.engine = nil
}

// finish ends a program.
func (d *docker) finish(cmd *exec.Cmd, signal syscall.Signal) {
	_ = cmd.Process.Signal(signal) // it may have ended
	late := time.AfterFunc(time.Minute, func() {
		d.h.t.Errorf("%s does not end", cmd.Path)
		_ = cmd.Process.Kill()
	})
	defer late.Stop()
	_ = cmd.Wait() // how it ends is not what is tested
}

// close ends the engine with all that belongs to it.
func (d *docker) close() {
	if d.engine != nil && !hasExited(d.engine.Process.Pid) {
		if ids := strings.Fields(d.run("ps", "-aq").out); len(ids) > 0 {
			d.run(append([]string{"rm", "-f", "-v"}, ids...)...)
		}
		if names := d.volumes(); len(names) > 0 {
			d.run(append([]string{"volume", "rm"}, names...)...)
		}
	}
	if d.h.t.Failed() {
		for _, program := range []string{"dockerd", "containerd"} {
			log, _ := os.ReadFile(d.path(program + ".log")) // it may have written nothing
			d.h.t.Logf("%s:\n%s", program, tail(string(log)))
		}
	}
	d.end(unix.SIGTERM)
	if d.containerd != nil {
		d.finish(d.containerd, unix.SIGTERM)
	}
	// What is left of containers that could not be removed. Processes of a container have the mark, too.
	for _, pid := range marked(d.h.tmp) {
		if line := commandLine(pid); strings.Contains(line, d.dir) || inContainer(pid) {
			d.h.t.Logf("ends process %d: %s", pid, line)
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
	for _, m := range mountsBelow(d.dir) {
		_ = unix.Unmount(m.dir, unix.MNT_DETACH) // a layer, or a network namespace
	}
	removeCgroups(d.h.t, d.cgroup)
	if d.socket != "" {
		_ = os.Remove(d.socket) // it is gone but for a test that failed, and was needed until now
	}
	require.NoError(d.h.t, os.RemoveAll(d.dir))
}

// inContainer reports whether a process has another pid namespace than this one.
func inContainer(pid int) bool {
	own, _ := os.Readlink("/proc/self/ns/pid") // proc is there
	its, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid))
	return err == nil && its != own
}

// removeCgroups removes the control groups of containers, in each hierarchy. What is in them is about to end.
func removeCgroups(t *testing.T, parent string) {
	t.Helper()
	for begin := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		groups, _ := filepath.Glob("/sys/fs/cgroup/*/" + parent) // the pattern is well formed
		var dirs []string
		for _, group := range append(groups, "/sys/fs/cgroup/"+parent) {
			_ = filepath.WalkDir(group, func(path string, d fs.DirEntry, err error) error {
				if err == nil && d.IsDir() {
					dirs = append(dirs, path)
				}
				return nil // what is gone is as it should be
			})
		}
		if len(dirs) == 0 {
			return
		}
		if time.Since(begin) > time.Minute {
			t.Errorf("left: control groups %q", dirs)
			return
		}
		for _, dir := range slices.Backward(dirs) {
			_ = unix.Rmdir(dir) // in the next round
		}
	}
}

// run runs a command of the engine.
func (d *docker) run(args ...string) result {
	d.h.t.Helper()
	return process(d.h.t, soon, d.h.tmp, d.clientEnv(), append([]string{"docker"}, args...)...)
}

// clientEnv is the environment of the engine's commands.
func (d *docker) clientEnv() []string {
	return append(slices.Clone(d.h.env), "DOCKER_HOST=unix://"+d.path("docker.sock"), "DOCKER_CONFIG="+d.dir)
}

// ok runs a command of the engine that has to succeed, and gives its standard output without the last newline.
func (d *docker) ok(args ...string) string {
	d.h.t.Helper()
	r := d.run(args...)
	require.Zero(d.h.t, r.code, "docker %q: %s%s", args, r.out, r.err)
	return strings.TrimSuffix(r.out, "\n")
}

// fails runs a command of the engine that has to fail, with a text in what it says.
func (d *docker) fails(text string, args ...string) {
	d.h.t.Helper()
	if r := d.run(args...); r.code == 0 || !strings.Contains(r.err, text) {
		d.h.t.Errorf("docker %q ended with %d: %s%s, want %q", args, r.code, r.out, r.err, text)
	}
}

// container is a command line, from run or create on, for a container without a network. Its processes have the mark of
// the test, and end at once when they are to.
func (d *docker) container(verb string, options ...string) []string {
	line := []string{verb, "--network", "none", "--stop-signal", "KILL"}
	for _, name := range []string{"SNAPFS_E2E", "SNAPFS_CI_MARK"} {
		line = append(line, "--env", name)
	}
	return append(line, options...)
}

// driver is the name of the test's own plugin. Engines see the plugins of other tests, too, and of the machine.
func (d *docker) driver() string { return "snapfs-" + filepath.Base(d.dir) }

// volumes are those of the engine, and of the test's plugin.
func (d *docker) volumes() []string {
	d.h.t.Helper()
	line := []string{"volume", "ls", "-q"}
	for _, driver := range []string{"local", d.driver(), d.driver() + "-too"} {
		line = append(line, "--filter", "driver="+driver)
	}
	return strings.Fields(d.ok(line...))
}

// in runs a shell command in a container that runs, and gives its output without the last newline.
func (d *docker) in(container, script string, options ...string) string {
	d.h.t.Helper()
	return d.ok(append(append([]string{"exec"}, options...), container, "sh", "-ec", script)...)
}

// box makes the image "box": busybox, of Debian's busybox-static, and the users root and somebody (1000).
func (d *docker) box() {
	d.h.t.Helper()
	d.ok("import", "--change", "ENV PATH=/bin", "--change", `CMD ["sh"]`, boxArchive(d.h), "box")
}

// boxArchive makes a tar file with the tree of the image "box".
func boxArchive(h *home) string {
	h.t.Helper()
	shell(h.t, soon, h.makeDir("box"), `mkdir -p bin etc tmp workspace home/somebody
		cp "$(command -v busybox)" bin/busybox
		bin/busybox --install bin
		printf 'root:x:0:0::/:/bin/sh\nsomebody:x:1000:1000::/:/bin/sh\n' >etc/passwd
		printf 'root:x:0:\nsomebody:x:1000:\n' >etc/group
		chmod 1777 tmp
		chown -hR 0:0 .
		chown 1000:1000 home/somebody
		tar --numeric-owner -cf ../box.tar .`)
	return h.path("box.tar")
}
