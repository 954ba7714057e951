package fs

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"snapfs/fs/internal/fakefs"
	"snapfs/internal/livestate"
)

// settable is a fake whose files take any attributes.
type settable struct {
	*fakefs.FS
	set atomic.Int32 // SETATTRs
}

func (s *settable) SetAttr(_ <-chan struct{}, _ *fuse.SetAttrIn, out *fuse.AttrOut) fuse.Status {
	s.set.Add(1)
	out.Mode, out.Nlink = unix.S_IFREG|0o644, 1
	return fuse.OK
}

// switchGate is a gate that tests close and open.
type switchGate struct {
	shut  atomic.Bool
	asked chan struct{} // gets a value when a change has found it closed

	mu sync.Mutex
	f  func() // guarded by mu
}

func newGate() *switchGate { return &switchGate{asked: make(chan struct{}, 1)} }

func (g *switchGate) Held() bool {
	held := g.shut.Load()
	if held {
		select {
		case g.asked <- struct{}{}:
		default:
		}
	}
	return held
}

func (g *switchGate) WhenOpen(f func()) (stop func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.f = f
	return func() {}
}

func liveOptions(t *testing.T) Options {
	t.Helper()
	live, err := livestate.Create(t.Name())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = live.Close() })
	opts := Options{Live: live, Transport: "dev", Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}
	opts.setDefaults()
	return opts
}

// deviceOf gives a descriptor of the mount's connection, as a holder has it.
func deviceOf(t *testing.T, m *Mount) *os.File {
	t.Helper()
	t.Cleanup(func() { _, _ = Detach(m.point.Path(), m.dev) }) // as a rule it was unmounted
	return copyOf(t, m.DeviceFile())
}

func copyOf(t *testing.T, of *os.File) *os.File {
	t.Helper()
	fd, err := unix.FcntlInt(of.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "device")
	t.Cleanup(func() { _ = f.Close() }) // as a rule it is taken over
	return f
}

func endMount(t *testing.T, m *Mount) {
	t.Helper()
	if err := m.Unmount(true); err != nil {
		t.Errorf("unmount: %v", err)
	}
	fakefs.WaitDone(t, m.Done())
}

// TestRelease checks that a mount goes on with another server: what is being handled is answered by the first one, what
// waits for the gate by the second.
func TestRelease(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	opts, gate, dir := liveOptions(t), newGate(), t.TempDir()
	first := &settable{FS: fakefs.New()}
	m, err := serve(ctx, first, dir, gate, opts)
	if err != nil {
		t.Fatal(err)
	}
	held := deviceOf(t, m)
	if err := fakefs.Stat(t, filepath.Join(dir, "x")); err != nil {
		t.Fatal(err)
	}
	gate.shut.Store(true)
	change := fakefs.Program(t, "touch", "-c", filepath.Join(dir, "x"))
	<-gate.asked
	look := fakefs.Program(t, "stat", filepath.Join(dir, "wait"))
	first.AwaitOne(t)

	early, stop := context.WithTimeout(ctx, 50*time.Millisecond)
	defer stop()
	if err := m.Release(early); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("released while a request is handled: %v", err)
	}
	if _, err := adopt(ctx, first, held, dir, gate, opts); !errors.Is(err, ErrServed) {
		t.Errorf("adopted before it was released: got %v, want %v", err, ErrServed)
	}
	first.AnswerAll()
	if err := m.Release(ctx); err != nil {
		t.Fatal(err)
	}
	if err := look.Wait(); err != nil {
		t.Errorf("what was handled: %v", err)
	}
	fakefs.WaitDone(t, m.Done())

	second := &settable{FS: fakefs.New()}
	next, err := adopt(ctx, second, held, dir, newGate(), opts)
	if err != nil {
		t.Fatal(err)
	}
	defer endMount(t, next)
	if err := change.Wait(); err != nil {
		t.Errorf("what waited: %v", err)
	}
	if first.set.Load() != 0 || second.set.Load() == 0 {
		t.Errorf("changed %d times by the first server and %d by the second", first.set.Load(), second.set.Load())
	}
	if err := fakefs.Stat(t, filepath.Join(dir, "y")); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	if !next.Visible() || next.Ended() || next.Transport() != "dev" {
		t.Error("not visible, ended, or of another transport")
	}
	if a, b := m.dev, next.dev; a != b {
		t.Errorf("device %d, was %d", b, a)
	}
}

