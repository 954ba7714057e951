package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"snapfs/sandbox"
)

// TestRunInside runs commands that see the workspace at the path of the directory that it is made from.
func TestRunInside(t *testing.T) {
	h := newHome(t)
	h.makeDir("src/sub")
	src := h.path("src")
	h.write("src/file", "old\n")
	in := func(dir string, args ...string) result {
		return process(t, soon, dir, h.env, append([]string{snapfs, "run"}, args...)...)
	}
	r := in(src, "--", "sh", "-c", `pwd; cat `+src+`/file; echo new > `+src+`/file; readlink -f file; exit 3`)
	require.Equal(t, 3, r.code, r.err)
	require.Equal(t, src+"\nold\n"+src+"/file\nM file\n", r.out)
	require.Equal(t, "old\n", h.read("src/file"))
	r = in(h.path("src/sub"), "--from", "..", "--discard", "--", "sh", "-c", `echo $PWD; touch made`)
	require.Equal(t, src+"/sub\nA sub/made\n", r.out, r.err)
	r = in(src, "--", "no-such-program")
	require.Equal(t, 127, r.code)
	require.Contains(t, r.err, "no-such-program: not found in PATH")
	require.Equal(t, 126, in(src, "--", "/etc/passwd").code)
	require.Equal(t, 137, in(src, "--", "sh", "-c", "kill -9 $$").code)
	require.Equal(t, 2, in(src, "--keep", "--discard", "--", "true").code)
	r = in(h.tmp, "--", "true")
	require.NotZero(t, r.code)
	require.Contains(t, r.err, "contains the home")
	r = in("/", "--", "true")
	require.Equal(t, 2, r.code)
	require.Contains(t, r.err, "choose a directory")
	r = process(t, soon, src, append([]string{"HOME=" + h.path("src/sub")}, h.env...), snapfs, "run", "--", "true")
	require.Equal(t, 2, r.code)
	require.Contains(t, r.err, "home directory")
	r = in(h.dir, "--", "true")
	require.Equal(t, 2, r.code)
	require.Contains(t, r.err, "inside the home")

	// What the command leaves behind is named, and holds the workspace.
	r = in(src, "--name", "held", "--", "sh", "-c", `sleep 1000 >/dev/null 2>&1 </dev/null & until grep -qx sleep /proc/$!/comm; do :; done; echo $!`)
	pid, err := strconv.Atoi(strings.TrimSpace(r.out))
	require.NoError(t, err, r.out)
	require.NoError(t, unix.Kill(pid, unix.SIGKILL))
	gone(t, pid)
	require.Equal(t, 4, r.code, r.err)
	require.Contains(t, r.err, "workspace held is left")
	require.Contains(t, r.err, fmt.Sprintf("process %d (sleep)", pid))
	h.ok("destroy", "held")

	require.Empty(t, decode[sandbox.WorkspacePage](h, "list").Workspaces)
	require.Empty(t, mountsBelow(h.tmp))
}

// TestRunPaths runs commands in trees that name their own paths: a virtual environment, a worktree of git, and one with a
// mount inside.
func TestRunPaths(t *testing.T) {
	h := newHome(t)
	in := func(dir string, script string) result {
		return process(t, soon, dir, h.env, snapfs, "run", "--", "bash", "-euc", script)
	}
	shell(t, soon, h.makeDir("work"), `umask 022; python3 -m venv --without-pip venv
		git init -q main; cd main; git config user.name n; git config user.email e@x; echo one > f; git add f; git commit -qm one
		git worktree add -q ../tree; cd ..; mkdir -p mounted/inner mounted/dir; echo there > mounted/inner/f; touch mounted/file`)
	venv := h.path("work/venv")
	r := in(venv, `. bin/activate; python -c 'import sys; open(sys.prefix + "/made", "w").write(sys.prefix)'; cat made`)
	require.Equal(t, venv+"A made\n", r.out, r.err)
	require.NoFileExists(t, venv+"/made")
	r = in(h.path("work/tree"), `echo two > f; git status --short; git rev-parse --show-toplevel; git worktree list | wc -l`)
	require.Equal(t, " M f\n"+h.path("work/tree")+"\n2\nM f\n", r.out, r.err)
	require.Empty(t, shell(t, soon, h.path("work/tree"), `git status --short`))

	mounted := h.path("work/mounted")
	inner := `mount --bind "$1/inner" "$1/dir"; mount --bind "$1/inner/f" "$1/file"; cd "$1"; shift; exec "$@"`
	r = process(t, soon, h.tmp, h.env, "unshare", "--mount", "sh", "-euc", inner, "sh", mounted,
		snapfs, "run", "--", "sh", "-c", `cat dir/f file; ! touch dir/g 2>/dev/null; ! echo > file; touch new`)
	require.Zero(t, r.code, r.err)
	require.Equal(t, "there\nthere\nA new\n", r.out)
	require.Empty(t, decode[sandbox.WorkspacePage](h, "list").Workspaces)
}

