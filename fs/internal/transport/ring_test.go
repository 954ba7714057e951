package transport

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"snapfs/fs/internal/fakefs"
	"snapfs/internal/testseed"
)

func TestCountCPUs(t *testing.T) {
	for list, want := range map[string]int{"0": 1, "0-1": 2, "0-3,8": 5, "0-63,128-191": 128} {
		if got, err := countCPUs(list); err != nil || got != want {
			t.Errorf("%s: got %d, %v; want %d", list, got, err, want)
		}
	}
	for _, list := range []string{"", "x", "0-", "-1-2-3"} {
		if _, err := countCPUs(list); err == nil {
			t.Errorf("%q is taken", list)
		}
	}
}

// TestScratch checks that a request that came into a payload is not lost when the payload's memory is given back:
// neither one that came before its pages were moved away nor one that came after.
func TestScratch(t *testing.T) {
	a, err := newScratch()
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(a) //nolint:errcheck // ours
	x, err := slots.get()
	if err != nil {
		t.Fatal(err)
	}
	defer slots.put(x, MaxIO)
	resident := func(b []byte) (n int) {
		vec := make([]byte, len(b)/pageSize)
		if err := mincore(b, vec); err != nil {
			t.Fatal(err)
		}
		for _, v := range vec {
			n += int(v & 1)
		}
		return n
	}
	for _, size := range []int{1, pageSize, 3*pageSize + 7, MaxIO} {
		want := strings.Repeat("x", size)
		for _, before := range []bool{true, false} {
			copy(x.payload, strings.Repeat("old", MaxIO/3))
			if before {
				copy(x.payload, want)
			}
			if errno := a.moveOut(x.payload, MaxIO); errno != 0 {
				t.Fatal(errno)
			}
			if !before {
				copy(x.payload, want)
			}
			a.moveBack(x.payload, size)
			a.discard(MaxIO)
			if string(x.payload[:size]) != want {
				t.Errorf("%d bytes, before %v: lost", size, before)
			}
			if got := resident(x.payload); got > pages(size)/pageSize {
				t.Errorf("%d bytes, before %v: %d pages stay", size, before, got)
			}
			if got := resident(a); got != 0 {
				t.Errorf("%d pages stay in the scratch range", got)
			}
		}
	}
}

