package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"snapfs/internal/posix"
	"snapfs/internal/treewalk"
	"snapfs/internal/twin"
	"snapfs/sandbox"
)

// snapfs is the path of the command under test, as it is installed: the client, with the engine beside it. Complete is
// the same command in one file.
var snapfs, complete string

func TestMain(m *testing.M) {
	treewalk.Child()
	twin.Child()
	crowdChild()
	posix.Child()
	os.Exit(testMain(m))
}

func testMain(m *testing.M) int {
	if signal.Ignored(unix.SIGHUP) { // as under nohup, and the commands would inherit it
		signal.Notify(make(chan os.Signal, 1), unix.SIGHUP)
	}
	dir, err := os.MkdirTemp("", "e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	built := os.Getenv(commandsEnv)
	if built != "" {
		snapfs, complete = filepath.Join(built, "snapfs"), filepath.Join(built, "snapfs-engine")
		return m.Run()
	}
	snapfs, complete = filepath.Join(dir, "snapfs"), filepath.Join(dir, "snapfs-engine")
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	for file, pkg := range map[string]string{snapfs: "snapfs/cmd/snapfs-client", complete: "snapfs/cmd/snapfs"} {
		// Static, so that it runs in containers that have nothing.
		build := exec.CommandContext(ctx, "go", "build", "-o", file, pkg)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		build.WaitDelay = time.Second
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build: %v\n%s", err, out)
			return 1
		}
	}
	return m.Run()
}

// soon is the limit for a process that has nothing big to do.
const soon = 3 * time.Minute

// result is how a process ended.
type result struct {
	code     int // 128+N if signal N ended it
	out, err string
}

// process runs argv in dir, kills its whole process group after limit, and fails the test if it had to.
func process(t *testing.T, limit time.Duration, dir string, env []string, argv ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), limit) // clean-ups run processes too
	defer cancel()
	var out, errOut bytes.Buffer
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = &out, &errOut
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = 2 * time.Second
	err := cmd.Run()
	if ctx.Err() != nil {
		t.Fatalf("%q took longer than %v\n%s%s", argv, limit, tail(out.String()), tail(errOut.String()))
	}
	r := result{out: out.String(), err: errOut.String()}
	var exit *exec.ExitError
	switch {
	case err == nil:
	case errors.As(err, &exit):
		r.code = exit.ExitCode()
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			r.code = 128 + int(status.Signal())
		}
	default:
		t.Fatalf("%q: %v", argv, err)
	}
	return r
}

// shell runs a bash script that has to succeed and gives its standard output.
func shell(t *testing.T, limit time.Duration, dir, script string, args ...string) string {
	t.Helper()
	begin := time.Now()
	r := process(t, limit, dir, nil, append([]string{"bash", "-c", "set -euo pipefail\n" + script, "script"}, args...)...)
	if r.code != 0 {
		t.Fatalf("script in %s ended with %d:\n%s\n%s%s", dir, r.code, script, tail(r.out), tail(r.err))
	}
	if took := time.Since(begin); took > time.Second {
		t.Logf("%.1f s: %.100q", took.Seconds(), strings.TrimSpace(script))
	}
	return r.out
}

// tail is the end of a long text.
func tail(s string) string {
	const most = 4000
	if len(s) > most {
		return "..." + s[len(s)-most:]
	}
	return s
}

// home is one home directory with the command that uses it.
type home struct {
	t   *testing.T
	tmp string // the test's own directory: mountpoints and files
	dir string
	env []string

	command string // that its tests run
}

func newHome(t *testing.T) *home {
	t.Helper()
	tmp := t.TempDir()
	h := &home{t: t, tmp: tmp, dir: filepath.Join(tmp, "home"), command: snapfs}
	h.env = []string{"SNAPFS_HOME=" + h.dir, "SNAPFS_E2E=" + tmp, "TMPDIR=" + tmp}
	t.Cleanup(h.close)
	return h
}

