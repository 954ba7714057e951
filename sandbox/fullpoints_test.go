package sandbox_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/internal/testseed"
	"snapfs/sandbox"
)

// filler fills the file system of a home at points that it passes.
type filler struct {
	t    *testing.T
	path string // of what fills it
	long bool   // at every point
	seed uint64

	mu    sync.Mutex
	phase string          // guarded by mu, as is the rest
	seen  map[string]bool // points by phase
	full  string          // where it was filled; "" while it is not
	fills int
}

// at fills the disk at a point, if it is to be.
func (f *filler) at(point string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := f.phase + ": " + point
	if f.phase == "" || f.full != "" || f.seen[key] {
		return
	}
	f.seen[key] = true
	if !f.long && !chosen(f.seed, key, 12) {
		return
	}
	f.full = key
	f.fills++
	if err := fill(f.path); err != nil {
		f.t.Errorf("%s: %v", key, err)
	}
}

// fill takes all the room of a file system.
func fill(path string) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	var fs unix.Statfs_t
	if err = unix.Fstatfs(int(file.Fd()), &fs); err == nil {
		// The bulk at once; the rest byte by byte.
		if err = unix.Fallocate(int(file.Fd()), 0, 0, int64(fs.Bavail)*fs.Bsize*9/10); errors.Is(err, unix.ENOSPC) {
			err = nil
		}
	}
	data := make([]byte, 1<<20)
	for len(data) > 0 && err == nil {
		if _, err = file.Write(data); errors.Is(err, unix.ENOSPC) {
			data, err = data[:len(data)/2], nil
		}
	}
	return errors.Join(err, file.Close())
}

// empty gives the room back; it says where it was taken.
func (f *filler) empty() (where string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	where, f.full = f.full, ""
	if where == "" {
		return "", nil
	}
	return where, os.Remove(f.path)
}

func (f *filler) enter(phase string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.phase = phase
}

// TestFullDiskPoints fills the disk between the steps of everything that a home does, at some points or with
// $SNAPFS_LONG at all: the call fails as a full disk does, or succeeds; programs go on reading; with room again the
// same call succeeds. At the end nothing is lost and nothing has leaked.
func TestFullDiskPoints(t *testing.T) {
	base, err := os.MkdirTemp("", "snapfs-filled-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, m := range []string{"m", "m2", "v"} {
			_ = exec.Command("umount", "-l", filepath.Join(base, m)).Run() // mounted only if the test failed
		}
		if err := os.RemoveAll(base); err != nil {
			t.Error(err)
		}
	})
	if err := errors.Join(prepareCrashRun(base), os.Mkdir(filepath.Join(base, "v"), 0o700)); err != nil {
		t.Fatal(err)
	}
	d := makeDisk(t, base, os.Getenv("SNAPFS_DISK"), 400)
	f := &filler{
		t: t, path: filepath.Join(d.at, "filler"), long: os.Getenv("SNAPFS_LONG") != "",
		seed: testseed.Of(t), seen: map[string]bool{},
	}
	l := newLedger()
	r := &crashRun{
		work: base, home: filepath.Join(d.at, "home"), points: f.at,
		phase: f.enter, promise: func(change func(*ledger)) { change(l) },
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	for _, s := range r.steps() {
		f.fillDuring(ctx, r, s)
		if t.Failed() {
			t.Log("the home is closed: ", r.stop())
			return
		}
	}
	t.Log(f.fills, "fills at", len(f.seen), "points")
	l.Taking, l.Making = []string{"any"}, []string{"any"} // of calls that failed half-way
	v := &verifier{t: t, home: r.home, at: filepath.Join(base, "v"), ledger: l, most: 5}
	v.verify(ctx)
}

// fillDuring runs a step until it has been through without the disk being filled.
func (f *filler) fillDuring(ctx context.Context, r *crashRun, s crashStep) {
	f.t.Helper()
	for {
		f.enter(s.phase)
		err := s.run(ctx)
		f.enter("")
		where, eerr := f.empty()
		if eerr != nil {
			f.t.Errorf("%s: %v", s.phase, eerr)
		}
		if err == nil || where == "" {
			if err != nil {
				f.t.Errorf("%s: %v", s.phase, err)
			}
			return
		}
		if !errors.Is(err, unix.ENOSPC) && s.phase != "write" { // a program's own message is only text
			f.t.Errorf("%s on a disk that is full from %q on: %v", s.phase, where, err)
		}
		// The workspace goes on.
		if r.h == nil {
			continue // it could not be opened
		}
		if w, serr := r.h.Show(ctx, sandbox.RefRequest{Ref: "w"}); serr == nil && w.Workspace.State == sandbox.Mounted {
			if serr := shell(ctx, `find "$1" -type f -exec cat {} + > /dev/null`, filepath.Join(r.work, "m")); serr != nil {
				f.t.Errorf("%s, filled at %q: %v", s.phase, where, serr)
			}
		}
		if f.t.Failed() {
			return
		}
	}
}
