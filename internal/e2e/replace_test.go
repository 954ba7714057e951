package e2e

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// replacing is a 'snapfs serve --replace' that runs.
type replacing struct {
	cmd   *exec.Cmd
	err   bytes.Buffer // read it when it has ended
	ended chan struct{}
}

// replace starts one, which ends with the test at the latest.
func (h *home) replace(args ...string) *replacing {
	h.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := &replacing{ended: make(chan struct{})}
	r.cmd = exec.CommandContext(ctx, h.command, append([]string{"serve", "--replace"}, args...)...)
	r.cmd.Dir, r.cmd.Env, r.cmd.WaitDelay, r.cmd.Stderr = h.tmp, append(os.Environ(), h.env...), time.Second, &r.err
	require.NoError(h.t, r.cmd.Start())
	go func() { _ = r.cmd.Wait(); close(r.ended) }() // its code is looked at
	h.t.Cleanup(func() { cancel(); <-r.ended })
	return r
}

// pid is the process that 'snapfs serve' runs as: the client becomes the engine.
func (r *replacing) pid() int { return r.cmd.Process.Pid }

// code is how it has ended, and what it has said.
func (r *replacing) code(t *testing.T) (int, string) {
	t.Helper()
	select {
	case <-r.ended:
	case <-time.After(soon):
		t.Fatal("serve --replace does not end")
	}
	return r.cmd.ProcessState.ExitCode(), r.err.String()
}

// servedBy waits until a process serves.
func (h *home) servedBy(pid int) {
	h.t.Helper()
	require.Eventually(h.t, func() bool {
		r := h.run("--json", "status")
		return r.code == 0 && strings.Contains(r.out, `"pid":`+itoa(pid)+`,`) || strings.Contains(r.out, `"pid": `+itoa(pid)+`,`)
	}, soon, 10*time.Millisecond)
}

// inUse has a program use a directory until the test ends.
func (h *home) inUse(dir string) *exec.Cmd {
	h.t.Helper()
	sleeper := exec.Command("sleep", "1000")
	sleeper.Dir = h.path(dir)
	require.NoError(h.t, sleeper.Start())
	h.t.Cleanup(func() { _ = sleeper.Process.Kill(); _ = sleeper.Wait() }) // it may be killed already
	return sleeper
}

