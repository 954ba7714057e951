package fs

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// fakeFS has any name in its root; a look-up of one that begins with "wait" is not answered until release is closed.
type fakeFS struct {
	fuse.RawFileSystem
	release chan struct{}
	waiting chan string
}

func newFakeFS() *fakeFS {
	return &fakeFS{fuse.NewDefaultRawFileSystem(), make(chan struct{}), make(chan string, 1000)}
}

func (f *fakeFS) Lookup(_ <-chan struct{}, _ *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	if strings.HasPrefix(name, "wait") {
		f.waiting <- name
		<-f.release
	}
	if strings.HasPrefix(name, "panic") {
		panic("as asked")
	}
	out.NodeId, out.Mode, out.Nlink = 2, unix.S_IFREG|0o644, 1
	out.AttrValid, out.EntryValid = forever, forever
	return fuse.OK
}

// awaitOne returns when one more request is not being answered.
func (f *fakeFS) awaitOne(t *testing.T) {
	t.Helper()
	select {
	case <-f.waiting:
	case <-time.After(time.Minute):
		t.Fatal("the request does not arrive")
	}
}

func (f *fakeFS) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	out.Mode, out.Nlink = unix.S_IFDIR|0o755, 2
	if in.NodeId != fuse.FUSE_ROOT_ID {
		out.Mode, out.Nlink = unix.S_IFREG|0o644, 1
	}
	out.AttrValid = forever
	return fuse.OK
}

// safeBuffer is a log that is written and read at the same time.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer // under mu
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// serveFake mounts the fake in this process; the test reaches it only through other programs.
func serveFake(t *testing.T, f *fakeFS) (*Mount, string, *safeBuffer) {
	t.Helper()
	dir := t.TempDir()
	said := new(safeBuffer)
	opts := Options{Transport: transportOfTest(), Logger: slog.New(slog.NewTextHandler(said, nil))}
	opts.setDefaults()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	m, err := serve(ctx, f, dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		select {
		case <-f.release:
		default:
			close(f.release)
		}
		if err := m.Unmount(true); err != nil {
			t.Errorf("unmount: %v", err)
		}
		waitDone(t, m)
	})
	return m, dir, said
}

// transportOfTest is what the run of the tests is about; internal/testmount sets it.
func transportOfTest() string { return os.Getenv("SNAPFS_TEST_TRANSPORT") }

func waitDone(t *testing.T, m *Mount) {
	t.Helper()
	select {
	case <-m.Done():
	case <-time.After(time.Minute):
		t.Error("the connection does not end")
	}
}

// program starts a program that ends with the test.
func program(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); _ = cmd.Wait() }) // as a rule it was waited for
	return cmd
}

func stat(t *testing.T, path string) error { return program(t, "stat", path).Wait() }