// TestRunApply brings home what commands have changed, also beside what was changed meanwhile.
func TestRunApply(t *testing.T) {
	h := newHome(t)
	src := h.makeDir("src")
	h.write("src/file", "1\n2\n3\n4\n5\n")
	h.write("src/gone", "")
	in := func(name, flag, script string) result {
		return process(t, soon, src, h.env, snapfs, "run", "--json", "--name", name, flag, "--", "sh", "-c", script)
	}
	doc := func(r result) (got struct {
		Applied, Kept bool
		Conflicts     []sandbox.ApplyConflict
	},
	) {
		require.NoError(t, json.Unmarshal([]byte(r.out), &got), r.out+r.err)
		return got
	}
	// PPID is snapfs itself, which sees the directory.
	meanwhile := `nsenter --mount=/proc/$PPID/ns/mnt sh -c 'sed -i s/1/one/ "$0/file"' "$PWD"; `
	r := in("merged", "--apply", meanwhile+`sed -i s/5/five/ file; mkdir d; echo made > d/made; rm gone; exit 3`)
	require.Equal(t, 3, r.code, r.err)
	require.True(t, doc(r).Applied)
	require.Equal(t, "one\n2\n3\n4\nfive\n", h.read("src/file"))
	require.Equal(t, "made\n", h.read("src/d/made"))
	require.NoFileExists(t, src+"/gone")

	r = in("conflicts", "--apply", `sed -i s/^3/changed/ file; `+strings.Replace(meanwhile, "s/1/one/", "s/^3/other/", 1))
	require.Equal(t, 4, r.code, r.err)
	require.Len(t, doc(r).Conflicts, 1)
	require.Contains(t, r.err, "workspace conflicts is kept")
	require.False(t, doc(r).Applied)
	require.True(t, doc(r).Kept)
	require.Equal(t, "one\n2\nother\n4\nfive\n", h.read("src/file"))
	h.ok("apply", "conflicts", "--to", src, "--theirs")
	require.Equal(t, "one\n2\nchanged\n4\nfive\n", h.read("src/file"))
	h.ok("destroy", "conflicts", "--now")

	r = in("nothing", "--apply", "true")
	require.Zero(t, r.code, r.err)
	require.False(t, doc(r).Applied)
	require.Equal(t, 2, process(t, soon, src, h.env, snapfs, "run", "--apply", "--empty", "--", "true").code)
	require.Equal(t, 2, process(t, soon, src, h.env, snapfs, "run", "--apply", "--keep", "--", "true").code)
	require.Empty(t, decode[sandbox.WorkspacePage](h, "list").Workspaces)
	require.Empty(t, mountsBelow(h.tmp))
	require.Empty(t, decode[sandbox.CheckResult](h, "check").Problems)
}

