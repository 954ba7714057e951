package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// standHome is a home on a file system of its own, which can be frozen.
func standHome(t *testing.T) (h *home, freeze, thaw func()) {
	t.Helper()
	disk := filepath.Join(t.TempDir(), "disk")
	shell(t, soon, "/", `mkdir "$1"; truncate -s 512M "$1.img"; mkfs.ext4 -q "$1.img"; mount -o loop "$1.img" "$1"`, disk)
	frozen := false
	control := func(flag string) {
		require.NoError(t, exec.Command("fsfreeze", flag, disk).Run())
		frozen = flag == "-f"
	}
	t.Cleanup(func() { shell(t, soon, "/", `umount "$1"`, disk) })
	h = newHome(t)
	h.dir = filepath.Join(disk, "home")
	h.env = append(h.env, "SNAPFS_HOME="+h.dir)
	t.Cleanup(func() {
		if frozen {
			control("-u")
		}
	})
	return h, func() { control("-f") }, func() { control("-u") }
}

// writers write to a file each, without end, from threads of their own.
type writers struct {
	wg     sync.WaitGroup
	end    atomic.Bool
	counts []atomic.Int64
}

func startWriters(t *testing.T, dir string, n int) *writers {
	w := &writers{counts: make([]atomic.Int64, n)}
	for i := range n {
		f, err := os.Create(filepath.Join(dir, "w"+itoa(i)))
		require.NoError(t, err)
		w.wg.Go(func() {
			defer f.Close() //nolint:errcheck // nobody reads it
			for !w.end.Load() {
				if _, err := f.WriteAt(make([]byte, 4096), 0); err != nil {
					t.Error(err)
					return
				}
				w.counts[i].Add(1)
				time.Sleep(10 * time.Millisecond)
			}
		})
	}
	t.Cleanup(func() { w.end.Store(true); w.wg.Wait() })
	return w
}

// settle returns when none of the writers gets further.
func (w *writers) settle() {
	for before := int64(-1); ; time.Sleep(150 * time.Millisecond) {
		now := int64(0)
		for i := range w.counts {
			now += w.counts[i].Load()
		}
		if now == before {
			return
		}
		before = now
	}
}

// goOn returns when each of them has written again.
func (w *writers) goOn(t *testing.T, what string) {
	t.Helper()
	for i := range w.counts {
		for begin, now := time.Now(), w.counts[i].Load(); w.counts[i].Load() == now; time.Sleep(5 * time.Millisecond) {
			if time.Since(begin) > time.Minute {
				t.Fatalf("%s: writer %d does not go on", what, i)
			}
		}
	}
}

// onEach does something on each processor, and fails the test if that takes too long.
func onEach(t *testing.T, what string, fn func(cpu int) error) {
	t.Helper()
	for cpu := range runtime.NumCPU() {
		done := make(chan error, 1)
		go func() {
			runtime.LockOSThread() // for good
			var set unix.CPUSet
			set.Set(cpu)
			_ = unix.SchedSetaffinity(0, &set) // else it runs anywhere
			done <- fn(cpu)
		}()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("%s, processor %d: %v", what, cpu, err)
			}
		case <-time.After(time.Minute):
			t.Errorf("%s, processor %d: hangs", what, cpu)
		}
	}
}

// TestStandstill has very many writers of two workspaces stand still, because one is paused, then because the disk of
// the home is frozen: nobody else notices, what needs not wait goes on in these workspaces, too, and the daemon has few
// threads.
func TestStandstill(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Log("nothing is tested without the right to freeze a file system")
		return
	}
	h, freeze, thaw := standHome(t)
	transports := []string{"dev"}
	on, err := os.ReadFile("/sys/module/fuse/parameters/enable_uring")
	if err == nil && strings.HasPrefix(string(on), "Y") {
		transports = append(transports, "uring")
	}
	const many = 120
	for _, transport := range transports {
		dirs := map[string]string{}
		for _, name := range []string{"a", "b", "c"} {
			dirs[name] = h.makeDir(name + transport)
			h.ok("up", name+"-"+transport, dirs[name], "--transport", transport)
			require.NoError(t, os.Mkdir(filepath.Join(dirs[name], "d"), 0o755))
		}
		look := func(name, when string) {
			onEach(t, transport+", "+when+", reading "+name, func(cpu int) error {
				if _, err := os.ReadDir(filepath.Join(dirs[name], "d")); err != nil {
					return err
				}
				_, err := os.Lstat(filepath.Join(dirs[name], fmt.Sprintf("%s%d", when, cpu)))
				if os.IsNotExist(err) {
					return nil
				}
				return err
			})
		}
		a, b := startWriters(t, dirs["a"], many), startWriters(t, dirs["b"], many/2)
		h.ok("pause", "a-"+transport)
		h.ok("pause", "b-"+transport)
		a.settle()
		b.settle()
		for _, name := range []string{"a", "b", "c"} {
			look(name, "paused")
		}
		onEach(t, transport+", paused, writing c", func(cpu int) error {
			return os.WriteFile(filepath.Join(dirs["c"], "new"+itoa(cpu)), []byte("x"), 0o600)
		})
		h.ok("resume", "a-"+transport)
		h.ok("resume", "b-"+transport)
		a.goOn(t, "resumed")
		b.goOn(t, "resumed")

		pid := h.pid()
		freeze()
		a.settle()
		for _, name := range []string{"a", "b", "c"} {
			look(name, "frozen")
		}
		h.ok("list")
		if n := threads(t, pid); n > 250 {
			t.Errorf("%s: %d threads while the disk is frozen", transport, n)
		}
		thaw()
		a.goOn(t, "thawed")
		b.goOn(t, "thawed")
		for _, w := range []*writers{a, b} {
			w.end.Store(true)
			w.wg.Wait()
		}
		for name := range dirs {
			h.ok("umount", name+"-"+transport)
		}
	}
}

// threads is how many a process has.
func threads(t *testing.T, pid int) int {
	t.Helper()
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	require.NoError(t, err)
	return len(tasks)
}
