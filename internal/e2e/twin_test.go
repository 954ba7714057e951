package e2e

import (
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"snapfs/internal/testseed"
	"snapfs/internal/twin"
)

// twins are a workspace and an overlay of the kernel over the same lower, with actors that do the same in both, each in
// a directory of its own.
type twins struct {
	h         *home
	rng       *rand.Rand
	seed      uint64
	actors    []*twin.Actor
	name      string   // of the workspace that is mounted
	engines   []string // one of them shows the workspace after each mount; none: that of before
	overlays  int
	snapshots []string
	log       []string
}

// long is whether tests may take hours.
var long = os.Getenv("SNAPFS_LONG") != ""

func newTwins(t *testing.T, h *home, seed uint64, actors int, whole bool, options ...string) *twins {
	t.Helper()
	w := &twins{h: h, seed: seed, rng: rand.New(rand.NewPCG(seed, 3)), name: "ws"}
	w.begin(actors, whole, options...)
	return w
}

// begin makes the twins, and has actors work in them.
func (w *twins) begin(actors int, whole bool, options ...string) {
	h, t, seed := w.h, w.h.t, w.seed
	t.Helper()
	for i := range actors {
		maker := twin.Start(t, twin.Config{Tested: h.makeDir("lower/p" + itoa(i)), Seed: seed + uint64(i)})
		maker.Steps(400)
		maker.Stop()
	}
	// No devices, fifos and sockets: the kernel's overlayfs keeps the inode of a copied-up one that was removed and shows
	// it in place of a new file that the host gives the same number.
	shell(t, soon, h.tmp, `find lower ! -type f ! -type d ! -type l -delete
		if [ -n "$1" ]; then
			find lower ! -type d -links +1 -delete # overlays without an index part their names
			setfattr -n user.one -v 1 lower # a lower without any says EOPNOTSUPP (README, "Engines")
		fi
		find lower -exec touch -h -d @1000000000 {} +; chmod 755 lower/*; chown 0:0 lower/*`, strings.Join(w.engines, " "))
	h.ok("create", "ws", "--from", h.path("lower"))
	h.makeDir("ws")
	w.mount(options...)
	h.makeDir("reference")
	w.overlay(h.path("lower"), "")
	t.Cleanup(func() { _ = unix.Unmount(h.path("reference"), unix.MNT_DETACH) }) // before the home looks for what is left
	for i := range actors {
		w.actors = append(w.actors, twin.Start(t, twin.Config{
			Tested: h.path("ws/p" + itoa(i)), Reference: h.path("reference/p" + itoa(i)),
			Seed: seed + 1000 + uint64(i), Whole: whole, Stacked: w.engines != nil,
		}))
	}
}

// mount mounts the workspace, by one of its engines.
func (w *twins) mount(options ...string) {
	w.h.t.Helper()
	w.h.ok(append([]string{"mount", w.name, w.h.path("ws")}, append(w.engine(), options...)...)...)
}

// engine draws the engine of a mount.
func (w *twins) engine() []string {
	if w.engines == nil {
		return nil
	}
	one := w.engines[w.rng.IntN(len(w.engines))]
	w.note(one)
	return []string{"--engine", one}
}

// overlay mounts the reference over a lower or, with the merged tree as upper, over nothing. With metacopy=on the
// kernel would change a file's mtime when it is opened.
func (w *twins) overlay(lower, upper string) {
	w.h.t.Helper()
	w.overlays++
	index := "on"
	if w.engines != nil {
		index = "off"
	}
	dir := w.h.makeDir("overlay" + itoa(w.overlays))
	shell(w.h.t, soon, dir, `mkdir empty w; cp -a "${2:-empty}" u
		mount -t overlay overlay -o "lowerdir=${1:-empty},upperdir=u,workdir=w,redirect_dir=on,index=$4" "$3"`, lower, upper, w.h.path("reference"), index)
}

func (w *twins) note(what string) { w.log = append(w.log, what) }

// steps has all actors do n operations at once, and the test something else meanwhile.
func (w *twins) steps(n int, meanwhile func()) {
	w.h.t.Helper()
	var all sync.WaitGroup
	errs := make([]error, len(w.actors))
	lost := make([]bool, len(w.actors))
	for i, a := range w.actors {
		all.Go(func() { lost[i], errs[i] = a.Try(n) })
	}
	if meanwhile != nil {
		meanwhile()
	}
	all.Wait()
	for i := range w.actors {
		if errs[i] != nil || lost[i] {
			w.h.t.Fatalf("SNAPFS_SEED=%d, %q: actor %d: lost %v, %v", w.seed, w.log, i, lost[i], errs[i])
		}
	}
}

func (w *twins) each(do func(a *twin.Actor)) {
	w.h.t.Helper()
	for _, a := range w.actors {
		do(a)
	}
	if w.h.t.Failed() {
		w.h.t.Fatalf("SNAPFS_SEED=%d, %q", w.seed, w.log)
	}
}

