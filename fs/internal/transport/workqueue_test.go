package transport

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"snapfs/fs/internal/fakefs"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"snapfs/internal/testchild"
)

// gatedFS is a fakefs.FS with a gate.
type gatedFS struct {
	*fakefs.FS
	closed  atomic.Bool
	changes atomic.Int64

	mu      sync.Mutex
	openers []func()
}

func (f *gatedFS) Held() bool { return f.closed.Load() }

func (f *gatedFS) WhenOpen(fn func()) (stop func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.openers = append(f.openers, fn)
	return func() {}
}

func (f *gatedFS) open() {
	f.closed.Store(false)
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, fn := range f.openers {
		fn()
	}
}

func (f *gatedFS) Lookup(c <-chan struct{}, h *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	st := f.FS.Lookup(c, h, name, out)
	var n uint64
	// Files of their own: the kernel has one change of a file under way.
	if _, err := fmt.Sscanf(name, "x%d", &n); err == nil {
		out.NodeId += n
	}
	return st
}

func (f *gatedFS) SetAttr(_ <-chan struct{}, in *fuse.SetAttrIn, out *fuse.AttrOut) fuse.Status {
	f.changes.Add(1)
	out.Mode, out.Nlink, out.AttrValid = unix.S_IFREG|in.Mode&0o7777, 1, fakefs.Forever
	return fuse.OK
}

func (f *gatedFS) SetXAttr(<-chan struct{}, *fuse.SetXAttrIn, string, []byte) fuse.Status {
	f.changes.Add(1)
	return fuse.OK
}

// serveGated mounts a file system with a closed gate.
func serveGated(t *testing.T) (*gatedFS, *mount, string) {
	t.Helper()
	f := &gatedFS{FS: fakefs.New()}
	f.closed.Store(true)
	dir := t.TempDir()
	m, err := serve(t.Context(), f, dir, transportOfTest(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		f.open()
		if err := m.Unmount(true); err != nil {
			t.Error(err)
		}
		fakefs.WaitDone(t, m.done)
	})
	return f, m, dir
}

// herdOf starts a program of many threads that each do something to a file of their own.
func herdOf(t *testing.T, what string, first, count int, dir string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	cmd := exec.CommandContext(ctx, "/proc/self/exe", dir)
	cmd.Env = testchild.Env(testchild.User, fmt.Sprintf("SNAPFS_TEST_HERD=%s %d %d", what, first, count))
	cmd.Stderr = os.Stderr
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); _ = cmd.Wait() }) // as a rule it was waited for
	return cmd
}

// deviceOf is what the transports of a mount share.
func deviceOf(m *mount) *device {
	if u, ok := m.t.(*uring); ok {
		return u.device
	}
	d, _ := m.t.(*device)
	return d
}

// awaitWaiting waits until so many requests are in a mount's work queue.
func awaitWaiting(t *testing.T, m *mount, want int) {
	t.Helper()
	n := &deviceOf(m).work[changing]
	for since := time.Now(); ; time.Sleep(time.Millisecond) {
		n.mu.Lock()
		got := n.waiting.Len()
		n.mu.Unlock()
		if got == want {
			return
		}
		if time.Since(since) > time.Minute {
			t.Fatalf("%d wait, want %d", got, want)
		}
	}
}