// userRun runs commands of a user, who may not mount outside of a namespace of the user's own.
func userRun(t *testing.T) {
	h := homeOf(t)
	for _, dir := range []string{"user/project", "user/secret"} {
		h.makeDir(dir)
	}
	h.write("user/project/file", "old\n")
	project := h.path("user/project")
	env := append(append([]string{}, h.env...), "HOME="+h.path("user"))
	for _, sandboxed := range []string{"--sandbox=false", "--sandbox"} {
		r := process(t, soon, project, env, snapfs, "run", sandboxed, "--", "sh", "-euc",
			`pwd; cat "$PWD/file"; echo new > file; id -u; ls ..; [ "$(id -u)" = 0 ] || ! umount "$PWD" 2>/dev/null`)
		require.Zero(t, r.code, r.err)
		uid := strconv.Itoa(os.Geteuid())
		secret := "secret\n"
		closed := process(t, soon, project, env, snapfs, "run", sandboxed, "--", snapfs, "--home", h.dir, "show", "none")
		if sandboxed == "--sandbox" {
			secret = ""
			require.NotContains(t, closed.err, "not found", "the daemon is reached")
		} else {
			require.Contains(t, closed.err, "not found")
		}
		require.Equal(t, project+"\nold\n"+uid+"\nproject\n"+secret+"M file\n", r.out, r.err)
		require.Equal(t, "old\n", h.read("user/project/file"))
	}
	require.Empty(t, decode[sandbox.WorkspacePage](h, "list").Workspaces)
	require.Empty(t, mountsBelow(h.tmp))
}

// TestRunSandbox holds what a command in a sandbox sees and may write.
func TestRunSandbox(t *testing.T) {
	h := newHome(t)
	for _, dir := range []string{"user/bin", "user/project", "user/secret", "user/tools/lib"} {
		h.makeDir(dir)
	}
	h.write("user/bin/tool", "#!/bin/sh\necho tool\n")
	h.write("user/tools/lib/x", "lib\n")
	h.write("user/project/file", "old\n")
	require.NoError(t, os.Chmod(h.path("user/bin/tool"), 0o755))
	user := h.path("user")
	env := append(append([]string{}, h.env...), "HOME="+user, "PATH="+user+"/bin:"+os.Getenv("PATH"))
	script := `tool; ls ~; cat ~/tools/lib/x; echo new > file; touch /tmp/$0 && rm /tmp/$0; echo > /dev/null
for f in /etc/$0 ~/bin/$0 ~/tools/$0 /usr/$0; do ! touch $f 2>/dev/null || echo wrote $f; done`
	name := fmt.Sprintf("snapfs-e2e-%d", os.Getpid())
	r := process(t, soon, user+"/project", env, snapfs, "run", "--sandbox", "--show", "../tools", "--", "sh", "-c", script, name)
	require.Zero(t, r.code, r.err)
	require.Equal(t, "tool\nbin\nproject\ntools\nlib\nM file\n", r.out)
	require.Contains(t, r.err, user+": hidden but for the workspace and, read-only, ")
	require.Contains(t, r.err, user+"/bin")
	require.Equal(t, "old\n", h.read("user/project/file"))
	require.NoFileExists(t, "/etc/"+name)
	r = process(t, soon, user, env, snapfs, "run", "--sandbox", "--", "true")
	require.Equal(t, 2, r.code)
	require.Contains(t, r.err, "choose a directory of a project")
	r = process(t, soon, user, env, snapfs, "run", "--sandbox", "--empty", "--", "true")
	require.Equal(t, 2, r.code)
	require.Empty(t, mountsBelow(h.tmp))
}

// terminal is a session with a terminal of its own.
type terminal struct {
	t   *testing.T
	pty *os.File
	cmd *exec.Cmd
	out *bufio.Reader
}

