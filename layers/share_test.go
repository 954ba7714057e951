package layers

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// rigPins is the limit of pins of the rigs that are made; 0: the process's.
var rigPins int64

// TestWithoutPins runs tests of inodes without a name again with no descriptor for them: all that programs see is the
// same.
func TestWithoutPins(t *testing.T) {
	rigPins = -1
	defer func() { rigPins = 0 }()
	for _, c := range []struct {
		name string
		test func(t *testing.T)
	}{
		{"UnlinkedWhileOpen", TestUnlinkedWhileOpen},
		{"Tmpfile", TestTmpfile},
		{"TmpfileForgotten", TestTmpfileForgotten},
		{"TmpfileACL", TestTmpfileACL},
		{"UnseenName", TestUnseenName},
		{"FoundAgain", TestFoundAgain},
		{"BlockUnnamed", TestBlockUnnamed},
		{"BlockSideFile", TestBlockSideFile},
		{"RollbackRandom", TestRollbackRandom},
		{"RestackRandom", TestRestackRandom},
	} {
		t.Run(c.name, c.test)
	}
}

// TestOrphanDirectories: a removed directory that is open takes no descriptor beyond the bound, and is what it was.
func TestOrphanDirectories(t *testing.T) {
	r := newRig(t)
	r.o.orphans.limit = -1
	descriptors.purge(func(fdKey) bool { return true })
	before := openFiles(t)
	var open []Entry
	for i := range 50 {
		name := fmt.Sprintf("d%d", i)
		if err := errors.Join(r.mkdir(name, 0o750), r.setattr(name, SetAttr{Valid: SetUID, UID: 7})); err != nil {
			t.Fatal(err)
		}
		e, err := r.find(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.o.SetXattr(e.Node, "user.x", []byte(name), 0); err != nil {
			t.Fatal(err)
		}
		open = append(open, e)
		if i%2 == 0 {
			err = r.rmdir(name)
		} else if err = r.mkdir("over", 0o700); err == nil {
			err = errors.Join(r.rename("over", name, 0), r.rmdir(name))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	descriptors.purge(func(fdKey) bool { return true })
	if n := openFiles(t) - before; n > 2 {
		t.Errorf("%d descriptors for %d removed directories", n, len(open))
	}
	check := func() {
		t.Helper()
		for i, e := range open {
			a, err := r.o.GetAttr(e.Node)
			if err != nil || a.Nlink != 0 || a.Ino != e.Attr.Ino || a.Mode != unix.S_IFDIR|0o750 || a.UID != 7 {
				t.Errorf("%d: %d links, inode %d, mode %o, owner %d, %v", i, a.Nlink, a.Ino, a.Mode, a.UID, err)
			}
			if v, err := r.o.GetXattr(e.Node, "user.x"); err != nil || string(v) != fmt.Sprintf("d%d", i) {
				t.Errorf("%d: attribute %q, %v", i, v, err)
			}
			if _, err := r.o.Mkdir(Caller{}, e.Node, "in", 0o755); !errors.Is(err, unix.ENOENT) {
				t.Errorf("%d: mkdir inside: got %v, want %v", i, err, unix.ENOENT)
			}
			if _, err := r.o.SetAttr(Caller{}, e.Node, SetAttr{Valid: SetMtimeNow}); err != nil {
				t.Errorf("%d: %v", i, err)
			}
		}
	}
	check()
	r.seal()
	check()
	for _, e := range open {
		r.o.Forget(e.Node, 1)
	}
	r.wantNodes(1)
	if n := r.o.orphans.count.Load(); n != 0 {
		t.Errorf("%d orphans stay", n)
	}
}

// TestPinsAreShared: one overlay that pins what it can leaves room for the next ones, and its removals go on.
func TestPinsAreShared(t *testing.T) {
	greedy, next := newRig(t), newRig(t)
	most := maxPins()
	took := pins.Load()
	greedy.o.share.hold(most - took - 10) // as if it had pinned so many
	defer greedy.o.share.hold(-(most - took - 10))
	if greedy.o.mayPin() {
		t.Errorf("an overlay may pin %d of %d", greedy.o.share.pinned.Load(), most)
	}
	if !next.o.mayPin() {
		t.Error("the next one may pin nothing")
	}
	for i := range 20 {
		name := fmt.Sprint(i)
		greedy.create(name, "text")
		e, err := greedy.find(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := greedy.unlink(name); err != nil {
			t.Fatal(err)
		}
		defer greedy.o.Forget(e.Node, 1)
	}
	if n := pins.Load(); n != most-10 {
		t.Errorf("%d pins, want %d", n, most-10)
	}
}

// TestCacheIsShared: whatever one overlay opens, others keep their newest descriptors.
func TestCacheIsShared(t *testing.T) {
	c := newFDCache(16)
	var shares [2]share
	open := func(s *share) *part {
		o := &part{layer: &layer{share: s}}
		fd, err := unix.Open("/", unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		c.put(fdKey{o, fdDir}, fd).release()
		return o
	}
	has := func(o *part) bool {
		d := c.get(fdKey{o, fdDir})
		if d != nil {
			d.release()
		}
		return d != nil
	}
	var mine []*part
	for range 8 {
		mine = append(mine, open(&shares[0]))
	}
	for i := range 1000 {
		open(&shares[1])
		if n := len(c.m); n > 16 {
			t.Fatalf("%d descriptors after %d", n, i)
		}
	}
	for i, o := range mine[4:] {
		if !has(o) {
			t.Errorf("%d of the newest: not open any more", i)
		}
	}
	others := make([]share, 6)
	var one []*part
	for i := range others {
		for range 3 {
			one = append(one, open(&others[i]))
		}
	}
	for i := range others {
		if !has(one[i*3+2]) {
			t.Errorf("overlay %d has not even its newest", i)
		}
	}
	c.shrink()
	if n := len(c.m); n > 8 {
		t.Errorf("%d descriptors after half were given back", n)
	}
	c.purge(func(fdKey) bool { return true })
	if len(c.shares) != 0 || shares[0].cached.n != 0 || shares[1].cached.n != 0 || c.loose.n != 0 {
		t.Errorf("empty, but %d shares, %d and %d newest, %d others", len(c.shares), shares[0].cached.n, shares[1].cached.n, c.loose.n)
	}
}

// openFiles counts the process's descriptors.
func openFiles(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}