// TestReplace: a daemon takes the place of another one, also one of another version, while programs use its mounts and verbs are called.
// The one before ends.
func TestReplace(t *testing.T) {
	h := newHome(t)
	h.fails(2, "--force is about --replace", "serve", "--force")
	first := h.replace() // nobody serves: it does
	h.servedBy(first.pid())
	h.ok("up", "ws", h.path("ws"), "--transport", "dev")
	h.inUse("ws")
	file, err := os.Create(h.path("ws/file"))
	require.NoError(t, err)
	defer func() { _ = file.Close() }()

	later, err := laterVersion()
	require.NoError(t, err)
	h.command = h.place(later, "prefix/bin/snapfs")
	h.place(later+"-engine", "prefix/libexec/snapfs/snapfs-engine")
	calls := make(chan result, 1)
	stop := make(chan struct{})
	go func() { // the first call that fails, or the last
		for {
			r := h.run("--quiet", "snapshot", "ws")
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
	for before := first; ; {
		_, err := file.WriteString("x")
		require.NoError(t, err)
		next := h.replace()
		h.servedBy(next.pid())
		code, said := before.code(t)
		require.Zero(t, code, said)
		require.Contains(t, said, "another process takes the place of this one")
		if before != first {
			break
		}
		before = next
	}
	close(stop)
	r := <-calls
	require.Zero(t, r.code, r.err)
	require.Equal(t, "v2", decode[struct{ Version string }](h, "status").Version)
	require.Equal(t, "xx", h.read("ws/file"))
	// One that is killed is started as it was, and replaces nobody.
	h.killed()
	require.Equal(t, "xx", h.read("ws/file"))
	require.NotContains(t, commandLine(h.pid()), "--replace")
}

// TestReplaceRefused: where a daemon cannot leave, or is not to, it goes on, and the verb says why.
func TestReplaceRefused(t *testing.T) {
	h := newHome(t)
	h.keepsNothing()
	h.ok("up", "ws", h.path("ws"))
	pid := h.pid()
	sleeper := h.inUse("ws")
	inUse := "cannot go on with: ws at " + h.path("ws") + " by process " + itoa(sleeper.Process.Pid)
	refused := func(code int, text string, args ...string) {
		t.Helper()
		got, said := h.replace(args...).code(t)
		require.Equal(t, code, got, said)
		require.Contains(t, said, text)
		require.Equal(t, pid, h.pid())
	}
	refused(4, inUse)
	refused(1, "is a directory", "--log", h.tmp)
	refused(2, "no-such-kind", "--transport", "no-such-kind")
	require.NoError(t, os.WriteFile(h.path("bad.toml"), []byte("max-snapshots = \"x\""), 0o600))
	refused(2, "bad.toml", "--settings", h.path("bad.toml"))

	// A call that does not end: whoever reads the export does not.
	fifo := h.path("fifo")
	require.NoError(t, unix.Mkfifo(fifo, 0o600))
	h.write("ws/big", strings.Repeat("0123456789abcdef", 1<<19))
	reader, err := os.OpenFile(fifo, os.O_RDWR, 0)
	require.NoError(t, err)
	defer func() { _ = reader.Close() }()
	export := exec.Command("sh", "-c", `exec "$0" export "$1" - > "$2"`, h.command, h.ok("snapshot", "ws"), fifo)
	export.Env = append(os.Environ(), h.env...)
	require.NoError(t, export.Start())
	defer func() { _ = export.Wait() }() // it is killed
	defer func() { _ = export.Process.Kill() }()
	n, err := reader.Read(make([]byte, 1))
	require.NoError(t, err)
	require.Equal(t, 1, n)
	waits := h.replace("--force")
	require.Never(t, func() bool { return h.pid() != pid }, time.Second, 100*time.Millisecond)
	refused(4, "another program is about to take the place", "--force")
	require.NoError(t, unix.Kill(waits.pid(), unix.SIGINT))
	code, said := waits.code(t)
	require.Equal(t, 130, code, said)
	require.Equal(t, pid, h.pid())
	h.ok("snapshot", "ws") // calls are taken again
}

// TestReplaceFails: if a daemon that takes the place of another one does not come to serve, the one before is started again,
// with and without mounts that wait for it.
func TestReplaceFails(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = busy.Close() }()
	for _, kept := range []string{"1", "0"} {
		h := newHome(t)
		if kept == "0" {
			h.keepsNothing()
		}
		h.ok("up", "ws", h.path("ws"), "--transport", "dev")
		h.write("ws/file", "text")
		var file *os.File
		if kept == "1" {
			file, err = os.OpenFile(h.path("ws/file"), os.O_RDWR, 0)
			require.NoError(t, err)
		}
		before := h.pid()
		code, said := h.replace("--metrics", busy.Addr().String()).code(t)
		require.Equal(t, 7, code, said)
		require.Contains(t, said, "address already in use; the daemon before is started again")
		gone(t, before)
		if kept == "1" {
			_, err = file.WriteString("more")
			require.NoError(t, err)
			require.NoError(t, file.Close())
			require.Equal(t, "more", h.read("ws/file"))
		}
		require.Eventually(t, func() bool { return h.run("status").code == 0 }, soon, 10*time.Millisecond)
		require.NotContains(t, commandLine(h.pid()), "--metrics")
		require.NotEmpty(t, h.read("ws/file"))
		h.ok("stop")
	}
}

// TestReplaceAfterKill: a daemon is killed, and before the next one serves, another is told to take its place: it takes that of the
// next one, though it has asked the one before.
func TestReplaceAfterKill(t *testing.T) {
	h := newHome(t)
	h.ok("up", "ws", h.path("ws"), "--transport", "dev")
	h.write("ws/file", "text")
	h.killed() // the next one is a child of the holder, which sees to its end
	s := h.processes()
	halt(t, s.Holder) // nobody starts another
	require.NoError(t, unix.Kill(s.PID, unix.SIGKILL))
	gone(t, s.PID)
	next := h.replace()
	require.Eventually(t, func() bool { return hasSocket(next.pid()) }, soon, time.Millisecond)
	require.NoError(t, unix.Kill(s.Holder, unix.SIGCONT))
	h.servedBy(next.pid())
	require.Equal(t, "text", h.read("ws/file"))
}

// TestReplaceStopped: a daemon that takes the place of another one is asked to stop before it knows that it serves. It ends, with
// all mounts, and the one before is not started again.
func TestReplaceStopped(t *testing.T) {
	h := newHome(t)
	h.ok("up", "ws", h.path("ws"), "--transport", "dev")
	s := h.processes()
	fd, err := unix.PidfdOpen(s.PID, 0)
	require.NoError(t, err)
	defer func() { _ = unix.Close(fd) }()
	next := h.replace()
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(soon.Milliseconds()))
	require.Equal(t, 1, n, "%v", err) // what is asked now waits in the socket
	shell(t, soon, h.dir, `curl -sS --unix-socket daemon.sock -d '{}' http://snapfs/v1/stop`)
	next.code(t)
	gone(t, s.Holder)
	require.Empty(t, mountsBelow(h.tmp))
	h.fails(7, "no daemon", "status")
}

// hasSocket reports whether a process has a socket, as one that waits for an answer.
func hasSocket(pid int) bool {
	dir := "/proc/" + itoa(pid) + "/fd"
	list, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	for _, e := range list {
		if to, err := os.Readlink(dir + "/" + e.Name()); err == nil && strings.HasPrefix(to, "socket:") {
			return true
		}
	}
	return false
}

