package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/internal/testseed"
)

// disk is a file system of its own in a file.
type disk struct {
	image string
	at    string
}

// makeDisk makes and mounts one of some MiB. Nothing that is not asked for is written for a minute.
func makeDisk(t *testing.T, dir, kind string, mib int64) *disk {
	t.Helper()
	d := &disk{image: filepath.Join(dir, "image"), at: filepath.Join(dir, "disk")}
	script := `mkdir "$2"; truncate -s "$3M" "$1"; mkfs.ext4 -q -m 0 -E lazy_itable_init=0 "$1"; mount -o loop,discard,commit=60 "$1" "$2"`
	if kind == "xfs" {
		script = `mkdir "$2"; truncate -s "$3M" "$1"; mkfs.xfs -q "$1"; mount -o loop,discard "$1" "$2"`
	}
	if err := shell(t.Context(), script, d.image, d.at, fmt.Sprint(mib)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(d.at, 0); err != nil {
			t.Errorf("unmount: %v", err)
			_ = unix.Unmount(d.at, unix.MNT_DETACH)
		}
	})
	return d
}

// powerLoss runs a home on a file system of its own and, at the points that it passes, looks at what a loss of power
// would leave: a copy of the device as it is then, without what lies in the kernel's memory only. The file system of
// the copy is mounted, which replays its journal, and the home in it opened and verified.
type powerLoss struct {
	t    *testing.T
	disk *disk
	work string // for copies
	long bool   // look at every point
	seed uint64

	mu     sync.Mutex
	phase  string // guarded by mu, as is the rest
	seen   map[string]int
	points map[string]bool // without their phases
	looks  int
	ledger *ledger
}

// at is told by the home, sometimes by several goroutines at once, that a step is done.
func (p *powerLoss) at(point string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.points[point] = true
	key := p.phase + ": " + point
	p.seen[key]++
	switch n := p.seen[key]; {
	case p.t.Failed(), p.long && n > 2, !p.long && (n > 1 || !chosen(p.seed, key, 24)):
		return
	}
	p.looks++
	p.look(key)
}

// look verifies what is left if the power goes now; p.mu is held.
func (p *powerLoss) look(at string) {
	// A loop device may outlive its mount for a moment, with what it has cached of its file.
	image, mnt := filepath.Join(p.work, fmt.Sprint("image", p.looks)), filepath.Join(p.work, "disk")
	options := "loop"
	if os.Getenv("SNAPFS_DISK") == "xfs" {
		options += ",nouuid" // the device itself is mounted, too
	}
	// Threads of the store go on meanwhile: copy until the device stands still.
	script := `while cp --sparse=always "$1" "$2"; ! cmp -s "$1" "$2"; do :; done; mount -o "$4" "$2" "$3"`
	if err := shell(context.Background(), script, p.disk.image, image, mnt, options); err != nil {
		p.t.Errorf("%s: %v", at, err)
		return
	}
	p.t.Run(at, func(t *testing.T) {
		home := filepath.Join(mnt, "home")
		if _, err := os.Stat(filepath.Join(home, "snapfs-home")); errors.Is(err, fs.ErrNotExist) && len(p.ledger.Workspaces) == 0 {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		v := &verifier{t: t, home: home, at: filepath.Join(p.work, "m"), ledger: p.ledger, most: 3}
		v.verify(ctx)
	})
	if err := errors.Join(unix.Unmount(mnt, 0), os.Remove(image)); err != nil {
		p.t.Errorf("%s: %v", at, err)
	}
}

// TestPowerLoss takes the power away between the steps of everything that a home does: at some, or with $SNAPFS_LONG at
// all. $SNAPFS_DISK is ext4 or xfs.
func TestPowerLoss(t *testing.T) {
	base, err := os.MkdirTemp("", "snapfs-power-")
	if err != nil {
		t.Fatal(err)
	}
	work := filepath.Join(base, "work")
	t.Cleanup(func() {
		for _, m := range []string{"work/m", "work/disk", "m", "m2"} {
			_ = exec.Command("umount", "-l", filepath.Join(base, m)).Run() // mounted only if the test failed
		}
		if err := os.RemoveAll(base); err != nil {
			t.Error(err)
		}
	})
	if err := errors.Join(prepareCrashRun(base), os.MkdirAll(filepath.Join(work, "disk"), 0o700), os.Mkdir(filepath.Join(work, "m"), 0o700)); err != nil {
		t.Fatal(err)
	}
	p := &powerLoss{
		t: t, disk: makeDisk(t, base, os.Getenv("SNAPFS_DISK"), 400), work: work, long: os.Getenv("SNAPFS_LONG") != "",
		seed: testseed.Of(t), seen: map[string]int{}, points: map[string]bool{}, ledger: newLedger(),
	}
	r := &crashRun{
		work: base, home: filepath.Join(p.disk.at, "home"), points: p.at,
		phase: func(name string) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.phase = name
		},
		promise: func(change func(*ledger)) {
			p.mu.Lock()
			defer p.mu.Unlock()
			change(p.ledger)
		},
	}
	if err := r.run(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Log(p.looks, "looks at", len(p.seen), "moments")
	pointsVisited(t, p.points)
}