// TestAdoptPlaced checks that a mount which was made apart is adopted without a place.
func TestAdoptPlaced(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	opts, dir := liveOptions(t), t.TempDir()
	opts.Place = func(mount int) error {
		return unix.MoveMount(mount, "", unix.AT_FDCWD, dir, unix.MOVE_MOUNT_F_EMPTY_PATH)
	}
	m, err := serve(ctx, fakefs.New(), "", nil, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = Detach(dir, m.dev) }) // as a rule it was unmounted
	held := copyOf(t, m.DeviceFile())
	if err := m.Release(ctx); err != nil {
		t.Fatal(err)
	}
	next, err := adopt(ctx, fakefs.New(), held, "", nil, opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := fakefs.Stat(t, filepath.Join(dir, "x")); err != nil {
		t.Error(err)
	}
	if next.Visible() || !errors.Is(next.Unmount(false), unix.ENOTSUP) {
		t.Error("its place is known")
	}
	if found, err := Detach(dir, next.dev); !found || err != nil {
		t.Errorf("detach: %v, %v", found, err)
	}
	fakefs.WaitDone(t, next.Done())
}

// TestAdoptErrors checks what is refused, and that nothing hangs or breaks by it.
func TestAdoptErrors(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	opts, dir := liveOptions(t), t.TempDir()
	m, err := serve(ctx, fakefs.New(), dir, nil, opts)
	if err != nil {
		t.Fatal(err)
	}
	held := deviceOf(t, m)
	if err := m.Release(ctx); err != nil {
		t.Fatal(err)
	}
	try := func(name string, f *os.File, o Options, want error) {
		t.Helper()
		if _, err := adopt(ctx, fakefs.New(), f, dir, nil, o); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", name, err, want)
		}
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	idle, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	otherOpts := liveOptions(t)
	other, err := serve(ctx, fakefs.New(), t.TempDir(), nil, otherOpts)
	if err != nil {
		t.Fatal(err)
	}
	defer endMount(t, other)
	closed := deviceOf(t, other)
	_ = closed.Close()
	try("a file", file, opts, ErrNotConnection)
	try("a pipe", r, opts, ErrNotConnection)
	try("a device without a mount", idle, opts, ErrNotConnection)
	try("closed", closed, opts, ErrNotConnection)
	try("of another mount", deviceOf(t, other), opts, ErrNotConnection)
	try("the other mount, which is served", deviceOf(t, other), otherOpts, ErrServed)
	try("without state", held, Options{Logger: opts.Logger}, ErrNotAdoptable)
	try("with an empty state", held, liveOptions(t), livestate.ErrFormat)
	b := opts.Live.Connection()
	for _, at := range []int{0, 9, keptHead + 3} { // version, device, contents
		b[at] ^= 0x40
		try("with a damaged state", held, opts, livestate.ErrFormat)
		b[at] ^= 0x40
	}

	// Of two at once one serves.
	got := make(chan *Mount, 2)
	for range 2 {
		f := copyOf(t, held)
		go func() {
			m, err := adopt(ctx, fakefs.New(), f, dir, nil, opts)
			if err != nil && !errors.Is(err, ErrServed) {
				t.Errorf("two at once: %v", err)
			}
			got <- m
		}()
	}
	a, c := <-got, <-got
	if (a == nil) == (c == nil) {
		t.Fatalf("two at once: %v and %v serve", a, c)
	}
	if a == nil {
		a = c
	}
	if err := fakefs.Stat(t, filepath.Join(dir, "x")); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	endMount(t, a)
	try("after its end", held, opts, ErrEnded)
}

// TestEnd: a connection ends although another process has a descriptor of it, and no other one does.
func TestEnd(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	dir := t.TempDir()
	m, err := serve(ctx, fakefs.New(), dir, nil, liveOptions(t))
	if err != nil {
		t.Fatal(err)
	}
	other, err := serve(ctx, fakefs.New(), t.TempDir(), nil, liveOptions(t))
	if err != nil {
		t.Fatal(err)
	}
	defer endMount(t, other)
	held := deviceOf(t, m) // the holder's copy
	if err := m.Release(ctx); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := End(held, m.dev); err != nil {
			t.Error(err)
		}
	}
	if err := fakefs.Stat(t, filepath.Join(dir, "x")); err == nil {
		t.Error("a program gets an answer from a connection that was ended")
	}
	if _, err := Detach(dir, m.dev); err != nil {
		t.Error(err)
	}
	// A number that is used again.
	if err := End(held, other.dev); err != nil && !errors.Is(err, ErrNotConnection) {
		t.Error(err)
	}
	if other.Ended() {
		t.Error("another connection has ended")
	}
}
