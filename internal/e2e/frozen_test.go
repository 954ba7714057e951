package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"snapfs/internal/testseed"
	"snapfs/internal/twin"
)

// frost is a disk that can be frozen.
type frost struct {
	*disk
	watchdog *exec.Cmd // while it is
	asked    int       // names by reach
}

func newFrost(t *testing.T, size int) *frost {
	t.Helper()
	d := &frost{disk: newDisk(t, size)}
	t.Cleanup(d.thaw) // before the disk's end
	return d
}

// frozenFor is how long a file system is frozen at most, even if the test hangs.
const frozenFor = 2 * time.Minute

// freeze has the file system take no more writes until thaw. The watchdog is no process of the test's: who ends all of
// those in a hurry does not end it, for a file system that stays frozen can be neither unmounted nor given up.
func (d *frost) freeze() {
	d.t.Helper()
	d.watchdog = exec.Command("sh", "-c", `sleep "$1"; exec fsfreeze --unfreeze "$2"`, "sh", strconv.Itoa(int(frozenFor.Seconds())), d.dir)
	d.watchdog.Env = []string{"PATH=" + os.Getenv("PATH") + ":/usr/sbin:/sbin"}
	d.watchdog.Dir = "/"
	d.watchdog.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	require.NoError(d.t, d.watchdog.Start())
	shell(d.t, soon, "/", `PATH=$PATH:/usr/sbin:/sbin fsfreeze --freeze "$1"`, d.dir)
}

// thaw ends freeze. It may be called at any time.
func (d *frost) thaw() {
	if d.watchdog == nil {
		return
	}
	path := "PATH=" + os.Getenv("PATH") + ":/usr/sbin:/sbin"
	r := process(d.t, soon, "/", []string{path}, "fsfreeze", "--unfreeze", d.dir)
	if r.code != 0 {
		d.t.Errorf("thaw: %d, %s: frozen for too long?", r.code, r.err)
	}
	_ = unix.Kill(-d.watchdog.Process.Pid, unix.SIGKILL)
	_ = d.watchdog.Wait() // killed
	d.watchdog = nil
}

// reach waits until a workspace answers on every processor while the disk is frozen. Over io_uring, what is sent before
// the daemon has found its threads out of reach waits for the thaw (docs/ARCHITECTURE.md), and how soon that is depends
// on how busy the machine is.
func (d *frost) reach(workspace string) {
	d.t.Helper()
	for cpu := range runtime.NumCPU() {
		for try := 0; ; try++ {
			// A name that does not exist and has not been looked up yet.
			d.asked++
			answered := make(chan struct{})
			name := filepath.Join(d.tmp, workspace, "nothing"+strconv.Itoa(d.asked))
			cmd := exec.Command("taskset", "-c", strconv.Itoa(cpu), "stat", name)
			require.NoError(d.t, cmd.Start())
			go func() {
				_ = cmd.Wait() // says that there is no such file
				close(answered)
			}()
			select {
			case <-answered:
			case <-time.After(time.Second):
				if try < 20 {
					continue // it ends with the thaw
				}
				d.t.Errorf("%s: nothing is answered on processor %d while the host is frozen", workspace, cpu)
			}
			break
		}
	}
}

// TestTwinFrozen freezes the file system of the home, as a backup does, while programs work in several workspaces. What
// is stored can be read meanwhile, and afterwards all is as if nothing had been.
func TestTwinFrozen(t *testing.T) {
	seed := testseed.Of(t)
	rng := newRand(seed)
	h := newFrost(t, 512)
	shell(t, soon, h.makeDir("stored"), `for i in $(seq 40); do seq $((i*1000)) > f$i; done`)
	h.ok("create", "reader", "--from", h.path("stored"))
	h.ok("mount", "reader", h.makeDir("reader"))
	lower := plainTree(h.home, "lower", seed, 300)
	var pairs []*pair
	for i, transport := range []string{"dev", "auto", "auto"} {
		source, plain := lower, lower
		if i == 2 {
			source, plain = "", ""
		}
		config := twin.Config{Seed: seed + uint64(i)}
		pairs = append(pairs, newPair(h.home, "ws"+itoa(i), source, plain, config, "--transport", transport))
	}
	crowded := h.ok("create", "crowded")
	h.ok("mount", crowded, h.makeDir("crowded"))
	c := startCrowd(t, "writers", h.path("crowded"), 20+rng.IntN(60), seed)
	t.Cleanup(h.thaw) // before the crowd's end
	for round := range rounds(1, 5) {
		c.more(1)
		together(t, pairs, 150, func() {
			time.Sleep(time.Duration(rng.IntN(200)) * time.Millisecond)
			h.freeze()
			h.reach("reader")
			// Each file for the first time: nothing of it is in the kernel.
			for i := 1 + round*8; i <= 8+round*8; i++ {
				r := process(t, frozenFor/2, h.tmp, nil, "cmp", "reader/f"+itoa(i), "stored/f"+itoa(i))
				if r.code != 0 {
					t.Errorf("SNAPFS_SEED=%d: read while the host is frozen: %d %s%s", seed, r.code, r.out, r.err)
				}
			}
			h.ok("list")
			h.ok("show", "ws0")
			time.Sleep(time.Duration(rng.IntN(800)) * time.Millisecond)
			h.thaw()
		})
		c.more(10)
		for _, p := range pairs {
			p.actor.Compare()
		}
		h.ok("snapshot", "ws0")
		if rng.IntN(2) == 0 {
			p := pairs[rng.IntN(len(pairs))]
			p.reopened(func() { h.ok("umount", p.name) })
		}
	}
	for _, p := range pairs {
		p.end()
	}
}
