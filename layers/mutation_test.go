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

// TestBlockedChange: while the host takes its time with one change, everything else goes on: look-ups, reads and
// listings, in its directory too, and changes elsewhere. What it is about is there, by its node.
func TestBlockedChange(t *testing.T) {
	low := t.TempDir()
	for _, name := range []string{"low/f", "low/g", "low/sub/f"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(low, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(low, name), []byte("stored"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var tmpfile Entry
	elsewhere := map[string]blocked{
		"rename":            {"name moved", "d/x", "e/moved"},
		"rename over":       {"name moved", "d/x", "e/over"},
		"rename a link":     {"name moved", "d/one", "e/other"},
		"rename a stored":   {"name moved", "low/g", "d/x"},
		"link":              {"name linked", "d/x", "e/link"},
		"empty":             {"file cut off", "low/big", "low/big"},
		"tmpfile":           {"file without a name made", "", ""},
		"link a tmpfile":    {"name linked", "tmpfile", "e/link"},
		"copy up":           {"copy in place", "low/sub/f", "low/sub/f"},
		"copy up directory": {"copy in place", "low/sub", "low/sub"},
	}
	if err := os.WriteFile(filepath.Join(low, "low/big"), make([]byte, blockCopyUp), 0o644); err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(r *rig) error{
		"rename":          func(r *rig) error { return r.rename("d/x", "e/moved", 0) },
		"rename over":     func(r *rig) error { return r.rename("d/x", "e/over", 0) },
		"rename a link":   func(r *rig) error { return r.rename("d/one", "e/other", 0) },
		"rename a stored": func(r *rig) error { return r.rename("low/g", "d/x", 0) },
		"link":            func(r *rig) error { return r.link("d/x", "e/link") },
		"tmpfile":         func(r *rig) error { return r.made(r.o.Tmpfile(Caller{}, RootNode, 0o600)) },
		"link a tmpfile": func(r *rig) error {
			return r.in("e/link", func(p NodeID, name string) error { return r.made(r.o.Link(tmpfile.Node, p, name)) })
		},
		"empty":             func(r *rig) error { return r.setattr("low/big", SetAttr{Valid: SetSize}) },
		"copy up":           func(r *rig) error { return r.setattr("low/sub/f", SetAttr{Valid: SetMode, Mode: 0o600}) },
		"copy up directory": func(r *rig) error { return r.setattr("low/sub", SetAttr{Valid: SetMode, Mode: 0o700}) },
		"create":            func(r *rig) error { return r.mknod("d/new", unix.S_IFREG|0o644, 0) },
		"mkdir":             func(r *rig) error { return r.mkdir("d/new", 0o755) },
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
			for _, dir := range []string{"d", "e", "z", "d/x.d", "low/gone"} {
				if err := r.mkdir(dir, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			for _, f := range []string{"d/x", "d/y", "d/one", "e/over", "z/f"} {
				r.create(f, "here")
			}
			for _, f := range []string{"low/g", "low/big"} {
				if err := r.write(f, "here", 0); err != nil {
					t.Fatal(err)
				}
			}
			tmpfile, _ = r.o.Tmpfile(Caller{}, RootNode, 0o600)
			if err := r.link("d/one", "e/two"); err != nil {
				t.Fatal(err)
			}
			if err := r.rmdir("low/gone"); err != nil {
				t.Fatal(err)
			}
			ids := map[string]NodeID{"tmpfile": tmpfile.Node}
			for _, f := range []string{
				"d/x", "d/y", "d/one", "e/two", "e/over", "z/f", "low/f", "low/g", "low/big", "low", "low/sub", "low/sub/f", "d", "d/x.d",
			} {
				ids[f] = r.nodeOf(f)
			}
			was := map[NodeID]Attr{}
			for _, dir := range []string{"low", "low/sub"} {
				was[ids[dir]] = r.attr(dir)
			}
			blocked, free := make(chan struct{}), make(chan struct{})
			var once atomic.Bool
			at := elsewhere[what]
			steps = func(step string) {
				if (at.step == "" || at.step == step) && once.CompareAndSwap(false, true) {
					close(blocked)
					<-free
				}
			}
			defer func() { steps = nil }()
			done := make(chan error, 1)
			go func() { done <- change(r) }()
			select {
			case <-blocked:
			case err := <-done:
				t.Fatalf("no step %q: %v", at.step, err)
			}
			others := make(chan struct{})
			go func() {
				defer close(others)
				for f, id := range ids {
					if _, err := r.o.GetAttr(id); err != nil {
						t.Errorf("stat of %s: %v", f, err)
					}
				}
				if at.step != "" {
					at.check(t, r, ids, was)
				}
				for _, f := range []string{"d/y", "z/f", "low/sub/f"} {
					if got := r.read(f); got != "here" && got != "stored" {
						t.Errorf("%s has %q", f, got)
					}
				}
				if got := r.list("d"); !slices.Contains(got, "y") {
					t.Errorf("listed %q", got)
				}
				if err := r.mknod("z/new", unix.S_IFREG|0o644, 0); err != nil {
					t.Error("create elsewhere:", err)
				}
				if err := r.unlink("z/f"); err != nil {
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

// blocked is where a change waits: a step, when the host shows a node under a name.
type blocked struct{ step, node, name string }

// check holds that the name leads to the node, which is all there, and that directories show nothing of the step.
func (b blocked) check(t *testing.T, r *rig, ids map[string]NodeID, was map[NodeID]Attr) {
	t.Helper()
	for dir, want := range was {
		got, err := r.o.GetAttr(dir)
		if err != nil || b.name == b.node && (got.Mtime != want.Mtime || got.Ctime != want.Ctime || got.Nlink != want.Nlink) {
			t.Errorf("directory %x: %+v, %v; was %+v", dir, got, err, want)
		}
	}
	if b.name == "" {
		return
	}
	for range 2 { // by a new name, and by one that is known
		e, err := r.find(b.name)
		if err != nil || e.Node != ids[b.node] {
			t.Errorf("%s is node %x, %v; want %x", b.name, e.Node, err, ids[b.node])
			return
		}
		defer r.o.Forget(e.Node, 1)
		if isDir(e.Attr.Mode) {
			continue
		}
		if a, err := r.o.GetAttr(e.Node); err != nil || a.Nlink != e.Attr.Nlink {
			t.Errorf("%s has %d links, and %d, %v", b.name, e.Attr.Nlink, a.Nlink, err)
		}
		if _, err := r.o.Read(e.Node, make([]byte, 10), 0); err != nil {
			t.Errorf("read %s: %v", b.name, err)
		}
	}
}

// TestBlockedRevive: a look-up that meets a file under another name than the one that it has lost does not wait for a
// change of it. The file has that name when both are over.
func TestBlockedRevive(t *testing.T) {
	r := newRig(t)
	for _, dir := range []string{"d", "e"} {
		if err := r.mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	r.create("d/a", "here")
	if err := r.link("d/a", "e/b"); err != nil {
		t.Fatal(err)
	}
	r.reopen() // nobody knows the second name
	id := r.nodeOf("d/a")
	if err := r.unlink("d/a"); err != nil {
		t.Fatal(err)
	}
	blocked, free := make(chan struct{}), make(chan struct{})
	steps = func(step string) {
		if step == "attributes changed" {
			close(blocked)
			<-free
		}
	}
	defer func() { steps = nil }()
	done := make(chan error, 1)
	go func() {
		_, err := r.o.SetAttr(Caller{}, id, SetAttr{Valid: SetMode, Mode: 0o600})
		done <- err
	}()
	<-blocked
	met := make(chan Entry, 1)
	go func() {
		e, err := r.find("e/b")
		if err != nil {
			t.Error(err)
		}
		met <- e
	}()
	select {
	case e := <-met:
		if e.Node != id {
			t.Errorf("it is node %x, was %x", e.Node, id)
		}
		defer r.o.Forget(e.Node, 1)
	case <-time.After(time.Minute):
		t.Error("the look-up waits")
	}
	close(free)
	if err := <-done; err != nil {
		t.Error(err)
	}
	n, err := r.o.nodes.get(id)
	if err != nil || n.dead || n.name != "b" {
		t.Errorf("dead %v, called %q, %v", n.dead, n.name, err)
	}
	r.o.Forget(id, 1)
}

// TestConcurrentNames has several actors make and remove files and directories in few directories, with links among
// them.
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
			for i := range 400 {
				dir := "d" + strconv.Itoa((actor+i)%3) + "/"
				var err error
				switch i % 8 {
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
					err = r.rename(dir+"f", "d"+strconv.Itoa(i%3)+"/g", 0)
				case 6:
					err = r.rename("d"+strconv.Itoa(i%3)+"/g", dir+"s/x", 0)
				case 7:
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