// close stops the daemon and fails the test if anything is left.
func (h *home) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	stop := exec.CommandContext(ctx, snapfs, "stop")
	stop.Env = append(os.Environ(), h.env...)
	stop.WaitDelay = time.Second
	if out, err := stop.CombinedOutput(); err != nil {
		h.t.Errorf("stop: %v: %s", err, out)
	}
	defer func() {
		if h.t.Failed() {
			h.t.Logf("daemon.log:\n%s", tail(h.log()))
		}
	}()
	for range 300 { // what is just ending
		if len(marked(h.tmp)) == 0 {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	// Connections first: a process that waits for one can be neither killed nor unmounted.
	for _, m := range mountsBelow(h.tmp) {
		h.t.Errorf("left: mount %s", m.dir)
		_ = os.WriteFile(fmt.Sprintf("/sys/fs/fuse/connections/%d/abort", m.minor), []byte("1"), 0) // none for other types
		_ = unix.Unmount(m.dir, unix.MNT_DETACH)
	}
	for _, pid := range marked(h.tmp) {
		h.t.Errorf("left: process %d: %s", pid, commandLine(pid))
		_ = unix.Kill(pid, unix.SIGKILL)
	}
}

func (h *home) log() string {
	text, err := os.ReadFile(filepath.Join(h.dir, "daemon.log"))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// run runs a verb.
func (h *home) run(args ...string) result {
	h.t.Helper()
	return h.runFor(soon, args...)
}

func (h *home) runFor(limit time.Duration, args ...string) result {
	h.t.Helper()
	return process(h.t, limit, h.tmp, h.env, append([]string{h.command}, byEngine(args)...)...)
}

// byEngine has a workspace that is made be shown by the engine of SNAPFS_TEST_ENGINE, if that is set and the arguments
// name none. What transport they want is left out.
func byEngine(args []string) []string {
	engine := os.Getenv("SNAPFS_TEST_ENGINE")
	if engine == "" || len(args) == 0 || args[0] != "up" && args[0] != "create" || slices.Contains(args, "--engine") {
		return args
	}
	all := append(slices.Clone(args), "--engine", engine)
	if i := slices.Index(all, "--transport"); i > 0 {
		all = slices.Delete(all, i, i+2)
	}
	return all
}

// ok runs a verb that has to succeed and gives its standard output without the last newline.
func (h *home) ok(args ...string) string {
	h.t.Helper()
	begin := time.Now()
	r := h.runFor(4*time.Minute, args...)
	if r.code != 0 {
		h.t.Fatalf("snapfs %q ended with %d: %s%s\n%s", args, r.code, tail(r.out), tail(r.err), tail(h.log()))
	}
	if took := time.Since(begin); took > time.Second {
		h.t.Logf("%.1f s: snapfs %q", took.Seconds(), args)
	}
	return strings.TrimSuffix(r.out, "\n")
}

// decode runs a verb with --json and decodes its document.
func decode[T any](h *home, args ...string) T {
	h.t.Helper()
	var v T
	require.NoError(h.t, json.Unmarshal([]byte(h.ok(append([]string{"--json"}, args...)...)), &v))
	return v
}

// fails runs a verb that has to end with a code and one line of explanation that has a text in it.
func (h *home) fails(code int, text string, args ...string) {
	h.t.Helper()
	r := h.run(args...)
	lines := strings.Split(strings.TrimSuffix(r.err, "\n"), "\n")
	if strings.HasPrefix(lines[0], "snapfs: started daemon") {
		lines = lines[1:]
	}
	if r.code != code || len(lines) != 1 || r.out != "" ||
		!strings.Contains(strings.ToLower(lines[0]), strings.ToLower(text)) {
		h.t.Errorf("snapfs %.300q ended with %d, want %d: out %q, err %q, want one line with %q",
			args, r.code, code, tail(r.out), tail(r.err), text)
	}
}

// path is a path below the test's directory.
func (h *home) path(name string) string { return filepath.Join(h.tmp, name) }

// makeDir makes a directory below the test's directory.
func (h *home) makeDir(name string) string {
	h.t.Helper()
	require.NoError(h.t, os.MkdirAll(h.path(name), 0o755))
	return h.path(name)
}

// write makes a small file below the test's directory.
func (h *home) write(name, text string) string {
	h.t.Helper()
	require.NoError(h.t, os.MkdirAll(filepath.Dir(h.path(name)), 0o755))
	require.NoError(h.t, os.WriteFile(h.path(name), []byte(text), 0o644))
	return h.path(name)
}

// pid is the daemon's.
func (h *home) pid() int {
	h.t.Helper()
	return decode[struct {
		PID int `json:"pid"`
	}](h, "status").PID
}

// workspace shows one.
func (h *home) workspace(name string) sandbox.Workspace {
	h.t.Helper()
	o := decode[sandbox.Object](h, "show", name)
	require.NotNil(h.t, o.Workspace, name)
	return *o.Workspace
}

// snapshot shows one.
func (h *home) snapshot(ref string) sandbox.Snapshot {
	h.t.Helper()
	o := decode[sandbox.Object](h, "show", ref)
	require.NotNil(h.t, o.Snapshot, ref)
	return *o.Snapshot
}

// walk lists a tree from a process of its own.
func walk(t *testing.T, root string) []treewalk.Node {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	nodes, err := treewalk.WalkApart(ctx, root)
	require.NoError(t, err)
	return nodes
}

// same fails the test if two listings differ.
func same(t *testing.T, what string, a, b []treewalk.Node, opts treewalk.Options) {
	t.Helper()
	lines := treewalk.Diff(a, b, opts)
	if len(lines) > 0 {
		t.Errorf("%s: %d differences, the first: %s", what, len(lines), strings.Join(lines[:min(len(lines), 10)], "\n"))
	}
}

// goSource is the directory of Go's own source tree.
func goSource(t *testing.T) string {
	t.Helper()
	return filepath.Join(strings.TrimSpace(shell(t, soon, "/", `go env GOROOT`)), "src")
}

func itoa(n int) string { return strconv.Itoa(n) }

// read is a file below the test's directory, or why it cannot be read.
func (h *home) read(name string) string {
	text, err := os.ReadFile(h.path(name))
	if err != nil {
		return err.Error()
	}
	return string(text)
}