// TestStuckRequests checks that requests that are not answered hold up nobody else, as long as there is room.
func TestStuckRequests(t *testing.T) {
	f := newFakeFS()
	_, dir, _ := serveFake(t, f)
	var stuck []*exec.Cmd
	for i := range 20 {
		stuck = append(stuck, program(t, "stat", filepath.Join(dir, "wait"+string(rune('a'+i)))))
		f.awaitOne(t)
		if err := stat(t, filepath.Join(dir, "other"+string(rune('a'+i)))); err != nil {
			t.Fatalf("with %d stuck: %v", i+1, err)
		}
	}
	close(f.release)
	for _, cmd := range stuck {
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
}

// TestPanic checks that a panic in a request is that request's error and a line in the log.
func TestPanic(t *testing.T) {
	_, dir, said := serveFake(t, newFakeFS())
	if stat(t, filepath.Join(dir, "panic")) == nil {
		t.Error("stat works")
	}
	if err := stat(t, filepath.Join(dir, "x")); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	if !strings.Contains(said.String(), "as asked") {
		t.Errorf("the log says %q", said)
	}
}

// TestAbort checks that an abort frees whoever waits, and that Done waits for the request.
func TestAbort(t *testing.T) {
	f := newFakeFS()
	m, dir, _ := serveFake(t, f)
	cmd := program(t, "stat", filepath.Join(dir, "wait"))
	f.awaitOne(t)
	if m.Ended() {
		t.Error("ended too early")
	}
	if err := m.Abort(); err != nil {
		t.Fatal(err)
	}
	if cmd.Wait() == nil {
		t.Error("stat works")
	}
	if !m.Ended() {
		t.Error("not ended by an abort")
	}
	select {
	case <-m.Done():
		t.Error("done while a request runs")
	case <-time.After(300 * time.Millisecond):
	}
	close(f.release)
	waitDone(t, m)
	if err := m.Abort(); err != nil {
		t.Errorf("again: %v", err)
	}
}

// TestShut checks the way of aborting that needs no sysfs, on an idle and on a busy device.
func TestShut(t *testing.T) {
	if transportOfTest() == "uring" {
		return // entries hold the connection, which is why there is no uring without a control file
	}
	for _, busy := range []bool{false, true} {
		m, dir, _ := serveFake(t, newFakeFS())
		if busy {
			if err := stat(t, filepath.Join(dir, "x")); err != nil {
				t.Fatal(err)
			}
		} else {
			time.Sleep(2 * idleAfter)
		}
		m.t.shut()
		waitDone(t, m)
		if stat(t, filepath.Join(dir, "y")) == nil {
			t.Error("stat works")
		}
	}
}

// TestIdle checks that an idle device wakes up, again and again.
func TestIdle(t *testing.T) {
	m, dir, _ := serveFake(t, newFakeFS())
	d, ok := m.t.(*device)
	if !ok {
		return // a lane sleeps in the kernel
	}
	for i := range 3 {
		for since := time.Now(); d.cur.Load() != nil; time.Sleep(10 * time.Millisecond) {
			if time.Since(since) > time.Minute {
				t.Fatal("the leader does not go")
			}
		}
		if err := stat(t, filepath.Join(dir, "x"+string(rune('a'+i)))); err != nil {
			t.Fatal(err)
		}
	}
}

// TestMountErrors checks what New says of mountpoints that will not do.
func TestMountErrors(t *testing.T) {
	m, used, _ := serveFake(t, newFakeFS())
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	opts := Options{}
	opts.setDefaults()
	try := func(ctx context.Context, where string, o Options) error {
		_, err := serve(ctx, newFakeFS(), where, o)
		return err
	}
	ctx := context.Background()
	for where, want := range map[string]error{
		filepath.Join(dir, "none"): unix.ENOENT,
		file:                       unix.ENOTDIR,
		used:                       unix.EBUSY,
	} {
		if err := try(ctx, where, opts); !errors.Is(err, want) || strings.Count(err.Error(), where) != 1 {
			t.Errorf("%s: got %v, want %v", where, err, want)
		}
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if err := try(cancelled, dir, opts); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	opts.Transport = "pigeon"
	if err := try(ctx, dir, opts); !errors.Is(err, ErrNoTransport) {
		t.Errorf("pigeon: %v", err)
	}
	if err := m.Unmount(false); err != nil {
		t.Errorf("unmount: %v", err)
	}
	if !m.Ended() {
		t.Error("not ended by an unmount")
	}
	if err := m.Unmount(false); err != nil {
		t.Errorf("unmount again: %v", err)
	}
	waitDone(t, m)
}

// TestStatus is the table of errors.
func TestStatus(t *testing.T) {
	a := &adapter{log: slog.New(slog.DiscardHandler)}
	for _, c := range []struct {
		err  error
		want fuse.Status
	}{
		{nil, fuse.OK},
		{unix.ENOSPC, fuse.Status(unix.ENOSPC)},
		{&os.PathError{Op: "open", Path: "x", Err: unix.EMLINK}, fuse.Status(unix.EMLINK)},
		{unix.ENOSYS, fuse.Status(unix.EOPNOTSUPP)},
		{errors.ErrUnsupported, fuse.Status(unix.EOPNOTSUPP)},
		{os.ErrNotExist, fuse.ENOENT},
		{context.Canceled, fuse.EINTR},
		{errors.New("strange"), fuse.EIO},
		{syscall.Errno(unix.EDQUOT), fuse.Status(unix.EDQUOT)},
	} {
		if got := a.status(c.err); got != c.want {
			t.Errorf("%v: got %v, want %v", c.err, got, c.want)
		}
	}
	if n := testing.AllocsPerRun(100, func() { a.status(unix.ENOENT) }); n > 0 {
		t.Errorf("%v allocations for a plain errno", n)
	}
}
