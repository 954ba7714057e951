package layers

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestBlockedChange: while the host takes its time with one change, everything else goes on: look-ups, reads and listings, in its
// directory too, and changes elsewhere. What it is about is there, by its node.
func TestBlockedChange(t *testing.T) {
	low := t.TempDir()
	for _, name := range []string{"low/f", "low/sub/f"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(low, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(low, name), []byte("stored"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for what, change := range map[string]func(r *rig) error{
		"create": func(r *rig) error { return r.mknod("d/new", unix.S_IFREG|0o644, 0) },
		"mkdir":  func(r *rig) error { return r.mkdir("d/new", 0o755) },
		"symlink": func(r *rig) error {
			return r.in("d/new", func(p NodeID, name string) error { return r.made(r.o.Symlink(Caller{}, p, name, "x")) })
		},
		"over a whiteout":   func(r *rig) error { return r.mkdir("low/gone", 0o755) },
		"unlink":            func(r *rig) error { return r.unlink("d/x") },
		"unlink a link":     func(r *rig) error { return r.unlink("d/one") },
		"unlink a stored":   func(r *rig) error { return r.unlink("low/f") },
		"rmdir":             func(r *rig) error { return r.rmdir("d/x.d") },
		"chmod":             func(r *rig) error { return r.setattr("d/x", SetAttr{Valid: SetMode, Mode: 0o600}) },
		"chmod a directory": func(r *rig) error { return r.setattr("d", SetAttr{Valid: SetMode, Mode: 0o700}) },
		"setxattr": func(r *rig) error {
			return r.on("d/x", func(n NodeID) error { return r.o.SetXattr(n, "trusted.x", nil, 0) })
		},
	} {
		t.Run(what, func(t *testing.T) {
			r := newRig(t, low)
			for _, dir := range []string{"d", "e", "d/x.d", "low/gone"} {
				if err := r.mkdir(dir, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			for _, f := range []string{"d/x", "d/y", "d/one", "e/f"} {
				r.create(f, "here")
			}
			if err := r.link("d/one", "e/two"); err != nil {
				t.Fatal(err)
			}
			if err := r.rmdir("low/gone"); err != nil {
				t.Fatal(err)
			}
			ids := map[string]NodeID{}
			for _, f := range []string{"d/x", "d/y", "d/one", "e/two", "e/f", "low/f", "low/sub/f", "d", "d/x.d"} {
				ids[f] = r.nodeOf(f)
			}
			blocked, free := make(chan struct{}), make(chan struct{})
			var once atomic.Bool
			steps = func(string) {
				if once.CompareAndSwap(false, true) {
					close(blocked)
					<-free
				}
			}
			defer func() { steps = nil }()
			done := make(chan error, 1)
			go func() { done <- change(r) }()
			<-blocked
			others := make(chan struct{})
			go func() {
				defer close(others)
				for f, id := range ids {
					if _, err := r.o.GetAttr(id); err != nil {
						t.Errorf("stat of %s: %v", f, err)
					}
				}
				for _, f := range []string{"d/y", "e/f", "low/sub/f"} {
					if got := r.read(f); got != "here" && got != "stored" {
						t.Errorf("%s has %q", f, got)
					}
				}
				if got := r.list("d"); !slices.Contains(got, "y") {
					t.Errorf("listed %q", got)
				}
				if err := r.mknod("e/new", unix.S_IFREG|0o644, 0); err != nil {
					t.Error("create elsewhere:", err)
				}
				if err := r.unlink("e/f"); err != nil {
					t.Error("unlink elsewhere:", err)
				}
			}()
			select {
			case <-others:
			case <-time.After(time.Minute):
				t.Error("others wait for it")
			}
			close(free)
			if err := <-done; err != nil {
				t.Error(err)
			}
			<-others
			for f, id := range ids {
				if _, err := r.o.GetAttr(id); err != nil {
					t.Errorf("stat of %s afterwards: %v", f, err)
				}
				r.o.Forget(id, 1)
			}
			r.wantNodes(1)
			before := r.walk()
			r.reopen()
			if after := r.walk(); len(before) != len(after) {
				t.Errorf("%d paths became %d by a restart", len(before), len(after))
			}
		})
	}
}

// TestConcurrentNames has several actors make and remove files and directories in few directories, with links among them.
func TestConcurrentNames(t *testing.T) {
	r := newRig(t)
	for i := range 3 {
		if err := r.mkdir("d"+strconv.Itoa(i), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	for actor := range 4 {
		wg.Go(func() {
			for i := range 300 {
				dir := "d" + strconv.Itoa((actor+i)%3) + "/"
				var err error
				switch i % 6 {
				case 0:
					err = r.mknod(dir+"f", unix.S_IFREG|0o644, 0)
				case 1:
					err = r.link(dir+"f", "d"+strconv.Itoa(i%3)+"/g")
				case 2:
					err = r.unlink(dir + "f")
				case 3:
					err = r.mkdir(dir+"s", 0o755)
				case 4:
					err = r.mknod(dir+"s/x", unix.S_IFREG|0o644, 0)
				case 5:
					_ = r.unlink(dir + "s/x")
					_ = r.unlink(dir + "g")
					err = r.rmdir(dir + "s")
				}
				switch got := errName(err); got {
				case "ok", "ENOENT", "EEXIST", "ENOTEMPTY":
				default:
					t.Errorf("actor %d, %d: %s", actor, i, got)
				}
			}
		})
	}
	wg.Wait()
	r.wantRestart()
}

// TestUnlinkBelow: what only a lower has is removed without a lock that look-ups need, until the name is gone.
func TestUnlinkBelow(t *testing.T) {
	r := newRig(t, movesBelow(t))
	r.create("to/new", "")
	p := r.nodeOf("to")
	defer r.o.Forget(p, 1)
	gone := make(chan struct{})
	steps = func(step string) {
		if step == "name gone" {
			close(gone)
		}
	}
	done := make(chan error, 1)
	r.o.tree.RLock()
	go func() { done <- r.o.Unlink(p, "h") }()
	select {
	case <-gone:
	case <-time.After(time.Minute):
		t.Error("it waits for who looks something up")
	}
	r.o.tree.RUnlock()
	err := <-done
	steps = nil
	if err != nil {
		t.Error(err)
	}
}