// TestReplaceTogether: of many that want to take the place of a daemon at the same time, one serves in the end. Each of the
// others was refused, or replaced in turn.
func TestReplaceTogether(t *testing.T) {
	h := newHome(t)
	h.ok("up", "ws", h.path("ws"), "--transport", "dev")
	h.write("ws/file", "text")
	before := h.pid()
	var all []*replacing
	for range 5 {
		all = append(all, h.replace())
	}
	gone(t, before)
	var last *replacing
	require.Eventually(t, func() bool {
		serving := h.daemonPID()
		left := 0
		for _, r := range all {
			select {
			case <-r.ended:
			default:
				left++
				if r.pid() == serving {
					last = r
				}
			}
		}
		return left == 1 && last != nil
	}, soon, 20*time.Millisecond)
	require.Equal(t, last.pid(), h.pid())
	require.Equal(t, "text", h.read("ws/file"))
	for _, r := range all {
		if r == last {
			continue
		}
		code, said := r.code(t)
		refused := strings.Contains(said, "about to take the place") || strings.Contains(said, "has taken the place")
		require.True(t, code == 0 || code == 4 && refused, "%d: %s", code, said)
	}
}

// TestReplaceKilled kills the daemon that leaves, the one that comes, both, or the holder, at every moment of a replacement: a program with an
// open file does not notice. Only if the holder is killed while the daemon before has left and the next has not taken its
// place, what is open is gone, and the next daemon mounts again.
func TestReplaceKilled(t *testing.T) {
	steps := 4
	if long {
		steps = 100
	}
	for _, victim := range []string{"before", "next", "both", "holder"} {
		t.Run(victim, func(t *testing.T) {
			h := newHome(t)
			h.ok("up", "ws", h.path("ws"), "--transport", "dev")
			file, err := os.Create(h.path("ws/file"))
			require.NoError(t, err)
			defer func() { _ = file.Close() }() // which may be another one then
			for i := range steps {
				before := decode[served](h, "status")
				next := h.replace()
				time.Sleep(time.Duration(i) * 120 * time.Millisecond / time.Duration(steps)) // any moment will do
				pids := map[string][]int{
					"before": {before.PID}, "next": {next.pid()}, "both": {before.PID, next.pid()}, "holder": {before.Holder},
				}[victim]
				for _, pid := range pids {
					_ = unix.Kill(pid, unix.SIGKILL) // it may have ended
				}
				write := func() error {
					_, err := file.WriteAt([]byte("x"), int64(i))
					return errors.Join(err, file.Sync())
				}
				err := write()
				gone := errors.Is(err, unix.ENOTCONN) || errors.Is(err, unix.ECONNABORTED) // for a request under way
				if victim == "holder" && gone {                                            // it was killed while nobody else had the mount
					_ = file.Close() // it is dead
					require.Eventually(t, func() bool { return h.run("list").code == 0 }, soon, 10*time.Millisecond)
					file, err = os.OpenFile(h.path("ws/file"), os.O_RDWR, 0)
					require.NoError(t, err)
					err = write()
				}
				require.NoError(t, err)
				require.Eventually(t, func() bool { return h.run("snapshot", "ws").code == 0 }, soon, 10*time.Millisecond)
				require.Equal(t, strings.Repeat("x", i+1), h.read("ws/file"))
				if victim == "holder" { // another one keeps everything
					require.Eventually(t, func() bool {
						now := decode[served](h, "status")
						return now.Holder != 0 && now.Holder != before.Holder
					}, soon, 10*time.Millisecond)
				}
			}
			h.ok("stop")
		})
	}
}

// TestReplaceHolder: a daemon is not asked to leave where its holder does not understand the program that is to take its
// place.
func TestReplaceHolder(t *testing.T) {
	h := newHome(t)
	h.ok("up", "ws", h.path("ws"), "--transport", "dev")
	pid := h.pid()
	socket := filepath.Join(h.dir, "holder.sock")
	require.NoError(t, os.Rename(socket, socket+".own"))
	why := "speaks versions 8 to 9 of its protocol"
	other, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: socket, Net: "unixpacket"})
	require.NoError(t, err)
	go func() { // ends with the listener
		for {
			c, err := other.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 1<<16))
			_, _ = c.Write([]byte(`{"seq":1,"error":"this holder ` + why + `","class":"refused"}`))
			_, _ = c.Read(make([]byte, 1)) // its end
			_ = c.Close()
		}
	}()
	for _, force := range [][]string{nil, {"--force"}} {
		code, said := h.replace(force...).code(t)
		require.Equal(t, 7, code, said)
		require.Contains(t, said, why)
		require.NotContains(t, said, "asks the daemon to leave")
	}
	h.fails(7, why, "upgrade", "--force")
	require.NoError(t, other.Close())
	require.NoError(t, os.Rename(socket+".own", socket))
	require.Equal(t, pid, h.pid())
	h.write("ws/file", "text")
}