// TestGate has hundreds of changes wait at the gates of two mounts, and checks that they have neither goroutines nor
// threads, and hold up no request that need not wait, in these mounts and in another, on any processor; that a program
// which is killed meanwhile is gone at once; and that all others are answered when the gates open.
func TestGate(t *testing.T) {
	const many = 300
	_, idle, _ := serveFake(t, fakefs.New())
	f, m, dir := serveGated(t)
	f2, m2, dir2 := serveGated(t)
	before, threadsBefore := runtime.NumGoroutine(), ringThreads(t)
	herds := []*exec.Cmd{herdOf(t, "chmod", 0, many, dir), herdOf(t, "chmod", 0, many, dir2)}
	awaitWaiting(t, m, many)
	awaitWaiting(t, m2, many)
	if n := runtime.NumGoroutine() - before; n > 60 {
		t.Errorf("%d goroutines more", n)
	}
	if n := ringThreads(t) - threadsBefore; n > 20 { // where the machine is busy, a few serve
		t.Errorf("%d ring threads more", n)
	}
	for cpu := range runtime.NumCPU() {
		for i, d := range []string{idle, dir, dir2} {
			name := filepath.Join(d, fmt.Sprintf("other%d", cpu))
			if err := fakefs.Program(t, "taskset", "-c", fmt.Sprint(cpu), "stat", name).Wait(); err != nil {
				t.Errorf("mount %d on processor %d: %v", i, cpu, err)
			}
		}
	}
	doomed := herdOf(t, "chmod", many, 40, dir)
	awaitWaiting(t, m, many+40)
	if err := doomed.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = doomed.Wait() // killed; it does not return before all its requests are answered
	awaitWaiting(t, m, many)
	f.open()
	f2.open()
	for _, cmd := range herds {
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
	if a, b := f.changes.Load(), f2.changes.Load(); a != many || b != many {
		t.Errorf("%d and %d changes, want %d", a, b, many)
	}
	if n := deviceOf(m).charged.Load(); n != 0 {
		t.Errorf("%d bytes are still counted", n)
	}
}

// TestGateSignal sends a signal that does not kill to a program that waits: it waits on.
func TestGateSignal(t *testing.T) {
	f, m, dir := serveGated(t)
	cmd := fakefs.Program(t, "sh", "-c", `trap : USR1; chmod 600 "$1"`, "sh", filepath.Join(dir, "x1"))
	herd := herdOf(t, "chmod", 2, 3, dir)
	awaitWaiting(t, m, 4)
	for _, p := range []*os.Process{cmd.Process, herd.Process} {
		threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", p.Pid))
		if err != nil {
			t.Fatal(err)
		}
		for _, th := range threads { // a signal to the process might reach one that does not wait
			tid, err := strconv.Atoi(th.Name())
			if err != nil {
				t.Fatal(err)
			}
			err = unix.Tgkill(p.Pid, tid, unix.SIGURG) // Go's runtime handles it
			if err != nil && err != unix.ESRCH {       //nolint:errorlint // raw errno; ESRCH: the thread has ended
				t.Fatal(err)
			}
		}
	}
	for since := time.Now(); m.Requests()["INTERRUPT"] == 0; time.Sleep(time.Millisecond) {
		if time.Since(since) > time.Minute {
			t.Fatal("the kernel does not tell of the signal")
		}
	}
	awaitWaiting(t, m, 4)
	if err := herd.Process.Kill(); err != nil { // the kernel tells of the first signal of a thread only
		t.Fatal(err)
	}
	_ = herd.Wait() // killed
	awaitWaiting(t, m, 1)
	f.open()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// TestEarlySignal: a killed program's request that comes to its work queue after the INTERRUPT is refused, too.
func TestEarlySignal(t *testing.T) {
	f := fakefs.New()
	m, dir, _ := serveFake(t, f)
	cmd := fakefs.Program(t, "stat", filepath.Join(dir, "wait"))
	f.AwaitOne(t)
	if err := cmd.Process.Kill(); err != nil { // it cannot end before it is answered
		t.Fatal(err)
	}
	for since := time.Now(); m.Requests()["INTERRUPT"] == 0; time.Sleep(time.Millisecond) {
		if time.Since(since) > time.Minute {
			t.Fatal("the kernel does not tell of the kill")
		}
	}
	g := &gatedFS{FS: fakefs.New()}
	g.closed.Store(true)
	d := newDevice(-1, slog.New(slog.DiscardHandler), new(counters))
	d.gate = g
	ended := make(chan error, 2)
	d.interrupted(7)
	for _, unique := range []uint64{7, 8} {
		h := fuse.InHeader{Unique: unique, Caller: fuse.Caller{Pid: uint32(cmd.Process.Pid)}}
		d.work[changing].add(&fakePending{h, nil, ended})
	}
	select {
	case err := <-ended:
		if err == nil {
			t.Error("it was served at a closed gate")
		}
	case <-time.After(time.Minute):
		t.Error("it waits on")
	}
	n := &d.work[changing]
	n.mu.Lock()
	if len(n.byID) != 1 || n.byID[8] == nil {
		t.Errorf("%d requests wait, want the one without a signal", len(n.byID))
	}
	n.mu.Unlock()
	f.AnswerAll()
	_ = cmd.Wait() // killed
}

// TestMemoryBound has requests wait with more data than a mount may have: the rest stays with the kernel, and comes
// when there is room.
func TestMemoryBound(t *testing.T) {
	limit := memoryLimit
	memoryLimit = func() int64 { return 0 }
	defer func() { memoryLimit = limit }()
	const count = 3 * minMemory / (64 << 10)
	f, m, dir := serveGated(t)
	d := deviceOf(m)
	cmd := herdOf(t, "setxattr", 0, count, dir)
	for since := time.Now(); !d.full(); time.Sleep(time.Millisecond) {
		if time.Since(since) > time.Minute {
			t.Fatalf("%d bytes are charged", d.charged.Load())
		}
	}
	time.Sleep(20 * time.Millisecond)                            // more would come now
	most := int64(minMemory + (maxSpare+1)*runtime.NumCPU()<<17) // the ring's entries that are there take what comes
	if n := d.charged.Load(); n > most {
		t.Errorf("%d bytes are charged, want %d at most", n, most)
	}
	f.open()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if n := f.changes.Load(); n != count {
		t.Errorf("%d changes, want %d", n, count)
	}
	// The end of the connection is noticed by a mount that reads nothing for lack of memory, and what waits is given
	// up.
	f.closed.Store(true)
	cmd = herdOf(t, "setxattr", 0, count, dir)
	for !d.full() {
		time.Sleep(time.Millisecond)
	}
	m.Abort()
	_ = cmd.Wait() // ENOTCONN
	fakefs.WaitDone(t, m.done)
	if n := d.charged.Load(); n != 0 {
		t.Errorf("%d bytes are still counted", n)
	}
}

// fakePending waits for what the test says.
type fakePending struct {
	h       fuse.InHeader
	release chan struct{}
	ended   chan error
}

func (p *fakePending) serve() {
	<-p.release
	p.ended <- nil
}
func (p *fakePending) refuse(fuse.Status)     { p.ended <- errors.New("refused") }
func (p *fakePending) weight() int64          { return 1 }
func (p *fakePending) header() *fuse.InHeader { return &p.h }

// TestFairShares has many mounts want all threads there are: they never get more, one that comes late gets some at once
// as long as there are any, and each gets its turn.
func TestFairShares(t *testing.T) {
	const size, mounts, each = 96, 150, 30
	p := newPool(size)
	ended := make(chan error, mounts*each)
	release := make(chan struct{})
	var all []*workQueue
	running := func(n *workQueue) int {
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.running
	}
	for i := range mounts {
		d := newDevice(-1, slog.New(slog.DiscardHandler), new(counters))
		n := &d.work[changing]
		n.pool = p
		all = append(all, n)
		for j := range each {
			n.add(&fakePending{fuse.InHeader{Unique: uint64(j)}, release, ended})
		}
		switch got := running(n); {
		case i == 0 && (got < 2 || got > size/2):
			t.Errorf("one mount has %d of %d threads", got, size)
		case i < size*(lentShare-1)/lentShare && got == 0:
			t.Errorf("mount %d got no thread", i)
		}
		if p.used > size {
			t.Fatalf("%d threads of %d are in use", p.used, size)
		}
	}
	if !p.contended.Load() || all[0].mayInline() {
		t.Error("changes are still handled by the thread that reads them")
	}
	close(release)
	for range mounts * each {
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(time.Minute):
			t.Fatal("some never get their turn")
		}
	}
	for _, n := range all {
		for since := time.Now(); running(n) > 0 && time.Since(since) < time.Minute; {
			time.Sleep(time.Millisecond)
		}
		if running(n) != 0 || !n.mayInline() {
			t.Fatalf("%d are said to run still", running(n))
		}
	}
}

// TestParkRegains parks a substitute that has just come back from a frozen host: its entries count
// again.
func TestParkRegains(t *testing.T) {
	q := &queue{lost: 1}
	h := &thread{writtenOff: true}
	l := &lane{main: new(thread), entries: []*entry{nil, {q: q, owner: h, armed: true, lost: true}}}
	l.serving = []*thread{l.main, h}
	l.park(h)
	if q.lost != 0 || h.writtenOff || len(l.serving) != 1 || len(l.parked) != 1 {
		t.Errorf("%d entries lost, written off %t, %d serving, %d parked, want 0, false, 1, 1",
			q.lost, h.writtenOff, len(l.serving), len(l.parked))
	}
}