func openTerminal(t *testing.T, h *home, dir string, args ...string) *terminal {
	t.Helper()
	pty, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = pty.Close() })
	require.NoError(t, unix.IoctlSetPointerInt(int(pty.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(pty.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	defer func() { _ = tty.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), h.env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	cmd.WaitDelay = time.Second
	require.NoError(t, cmd.Start())
	context.AfterFunc(ctx, func() { _ = pty.Close() }) // so that reading ends
	return &terminal{t: t, pty: pty, cmd: cmd, out: bufio.NewReader(pty)}
}

// until reads until the terminal shows a text.
func (c *terminal) until(text string) {
	c.t.Helper()
	var all strings.Builder
	for !strings.Contains(all.String(), text) {
		b, err := c.out.ReadByte()
		require.NoError(c.t, err, all.String())
		all.WriteByte(b)
	}
}

func (c *terminal) send(text string) {
	c.t.Helper()
	_, err := c.pty.WriteString(text)
	require.NoError(c.t, err)
}

// ends waits for the end and gives the exit code.
func (c *terminal) ends() int {
	_ = c.cmd.Wait() // its code is what counts
	return c.cmd.ProcessState.ExitCode()
}

// TestRunTerminal runs commands on a terminal: keys reach them, a shell controls its jobs, and the question at the end is
// asked in the foreground.
func TestRunTerminal(t *testing.T) {
	h := newHome(t)
	src := h.makeDir("src")
	h.ok("create", "other") // so that a daemon is there

	c := openTerminal(t, h, src, snapfs, "run", "--name", "one", "--", "sh", "-c", "touch made; exit 3")
	c.until("[a/k/d] ")
	c.send("what\n")
	c.until("[a/k/d] ")
	c.send("keep\n")
	require.Equal(t, 3, c.ends())
	require.Equal(t, sandbox.Unmounted, h.workspace("one").State)
	h.ok("destroy", "one")

	c = openTerminal(t, h, src, snapfs, "run", "--name", "two", "--", "sh", "-c", "touch made; echo ready; read line")
	c.until("ready")
	c.send("\x03")
	c.until("[a/k/d] ")
	c.send("d\n")
	require.Equal(t, 130, c.ends())
	h.fails(3, "two", "show", "two")

	// What was changed is brought home, and taken back.
	h.write("src/file", "old\n")
	c = openTerminal(t, h, src, snapfs, "run", "--name", "home", "--", "sh", "-c", "echo new > file; echo ready")
	c.until("[a/k/d] ")
	c.send("a\n")
	c.until("apply --undo")
	require.Zero(t, c.ends())
	require.Equal(t, "new\n", h.read("src/file"))
	h.fails(3, "home", "show", "home")
	h.ok("apply", "--undo", src)
	require.Equal(t, "old\n", h.read("src/file"))
	require.NoError(t, os.Remove(h.path("src/file")))

	// A key is what the command takes it for.
	c = openTerminal(t, h, src, snapfs, "run", "--discard", "--name", "again", "--", "python3", "-c", `
import signal, sys
keys = {signal.SIGINT, signal.SIGQUIT}
signal.pthread_sigmask(signal.SIG_BLOCK, keys)
print("ready", flush=True)
for _ in keys:
    print("caught", signal.sigwait(keys).name, flush=True)
print("got", input())
sys.exit(5)`)
	c.until("ready")
	c.send("\x03")
	c.until("caught SIGINT")
	c.send("\x1c")
	c.until("caught SIGQUIT")
	c.send("line\n")
	c.until("got line")
	require.Equal(t, 5, c.ends())

	// A shell stops and continues it.
	c = openTerminal(t, h, src, "env", "PS1=prompt:", "bash", "--norc", "-i")
	c.until("prompt:") // a key that comes while bash sets the terminal up may be lost
	c.send(`"` + snapfs + `" run --discard -- sh -c 'echo rea""dy; read line; echo "got $line"; exit 6'; echo "status $?"` + "\n")
	c.until("ready")
	c.send("\x1a")
	c.until("Stopped")
	c.until("status 148")
	c.until("prompt:")
	c.send("fg; exit $?\n")
	c.until("read line") // bash shows what it continues
	c.send("last\n")
	c.until("got last")
	require.Equal(t, 6, c.ends())

	// A shell with job control is killed while a job has the terminal: the question is asked all the same.
	c = openTerminal(t, h, src, snapfs, "run", "--name", "three", "--", "bash", "--norc", "-i", "-c",
		`set -m; touch made; (kill -9 $$; echo killed)`)
	c.until("[a/k/d] ")
	c.send("d\n")
	require.Equal(t, 137, c.ends())
	h.fails(3, "three", "show", "three")
	require.Empty(t, mountsBelow(h.tmp))
}
