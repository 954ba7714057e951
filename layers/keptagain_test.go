package layers

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// orphanNames gives what is in the orphan directory.
func orphanNames(t *testing.T, work string) (names []string) {
	t.Helper()
	list, err := os.ReadDir(filepath.Join(work, orphanDir))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

// hold keeps names from being removed until release, or the end of the test.
func (r *reaper) hold(t *testing.T) (release func()) {
	add := func(n int) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.busy += n
	}
	add(reapers)
	release = sync.OnceFunc(func() {
		add(1 - reapers)
		go r.run()
	})
	t.Cleanup(release)
	return release
}

// TestKeptAgain: what is removed is renamed onto what was removed before and is forgotten, and is the same to a successor.
// A directory with whiteouts in it, and what is not forgotten, gives its name to nobody.
func TestKeptAgain(t *testing.T) {
	base := t.TempDir()
	if err := errors.Join(os.Mkdir(base+"/low", 0o755), os.WriteFile(base+"/low/f", nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	r := newLiveRig(t, base)
	if err := r.unlink("low/f"); err != nil {
		t.Fatal(err)
	}
	var held []NodeID
	remove := func(name string, dir bool) NodeID {
		t.Helper()
		e, err := r.find(name)
		if err != nil {
			t.Fatal(name, err)
		}
		if dir {
			err = r.rmdir(name)
		} else {
			err = r.unlink(name)
		}
		if err != nil {
			t.Fatal(name, err)
		}
		return e.Node
	}
	const n = 2*maxSpare + 10
	for i := range n {
		name := fmt.Sprint("f", i)
		r.create(name, "of "+name)
		if err := r.mkdir(fmt.Sprint("d", i), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	release := r.o.reaper.hold(t)
	r.o.Forget(remove("low", true), 1)
	for i := range n {
		file, dir := remove(fmt.Sprint("f", i), false), remove(fmt.Sprint("d", i), true)
		if i%10 == 0 {
			held = append(held, file)
		} else {
			r.o.Forget(file, 1)
		}
		r.o.Forget(dir, 1)
	}
	if got, want := len(orphanNames(t, r.work())), len(held)+3; got > want {
		t.Errorf("%d names in the orphan directory, want %d at most", got, want)
	}
	release()
	for range 2 {
		for i, id := range held {
			if got, want := readNode(t, r.o, id), fmt.Sprint("of f", 10*i); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}
		r.killed()
	}
	r.wantRecords(len(held), len(held))
	for _, id := range held {
		r.o.Forget(id, 1)
	}
	r.wantRecords(0, 0)
}

// TestKeptAgainKilled: a process that is killed while it gives something that it removes a name which was forgotten leaves
// that as it was, or in the orphan directory, and nobody is shown what had that name.
func TestKeptAgainKilled(t *testing.T) {
	pinned := pins.Load()
	t.Cleanup(func() { pins.Store(pinned) }) // what the dead had taken and not yet given is lost
	for kill, hit := 1, true; hit; kill++ {
		m := newMortal(t, t.TempDir(), "")
		m.create("gone", "of gone")
		m.create("f", "of f")
		m.meet()
		if err := m.o.Unlink(RootNode, "gone"); err != nil {
			t.Fatal(err)
		}
		release := m.o.reaper.hold(t) // of the process that is killed
		m.o.Forget(m.nodes["gone"], 2)
		name := orphanNames(t, m.work())
		var err error
		_, err, hit = m.do(request{"unlink", func(v Noted, _ func(string) NodeID) (Entry, error) {
			return statusOnly(v.Unlink(RootNode, "f"))
		}}, kill)
		if err != nil {
			t.Errorf("killed at step %d: %v", kill, err)
		}
		if got := readNode(t, m.o, m.nodes["f"]); got != "of f" {
			t.Errorf("killed at step %d: got %q", kill, got)
		}
		if got := orphanNames(t, m.work()); len(name) != 1 || len(got) != 1 || !hit && got[0] != name[0] {
			t.Errorf("killed at step %d: %q in the orphan directory, %q before", kill, got, name)
		}
		release()
		if kill > 20 {
			t.Fatal("no end of steps")
		}
	}
}

// TestKeptAgainOther: what has lost its name is not taken for that which a name in the orphan directory still leads to.
func TestKeptAgainOther(t *testing.T) {
	r := newLiveRig(t)
	r.create("gone", "of gone")
	r.create("f", "of f")
	f, err := r.find("f")
	if err != nil {
		t.Fatal(err)
	}
	release := r.o.reaper.hold(t)
	e, err := r.find("gone")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.unlink("gone"); err != nil {
		t.Fatal(err)
	}
	r.o.Forget(e.Node, 1)
	d, ok := r.o.reaper.again(false)
	if !ok {
		t.Fatal("nothing was forgotten")
	}
	n, err := r.o.nodes.get(f.Node)
	if err != nil {
		t.Fatal(err)
	}
	r.o.nodes.intendOrphan(n, d.serial, n.top.host)
	d.name = ""
	d.close()
	release()
	r.die()
	if err := unix.Unlink(r.upper() + "/f"); err != nil {
		t.Fatal(err)
	}
	r.succeed()
	if _, err := r.o.GetAttr(f.Node); !errors.Is(err, unix.ESTALE) {
		t.Errorf("got %v, want %v", err, unix.ESTALE)
	}
	r.o.Forget(f.Node, 1)
	r.wantRecords(0, 0)
}