// change does one of the things that happen to a workspace.
func (w *twins) change() {
	h := w.h
	h.t.Helper()
	what := w.rng.IntN(10)
	switch {
	case what < 3: // while the actors work
		w.note("snapshot under load")
		w.steps(300, func() { h.ok("snapshot", w.name) })
		return
	case what < 5:
		w.note("snapshot")
		id := h.ok("snapshot", w.name)
		if len(w.snapshots) < 3 {
			w.snapshots = append(w.snapshots, id)
			shell(h.t, soon, h.tmp, `cp -a reference saved-$1`, id)
		}
		return
	case what == 5:
		w.note("stored")
		h.ok("snapshot", w.name, "--wait", "stored")
		return
	}
	w.each((*twin.Actor).Detach)
	switch {
	case what == 6:
		w.note("umount, mount")
		h.ok("umount", w.name)
	case what == 7:
		w.note("stop, start")
		h.ok("stop")
	case what == 8:
		w.note("kill, start")
		pid := h.pid()
		require.NoError(h.t, unix.Kill(pid, unix.SIGKILL))
		gone(h.t, pid)
	case what == 9 && len(w.snapshots) > 0:
		id := w.snapshots[w.rng.IntN(len(w.snapshots))]
		w.note("restore " + id)
		h.ok("umount", w.name)
		w.name = h.ok(append([]string{"restore", id, h.path("ws")}, w.engine()...)...)
		shell(h.t, soon, h.tmp, `umount reference`)
		if w.engines == nil {
			w.overlay("", h.path("saved-"+id))
		} else {
			w.overlay(h.path("saved-"+id), "") // what an overlay does with a file depends on where that is
		}
	}
	if h.workspace(w.name).State != "mounted" {
		w.mount()
		if w.engines != nil { // what was changed before is below now
			lower := h.path("lower" + itoa(w.overlays))
			shell(h.t, soon, h.tmp, `cp -a reference "$1"; umount reference`, lower)
			w.overlay(lower, "")
		}
	}
	w.each((*twin.Actor).Attach)
}

// end compares for the last time, also after a restart.
func (w *twins) end() {
	w.h.t.Helper()
	w.each((*twin.Actor).Compare)
	w.each((*twin.Actor).Detach)
	w.h.ok("stop")
	if w.h.workspace(w.name).State != "mounted" { // again, with the daemon
		w.mount()
	}
	w.each((*twin.Actor).Attach)
	w.each((*twin.Actor).Compare)
	done := 0
	for _, a := range w.actors {
		done += a.Done()
		a.Stop()
	}
	w.h.t.Logf("%d operations, SNAPFS_SEED=%d", done, w.seed)
	shell(w.h.t, soon, w.h.tmp, `umount reference`)
}

// TestTwin does the same random operations in a workspace and in an overlay of the kernel, while the workspace is
// frozen, restored, mounted anew, and its daemon stopped and killed. SNAPFS_LONG=1 makes a million operations.
func TestTwin(t *testing.T) {
	for _, actors := range []int{1, 3} {
		t.Run(itoa(actors), func(t *testing.T) {
			rounds, worlds := 10, 1
			if long {
				rounds, worlds = 50, 30/actors
			}
			seed := testseed.Of(t)
			for i := range worlds {
				if !t.Run(itoa(i), func(t *testing.T) {
					w := newTwins(t, newHome(t), seed+uint64(i)*10000, actors, false)
					for range rounds {
						w.steps(300, nil)
						w.each((*twin.Actor).Compare)
						w.change()
					}
					w.end()
				}) {
					return
				}
			}
		})
	}
}

// TestTwinEngines is TestTwin of a workspace that the kernel's overlayfs shows, and of one that both engines show in turn.
func TestTwinEngines(t *testing.T) {
	for _, engines := range [][]string{{"kernel"}, {"kernel", "fuse"}} {
		t.Run(strings.Join(engines, " "), func(t *testing.T) {
			rounds, worlds := 8, 1
			if long {
				rounds, worlds = 50, 15
			}
			seed := testseed.Of(t)
			for i := range uint64(worlds) {
				w := &twins{h: newHome(t), seed: seed + i, rng: rand.New(rand.NewPCG(seed+i, 4)), name: "ws", engines: engines}
				w.begin(2, false)
				for range rounds {
					w.steps(300, nil)
					w.each((*twin.Actor).Compare)
					w.change()
				}
				w.end()
			}
		})
	}
}

// TestTwinKilled kills the daemon at random moments while an actor works: what was acknowledged is there, and the
// operation that the kill met was done or was not.
func TestTwinKilled(t *testing.T) {
	kills := 8
	if long {
		kills = 500
	}
	home := newHome(t)
	home.keepsNothing()
	w := newTwins(t, home, testseed.Of(t), 1, true)
	h, a := w.h, w.actors[0]
	met := 0
	for range kills {
		pid := h.pid()
		after := time.Duration(w.rng.IntN(200_000)) * time.Microsecond
		timer := time.AfterFunc(after, func() { _ = unix.Kill(pid, unix.SIGKILL) })
		lost, err := a.Try(1_000_000)
		timer.Stop()
		require.NoError(t, err, "SNAPFS_SEED=%d", w.seed)
		require.True(t, lost)
		gone(t, pid)
		a.Detach()
		h.ok("mount", w.name, h.path("ws"))
		a.Attach()
		a.Settle()
		met++
		if w.rng.IntN(3) == 0 {
			h.ok("snapshot", w.name)
		}
	}
	t.Logf("%d kills", met)
	w.end()
}

// TestTwinTakenOver kills the daemon while actors work and snapshots are taken, and another one goes on with the mount:
// each operation is done once, and gives what it gives on the reference. SNAPFS_LONG=1 makes it five minutes.
func TestTwinTakenOver(t *testing.T) {
	rounds, most := 0, 4*time.Second
	if long {
		most = 5 * time.Minute
	}
	w := newTwins(t, newHome(t), testseed.Of(t), 3, false, "--transport", "dev")
	k := startKiller(w.h, w.seed, 300*time.Millisecond, (*home).killDaemon)
	for begin := time.Now(); rounds < 3 || time.Since(begin) < most; rounds++ {
		w.steps(500, func() {
			if w.rng.IntN(3) == 0 {
				w.note("snapshot that a kill may end")
				w.h.run("snapshot", w.name)
			}
		})
		w.each((*twin.Actor).Compare)
	}
	t.Logf("%d kills", k.end())
	w.end()
}
