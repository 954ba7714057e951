package sandbox_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"snapfs/internal/processes"
	"snapfs/sandbox"
	"snapfs/sandbox/internal/peer"
)

// filesHome opens a home with workspaces that are mounted in it.
func filesHome(t *testing.T, workspaces ...string) *sandbox.Home {
	t.Helper()
	h := openHome(t, filepath.Join(t.TempDir(), "home"), sandbox.Options{})
	for _, w := range workspaces {
		_, err := h.Create(t.Context(), sandbox.CreateRequest{Name: w})
		if err == nil {
			at := sandbox.ServiceMountpoint(h.Dir(), w)
			_, err = h.Mount(t.Context(), sandbox.MountRequest{Workspace: w, Mountpoint: at, MakeMountpoint: true})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return h
}

// inShell runs a script that uses mounts, in a process of its own.
func inShell(t *testing.T, script string, args ...string) {
	t.Helper()
	if err := shell(t.Context(), script, args...); err != nil {
		t.Fatal(err)
	}
}

func fileIn(workspace, path string) sandbox.WorkFileRequest {
	return sandbox.WorkFileRequest{Workspace: workspace, Path: path}
}

func putFile(ctx context.Context, h *sandbox.Home, workspace, path string, body io.Reader) error {
	_, err := h.PutFile(ctx, sandbox.PutFileRequest{WorkFileRequest: fileIn(workspace, path), Size: -1}, body)
	return err
}

func getFile(t *testing.T, h *sandbox.Home, workspace, path string) string {
	t.Helper()
	var b bytes.Buffer
	if _, err := h.GetFile(t.Context(), sandbox.GetFileRequest{WorkFileRequest: fileIn(workspace, path)}, &b); err != nil {
		t.Errorf("get %s of %s: %v", path, workspace, err)
	}
	return b.String()
}

// filesProcess finds the child that uses files: the newest one of this process that is not dying.
func filesProcess(t *testing.T) (pid int) {
	t.Helper()
	processes.Each(func(dir string, p int) bool {
		name, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		s, ok := processes.StatOf(dir)
		if err == nil && ok && s.Parent == os.Getpid() && strings.TrimRight(string(name), "\x00") == "snapfs-files" && !s.Killed() {
			pid = max(pid, p)
		}
		return true
	})
	if pid == 0 {
		t.Fatal("there is no process for files")
	}
	return pid
}

// TestFilesKilled: a call whose process is killed fails and leaves nothing; the next one works.
func TestFilesKilled(t *testing.T) {
	h := filesHome(t, "w")
	if err := putFile(t.Context(), h, "w", "f", strings.NewReader("old")); err != nil {
		t.Fatal(err)
	}
	for round := range 5 {
		r, w := io.Pipe()
		failed := make(chan error, 1)
		go func() { // ends with its process, awaited below
			err := putFile(t.Context(), h, "w", "f", r)
			_ = r.CloseWithError(io.ErrClosedPipe)
			failed <- err
		}()
		if _, err := w.Write(make([]byte, 1<<20)); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(filesProcess(t), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		for { // until the call notices
			if _, err := w.Write(make([]byte, 1<<10)); err != nil {
				break
			}
		}
		if err := <-failed; !errors.Is(err, sandbox.ErrUnavailable) {
			t.Errorf("round %d: a call whose process was killed: %v", round, err)
		}
		if got := getFile(t, h, "w", "f"); got != "old" {
			t.Errorf("round %d: the file has %q", round, got)
		}
	}
	err := h.ListDir(t.Context(), fileIn("w", "/"), func(f sandbox.File) error {
		if f.Path != "f" {
			t.Errorf("%s is left", f.Path)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestFilesPaused: calls that wait for a paused workspace hold up no other one, return when they are cancelled, and are
// done when it is resumed.
func TestFilesPaused(t *testing.T) {
	h := filesHome(t, "stuck", "live")
	if err := putFile(t.Context(), h, "stuck", "f", strings.NewReader("old")); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Pause(t.Context(), sandbox.PauseRequest{Workspace: "stuck"}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	const calls = 100
	ended := make(chan error, calls)
	for i := range calls {
		go func() { ended <- putFile(ctx, h, "stuck", "f"+strconv.Itoa(i%3), strings.NewReader("new")) }() // awaited below
	}
	for i := range 50 {
		name := "f" + strconv.Itoa(i)
		if err := putFile(t.Context(), h, "live", name, strings.NewReader(name)); err != nil {
			t.Fatalf("beside a paused workspace: %v", err)
		}
		if got := getFile(t, h, "live", name); got != name {
			t.Fatalf("beside a paused workspace: %q", got)
		}
	}
	cancel()
	for range calls {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("a call that was cancelled: %v", err)
		}
	}
	// A process that is killed cannot end while its threads wait. It is replaced.
	old := filesProcess(t)
	if err := syscall.Kill(old, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	done := false
	for end := time.Now().Add(time.Minute); !done && time.Now().Before(end); {
		_, err := h.StatFile(t.Context(), fileIn("live", "f1"))
		if done = err == nil; !done && !errors.Is(err, sandbox.ErrUnavailable) {
			t.Fatalf("after the process was killed: %v", err)
		}
	}
	if !done || filesProcess(t) == old {
		t.Error("the process that was killed is not replaced")
	}
	if _, err := h.Resume(t.Context(), sandbox.RefRequest{Ref: "stuck"}); err != nil {
		t.Fatal(err)
	}
	if err := putFile(t.Context(), h, "stuck", "f", strings.NewReader("new")); err != nil {
		t.Error(err)
	}
	if got := getFile(t, h, "stuck", "f"); got != "new" {
		t.Errorf("the file has %q", got)
	}
}

// blocked is a writer that takes nothing until it is told to.
type blocked struct{ until chan struct{} }

func (b blocked) Write(p []byte) (int, error) {
	<-b.until
	return len(p), nil
}

// zeros are so many bytes 0.
func zeros(n int64) io.Reader { return io.LimitReader(zeroReader{}, n) }

type zeroReader struct{}

func (zeroReader) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// counter counts what is written to it.
type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

// peak is how much memory a process has had, in KiB.
func peak(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	var kib int
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		t.Fatal(err)
	}
	return kib
}

// TestFilesLarge: a large file goes through in constant memory, and those who read slowly hold up nobody.
func TestFilesLarge(t *testing.T) {
	size, written := int64(128)<<20, int64(32)<<20
	if os.Getenv("SNAPFS_LONG") != "" {
		size, written = 10<<30, 2<<30
	}
	h := filesHome(t, "w")
	if err := putFile(t.Context(), h, "w", "small", strings.NewReader("small")); err != nil {
		t.Fatal(err)
	}
	before := peak(t, os.Getpid())
	begun := time.Now()
	if err := putFile(t.Context(), h, "w", "written", zeros(written)); err != nil {
		t.Fatal(err)
	}
	t.Logf("written: %.0f MB/s", float64(written)/1e6/time.Since(begun).Seconds())
	inShell(t, `truncate -s "$2" "$1"`, filepath.Join(sandbox.ServiceMountpoint(h.Dir(), "w"), "sparse"), strconv.FormatInt(size, 10))
	free := make(chan struct{})
	var slow sync.WaitGroup
	for range 60 {
		slow.Go(func() {
			r := sandbox.GetFileRequest{WorkFileRequest: fileIn("w", "sparse"), Length: 4 << 20}
			if _, err := h.GetFile(t.Context(), r, blocked{free}); err != nil {
				t.Error(err)
			}
		})
	}
	var n counter
	begun = time.Now()
	f, err := h.GetFile(t.Context(), sandbox.GetFileRequest{WorkFileRequest: fileIn("w", "sparse")}, &n)
	if err != nil || f.Size != size || int64(n) != size {
		t.Errorf("%+v, %d bytes, %v", f, n, err)
	}
	t.Logf("read: %.0f MB/s", float64(size)/1e6/time.Since(begun).Seconds())
	if got := getFile(t, h, "w", "small"); got != "small" {
		t.Errorf("beside slow readers: %q", got)
	}
	own, child := peak(t, os.Getpid())-before, peak(t, filesProcess(t))
	t.Logf("memory: %d KiB more here, %d KiB in the child", own, child)
	if child > 160<<10 {
		t.Errorf("the child takes %d KiB", child)
	}
	close(free)
	slow.Wait()
}

// TestFilesOfUser: a call that is made for another user has its rights.
func TestFilesOfUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	h := filesHome(t, "w")
	at := sandbox.ServiceMountpoint(h.Dir(), "w")
	inShell(t, `cd "$1"; echo x > secret; chmod 600 secret; mkdir own; chown 4321:4322 own; echo y > own/roots; echo z > own/mine
		chown 4321:4322 own/mine; mkfifo own/pipe`, at)
	ctx := peer.With(t.Context(), &peer.User{UID: 4321, GID: 4322})
	if _, err := h.GetFile(ctx, sandbox.GetFileRequest{WorkFileRequest: fileIn("w", "secret")}, io.Discard); !errors.Is(err, sandbox.ErrRefused) {
		t.Errorf("a secret: %v", err)
	}
	for _, path := range []string{"new", "own/roots"} {
		if err := putFile(ctx, h, "w", path, strings.NewReader("x")); !errors.Is(err, sandbox.ErrRefused) {
			t.Errorf("put %s: %v", path, err)
		}
	}
	for _, path := range []string{"own/new", "own/mine"} {
		if err := putFile(ctx, h, "w", path, strings.NewReader("x")); err != nil {
			t.Errorf("put %s: %v", path, err)
		}
		if f, err := h.StatFile(ctx, fileIn("w", path)); err != nil || f.UID != 4321 || f.GID != 4322 {
			t.Errorf("%s: %+v, %v", path, f, err)
		}
	}
	if got := getFile(t, h, "w", "secret"); got != "x\n" {
		t.Errorf("the daemon itself reads %q", got)
	}
}

// TestFilesMoved: a mount is found where it was moved to, and not where something else is mounted now.
func TestFilesMoved(t *testing.T) {
	h := filesHome(t, "w")
	if err := putFile(t.Context(), h, "w", "f", strings.NewReader("x")); err != nil {
		t.Fatal(err)
	}
	at, to := sandbox.ServiceMountpoint(h.Dir(), "w"), filepath.Join(t.TempDir(), "to")
	inShell(t, `mkdir "$2"; mount --make-private "$1"; mount -t tmpfs none "$2"; mount --make-private "$2"; mkdir "$2/m"; mount --move "$1" "$2/m"
		mount -t tmpfs none "$1"; echo other > "$1/f"`, at, to)
	if got := getFile(t, h, "w", "f"); got != "x" {
		t.Errorf("a mount that was moved has %q", got)
	}
	inShell(t, `umount "$2/m"; umount "$2"; umount "$1"`, at, to)
	_, err := h.StatFile(t.Context(), fileIn("w", "f"))
	if !errors.Is(err, sandbox.ErrConflict) {
		t.Errorf("unmounted: %v", err)
	}
}