// TestManyMounts serves many mounts from one process, and checks that they share its threads. It logs what they cost,
// by the thousand under SNAPFS_LONG=1.
func TestManyMounts(t *testing.T) {
	mounts := 120
	if os.Getenv("SNAPFS_LONG") != "" {
		mounts = 1000
	}
	before, threadsBefore := residentMemory(t), ringThreads(t)
	var dirs []string
	f := fakefs.New()
	for range mounts {
		m, dir, _ := serveFake(t, f)
		dirs = append(dirs, dir)
		if got, want := m.Transport(), transportOfTest(); got != want && want != "" {
			t.Fatalf("transport %s, want %s", got, want)
		}
	}
	var wg sync.WaitGroup
	for i := range 3 {
		var names []string
		for _, dir := range dirs {
			names = append(names, filepath.Join(dir, fmt.Sprintf("x%d", i)))
		}
		cmd := fakefs.Program(t, "stat", names...)
		wg.Go(func() {
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	t.Logf("%d mounts: %d KiB more are resident", mounts, (residentMemory(t)-before)>>10)
	// Three programs have three requests under way; where the machine is busy a substitute serves each. How many
	// threads the Go runtime has beside them is not counted.
	more := ringThreads(t) - threadsBefore
	t.Logf("%d ring threads more", more)
	if more > 20 {
		t.Errorf("%d ring threads more", more)
	}
}

// ringThreads is how many threads serve the lanes of this process; they never end.
func ringThreads(t *testing.T) int {
	t.Helper()
	if transportOfTest() != "uring" {
		return 0
	}
	lanes, err := theLanes()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, l := range lanes.all {
		l.mu.Lock()
		n += len(l.serving) + len(l.parked)
		l.mu.Unlock()
	}
	return n
}

// residentMemory is how much memory this process has, in bytes.
func residentMemory(t *testing.T) int {
	t.Helper()
	runtime.GC()
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(statm))[1])
	if err != nil {
		t.Fatal(err)
	}
	return pages * pageSize
}

// fileFS is a fakefs.FS whose files hold one byte.
type fileFS struct{ *fakefs.FS }

func (f fileFS) Lookup(cancel <-chan struct{}, h *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	st := f.FS.Lookup(cancel, h, name, out)
	out.Size = 1
	return st
}

func (f fileFS) Read(<-chan struct{}, *fuse.ReadIn, []byte) (fuse.ReadResult, fuse.Status) {
	return fuse.ReadResultData([]byte("x")), fuse.OK
}

// TestAllParked has many more programs wait on one processor than a queue has entries, at the same time, and checks
// that one that comes with them is answered.
func TestAllParked(t *testing.T) {
	f := fakefs.New()
	dir := t.TempDir()
	m, err := serve(t.Context(), fileFS{f}, dir, transportOfTest(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := m.Unmount(true); err != nil {
			t.Error(err)
		}
		fakefs.WaitDone(t, m.done)
	}()
	if err := fakefs.Program(t, "cat", filepath.Join(dir, "x")).Wait(); err != nil {
		t.Fatal(err)
	}
	const waiting = 24
	cmd := fakefs.Program(t, "taskset", "-c", "0", "sh", "-c",
		`cd "$1"; i=0; while [ $i -lt $2 ]; do stat wait$i & i=$((i+1)); done; stat other && echo >"$3"; wait`,
		"sh", dir, fmt.Sprint(waiting), filepath.Join(t.TempDir(), "answered"))
	answered := cmd.Args[len(cmd.Args)-1]
	for since := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(answered); err == nil {
			break
		}
		if time.Since(since) > time.Minute {
			t.Error("the last one waits for the others")
			break
		}
	}
	f.AnswerAll()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// TestInterrupt checks that a killed program's request is answered in its time, and that what the kernel says of the
// kill arrives and does no harm.
func TestInterrupt(t *testing.T) {
	f := fakefs.New()
	m, dir, _ := serveFake(t, f)
	cmd := fakefs.Program(t, "stat", filepath.Join(dir, "wait"))
	f.AwaitOne(t)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for since := time.Now(); m.Requests()["INTERRUPT"] == 0; time.Sleep(time.Millisecond) {
		if time.Since(since) > time.Minute {
			t.Fatal("the kernel does not say that the program was killed")
		}
	}
	if err := fakefs.Stat(t, filepath.Join(dir, "x")); err != nil {
		t.Error(err)
	}
	f.AnswerAll()
	_ = cmd.Wait() // killed
	if err := fakefs.Stat(t, filepath.Join(dir, "y")); err != nil {
		t.Error(err)
	}
}

// TestTeardown ends mounts under load in all ways, beside one that must go on.
func TestTeardown(t *testing.T) {
	rounds := 25
	if os.Getenv("SNAPFS_LONG") != "" {
		rounds = 400
	}
	seed := testseed.Of(t)
	r := rand.New(rand.NewPCG(seed, 0))
	_, idle, _ := serveFake(t, fakefs.New())
	for round := range rounds {
		dir := t.TempDir()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		f := fakefs.New()
		m, err := serve(ctx, f, dir, transportOfTest(), slog.New(slog.DiscardHandler))
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		var loads []func()
		for range 1 + r.IntN(3) {
			loads = append(loads, load(t, dir))
		}
		time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond)
		parked := r.IntN(3) == 0
		if parked { // one request is not answered until all is over
			cmd := fakefs.Program(t, "stat", filepath.Join(dir, "wait"))
			f.AwaitOne(t)
			loads = append(loads, func() { _ = cmd.Wait() })
		}
		how := r.IntN(4)
		switch how {
		case 0:
			err = m.Unmount(true)
		case 1:
			m.Abort()
		case 2:
			err = unix.Unmount(dir, unix.MNT_DETACH)
		case 3:
			m.Abort()
			err = m.Unmount(true)
		}
		if err != nil {
			t.Errorf("round %d, way %d: %v", round, how, err)
		}
		if parked {
			f.AnswerAll()
		}
		for _, end := range loads {
			end()
		}
		if err := m.Unmount(true); err != nil {
			t.Errorf("round %d, way %d: unmount: %v", round, how, err)
		}
		fakefs.WaitDone(t, m.done)
		if err := fakefs.Stat(t, filepath.Join(idle, fmt.Sprintf("x%d", round))); err != nil {
			t.Errorf("round %d, way %d: the other mount: %v", round, how, err)
		}
		if t.Failed() {
			t.Fatalf("round %d, way %d, parked %v", round, how, parked)
		}
	}
}

// load starts a program that asks for names below a directory until it gets none any more, or until it is ended.
func load(t *testing.T, dir string) (end func()) {
	t.Helper()
	cmd := fakefs.Program(t, "sh", "-c", `
		cd "$1" && while :; do
			for n in 1 2 3 4 5 6 7 8 9; do [ -e ./$$-$n$i ] || exit 0; done
			i=$n$i; [ ${#i} -lt 200 ] || i=
		done`, "sh", dir)
	return func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()         // killed
	}
}
