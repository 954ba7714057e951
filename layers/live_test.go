package layers

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"snapfs/internal/livestate"
	"snapfs/internal/testseed"
)

// newLiveRig is newRig with a live state.
func newLiveRig(t *testing.T, lowerDirs ...string) *rig {
	t.Helper()
	r := newRig(t, lowerDirs...)
	r.leave()
	return r
}

// leave opens the overlay again with a live state.
func (r *rig) leave() {
	r.t.Helper()
	var err error
	if r.live, err = livestate.Create("test"); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if err := r.live.Close(); err != nil {
			r.t.Error(err)
		}
	})
	r.reopen()
}

// killed ends the overlay as the end of its process does, which leaves the host and the live state as they are, and
// opens it for a successor.
func (r *rig) killed() {
	r.t.Helper()
	r.die()
	r.succeed()
}

// die is killed, without the successor.
func (r *rig) die() {
	r.t.Helper()
	q := &r.o.reaper
	q.mu.Lock()
	for _, d := range slices.Concat(q.queue, q.spare[0], q.spare[1]) {
		d.name = ""
		d.close()
	}
	q.queue, q.spare = nil, [2][]reaped{}
	q.mu.Unlock()
	if err := r.o.Close(); err != nil {
		r.t.Fatal(err)
	}
}

// succeed opens the overlay with another mapping of the live state.
func (r *rig) succeed() {
	r.t.Helper()
	fd, err := unix.FcntlInt(r.live.File().Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	next, err := livestate.Open(os.NewFile(uintptr(fd), "live state"))
	if err != nil {
		r.t.Fatal(err)
	}
	if err := r.live.Close(); err != nil {
		r.t.Fatal(err)
	}
	r.live = next
	r.open()
}

// wantRecords checks that so many nodes are recorded, and that the orphan directory has so many names.
func (r *rig) wantRecords(records, orphans int) {
	r.t.Helper()
	r.o.reaper.drain()
	if got := r.o.nodes.live.nodes.Len(); got != records {
		r.t.Errorf("%d nodes are recorded, want %d", got, records)
	}
	names, err := os.ReadDir(filepath.Join(r.work(), orphanDir))
	if err != nil || len(names) != orphans {
		r.t.Errorf("%d files without a name are kept, %v; want %d", len(names), err, orphans)
	}
	if got := r.o.orphans.count.Load(); got != int64(orphans) {
		r.t.Errorf("%d files without a name are counted, want %d", got, orphans)
	}
}

// held is what a kernel refers to.
type held struct {
	Entry
	refs uint64
}

// state is what programs that have it open see of a node.
func (r *rig) state(id NodeID) string {
	r.t.Helper()
	a, err := r.o.GetAttr(id)
	if err != nil {
		return errName(err)
	}
	s := fmt.Sprintf("%o %d %d %d %d", a.Mode, a.UID, a.GID, a.Size, a.Nlink)
	if a.Mtime.Sec < 1.2e9 {
		s += fmt.Sprint(a.Mtime)
	}
	list, err := r.o.ListXattr(id)
	slices.Sort(list)
	s += fmt.Sprint(list, errName(err))
	switch {
	case isLnk(a.Mode):
		target, err := r.o.Readlink(id)
		s += target + errName(err)
	case isDir(a.Mode):
		var names []string
		err := r.o.ReadDir(id, 0, func(d DirEntry) bool { names = append(names, d.Name); return true })
		slices.Sort(names)
		s += fmt.Sprint(names, errName(err))
	case isReg(a.Mode):
		buf := make([]byte, 20000)
		n, err := r.o.Read(id, buf, 0)
		s += strings.TrimRight(string(buf[:n]), "\x00") + errName(err)
	}
	return s
}

// TestTakeOver: what the kernel knows by a node is the same to a successor, whatever kind of node it is.
func TestTakeOver(t *testing.T) {
	base := t.TempDir()
	for _, err := range []error{
		os.MkdirAll(base+"/low/sub", 0o755),
		os.WriteFile(base+"/low/f", []byte("lower"), 0o644),
		os.WriteFile(base+"/low/sub/g", []byte("deep"), 0o600),
		os.WriteFile(base+"/low/changed", []byte("old"), 0o600),
		os.WriteFile(base+"/low/gone", []byte("gone"), 0o600),
		os.MkdirAll(base+"/all/gone/with", 0o755),
		os.WriteFile(base+"/all/gone/with/it", []byte("it"), 0o600),
		os.WriteFile(base+"/all/gone/more", []byte("more"), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	r := newLiveRig(t, base)
	if err := errors.Join(r.mkdir("d", 0o755), r.mkdir("d/e", 0o755), r.mkdir("empty", 0o755), r.mkdir("over", 0o755), r.mkdir("by", 0o755)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"d/e/file", "one", "unlinked", "replaced", "new", "linked", "seen"} {
		r.create(name, "of "+name)
	}
	if err := errors.Join(r.write("low/changed", "NEW", 0), r.link("linked", "d/link"), r.link("seen", "unseen")); err != nil {
		t.Fatal(err)
	}
	var all []held
	want := map[NodeID]string{}
	for _, path := range []string{
		"low", "low/f", "low/sub/g", "low/changed", "low/gone", "d/e", "d/e/file", "one", "unlinked", "replaced", "empty", "over",
		"linked", "all/gone", "all/gone/with", "all/gone/with/it", "all/gone/more", "seen",
	} {
		e, err := r.find(path)
		if err != nil {
			t.Fatal(path, err)
		}
		all = append(all, held{e, 1})
	}
	tmp, err := r.o.Tmpfile(Caller{}, RootNode, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	all = append(all, held{tmp, 1})
	for _, err := range []error{
		r.unlink("unlinked"), r.rename("new", "replaced", 0), r.rmdir("empty"), r.unlink("low/gone"), r.rename("d", "moved", 0),
		r.rename("by", "over", 0), r.rename("low/sub", "sub", 0), r.unlink("linked"),
		r.unlink("all/gone/with/it"), r.rmdir("all/gone/with"), r.unlink("all/gone/more"), r.rmdir("all/gone"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, h := range all {
		want[h.Node] = r.state(h.Node)
	}
	check := func(when string) {
		t.Helper()
		for i := range all {
			h := all[len(all)-1-i] // those deep down first
			if got := r.state(h.Node); got != want[h.Node] {
				t.Errorf("%s: node %x: got %.200q, want %.200q", when, h.Node, got, want[h.Node])
			}
		}
	}
	check("before")
	for range 2 {
		r.killed()
		check("killed")
	}
	e, err := r.find("moved/e/file")
	if err != nil || e.Node != all[6].Node || e.Gen != all[6].Gen {
		t.Errorf("got %d, %d, %v; want %d, %d", e.Node, e.Gen, err, all[6].Node, all[6].Gen)
	}
	r.o.Forget(e.Node, 1)
	r.seal()
	check("sealed")
	r.killed()
	check("killed after a seal")
	if err := r.made(r.o.Link(tmp.Node, RootNode, "tmp")); err != nil {
		t.Error(err)
	}
	if err := r.made(r.o.Link(all[8].Node, RootNode, "again")); !errors.Is(err, unix.ENOENT) {
		t.Errorf("an unlinked file gets a name: %v", err)
	}
	r.killed()
	if e, err = r.find("tmp"); err != nil || e.Node != tmp.Node || e.Attr.Nlink != 1 {
		t.Errorf("got %d with %d links, %v; want %d", e.Node, e.Attr.Nlink, err, tmp.Node)
	}
	r.o.Forget(e.Node, 1)
	r.killed()
	for _, h := range all {
		r.o.Forget(h.Node, h.refs)
	}
	r.wantNodes(1)
	r.wantRecords(0, 0)
	if err := r.rename("seen", "renamed", 0); err != nil {
		t.Fatal(err)
	}
}

// TestTakeOverLink: of a file that has lost all names that the kernel knew, but not all, a successor finds the others.
func TestTakeOverLink(t *testing.T) {
	r := newLiveRig(t)
	r.create("a", "text")
	if err := errors.Join(r.mkdir("d", 0o755), r.link("a", "d/b")); err != nil {
		t.Fatal(err)
	}
	r.killed()
	e, err := r.find("a")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.unlink("a"); err != nil {
		t.Fatal(err)
	}
	want := r.state(e.Node)
	r.killed()
	if got := r.state(e.Node); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	f, err := r.find("d/b")
	if err != nil || f.Node != e.Node || f.Gen != e.Gen {
		t.Errorf("the other name is %d, %v; want %d", f.Node, err, e.Node)
	}
	r.o.Forget(e.Node, 2)
	r.wantNodes(1)
	r.wantRecords(0, 0)
}

// TestTakeOverNameCopied: a node that a look-up has made of its record keeps its name when the memory that held the
// look-up's one holds something else.
func TestTakeOverNameCopied(t *testing.T) {
	r := newLiveRig(t)
	r.create("first", "text of the first")
	r.create("other", "other")
	e, err := r.find("first")
	if err != nil {
		t.Fatal(err)
	}
	want := r.state(e.Node)
	r.killed()
	request := []byte("first")
	if _, err := r.o.Lookup(RootNode, unsafe.String(&request[0], len(request))); err != nil {
		t.Fatal(err)
	}
	copy(request, "other") // the next request
	if got := r.state(e.Node); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	r.o.Forget(e.Node, 2)
	r.wantNodes(1)
	r.wantRecords(0, 0)
}

// TestTakeOverListing: a program in the middle of a listing goes on with the successor, and misses nothing.
func TestTakeOverListing(t *testing.T) {
	base := t.TempDir()
	want := map[string]int{".": 1, "..": 1}
	for i := range 300 {
		name := fmt.Sprintf("low%d", i)
		want[name] = 1
		if err := os.WriteFile(filepath.Join(base, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := newLiveRig(t, base)
	for i := range 300 {
		name := fmt.Sprintf("up%d", i)
		want[name] = 1
		r.create(name, "")
	}
	got := map[string]int{}
	for cookie, more := uint64(0), true; more; {
		more = false
		left := 7
		err := r.o.ReadDir(RootNode, cookie, func(d DirEntry) bool {
			if left--; left < 0 {
				more = true
				return false
			}
			got[d.Name]++
			cookie = d.Cookie
			return true
		})
		if err != nil {
			t.Fatal(err)
		}
		r.killed()
	}
	for name, n := range want {
		if got[name] != n {
			t.Errorf("%s is listed %d times", name, got[name])
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d names, want %d", len(got), len(want))
	}
}

// TestTakeOverRandom: of two overlays with the same operations one is killed again and again. Whoever holds files and
// directories open cannot tell them apart. SNAPFS_LONG=1 makes more of it.
func TestTakeOverRandom(t *testing.T) {
	seed := testseed.Of(t)
	rounds, steps := 4, 600
	if os.Getenv("SNAPFS_LONG") != "" {
		rounds, steps = 300, 1500
	}
	for i := range rounds {
		if !t.Run(strconv.Itoa(i), func(t *testing.T) { takeOverRound(t, seed+uint64(i), steps) }) {
			return
		}
	}
}

// twins are an overlay that is killed, and one that is not, with what a kernel holds of both.
type liveTwins struct {
	t       *testing.T
	rng     *rand.Rand
	r       [2]*rig
	held    [][2]held
	history []string
}

func takeOverRound(t *testing.T, seed uint64, steps int) {
	rng := rand.New(rand.NewPCG(seed, 3))
	base, other := randomLower(t, rng, true), randomLower(t, rng, false)
	w := &liveTwins{t: t, rng: rng}
	for i := range w.r {
		w.r[i] = newRig(t, base, other)
	}
	w.r[0].leave()
	for i := range steps {
		w.step()
		if rng.IntN(20) == 0 {
			w.note("CHECK")
			w.check(fmt.Sprint("step ", i))
		}
		if t.Failed() {
			for _, s := range w.history[max(0, len(w.history)-150):] {
				t.Log(s)
			}
			t.Fatalf("SNAPFS_SEED=%d", seed)
		}
	}
	w.check("end")
	if rng.IntN(2) == 0 {
		w.r[0].killed() // some of what is forgotten is a record only
	}
	for i, h := range w.held {
		if i%3 == 0 {
			_ = w.r[0].state(h[0].Node)
		}
		for k, r := range w.r {
			r.o.Forget(h[k].Node, h[k].refs)
		}
	}
	w.r[0].wantNodes(1)
	w.r[0].wantRecords(0, 0)
}

func (w *liveTwins) note(format string, args ...any) {
	w.history = append(w.history, fmt.Sprintf(format, args...))
}

func (w *liveTwins) step() {
	rng := w.rng
	var got [2]string
	switch k := rng.IntN(100); {
	case k < 50:
		s := randomStep(rng)
		w.note("%s", s)
		for i, r := range w.r {
			got[i] = r.do(s)
		}
	case k < 65:
		path := randomPath(rng)
		w.note("HOLD %d %s", len(w.held), path)
		var h [2]held
		for i, r := range w.r {
			e, err := r.find(path)
			h[i], got[i] = held{e, 1}, errName(err)
		}
		if h[0].Node > RootNode && got[0] == got[1] {
			w.held = append(w.held, h)
		}
	case k < 68:
		var h [2]held
		w.note("TMPFILE %d", len(w.held))
		for i, r := range w.r {
			e, err := r.o.Tmpfile(Caller{}, RootNode, 0o640)
			h[i], got[i] = held{e, 1}, errName(err)
		}
		w.held = append(w.held, h)
	case k < 84 && len(w.held) > 0:
		got = w.change(rng.IntN(len(w.held)))
	case k < 90 && len(w.held) > 0:
		i := rng.IntN(len(w.held))
		w.note("FORGET %d", i)
		for k, r := range w.r {
			r.o.Forget(w.held[i][k].Node, w.held[i][k].refs)
		}
		w.held = slices.Delete(w.held, i, i+1)
	case k == 90:
		w.note("SEAL")
		for _, r := range w.r {
			r.seal()
		}
	case k < 97:
		w.note("KILL")
		w.r[0].killed()
	}
	if got[0] != got[1] {
		w.t.Errorf("the successor says %.200q, the other one %.200q", got[0], got[1])
	}
}

// change changes something by its node.
func (w *liveTwins) change(i int) (got [2]string) {
	kind, n, path := w.rng.IntN(5), w.rng.Int64N(9000), randomPath(w.rng)
	w.note("CHANGE %d %d %d %s", i, kind, n, path)
	for k, r := range w.r {
		id := w.held[i][k].Node
		var err error
		switch kind {
		case 0:
			_, err = r.o.Write(id, []byte(strconv.FormatInt(n, 10)), n, nil)
		case 1:
			_, err = r.o.SetAttr(Caller{}, id, SetAttr{Valid: SetMode, Mode: uint32(n) & 0o777})
		case 2:
			err = r.o.SetXattr(id, "trusted.held", []byte("x"), 0)
		case 3:
			err = r.in(path, func(p NodeID, name string) error { return r.made(r.o.Link(id, p, name)) })
		case 4:
			_, err = r.o.SetAttr(Caller{}, id, SetAttr{Valid: SetSize, Size: uint64(n)})
		}
		got[k] = errName(err)
	}
	return got
}

// check compares what programs see that hold things open, and the trees.
func (w *liveTwins) check(when string) {
	for i, h := range w.held {
		got, want := w.r[0].state(h[0].Node), w.r[1].state(h[1].Node)
		if got != want {
			w.t.Errorf("%s: %d, node %x: the successor shows %.300q, the other one %.300q", when, i, h[0].Node, got, want)
		}
	}
	var seen [2][]string
	for k, r := range w.r {
		for _, n := range r.walk() {
			seen[k] = append(seen[k], fmt.Sprintf("%s %o %d %d %.300q", n.Path, n.Mode, n.Nlink, n.Size, n.Hash))
		}
	}
	if got, want := strings.Join(seen[0], "\n"), strings.Join(seen[1], "\n"); got != want {
		w.t.Errorf("%s: the trees differ: %s\n\n%s", when, got, want)
	}
}

// BenchmarkLookupForget looks a known file up and forgets it, and one that nobody knows, with and without records.
func BenchmarkLookupForget(b *testing.B) {
	for _, recorded := range []bool{false, true} {
		b.Run(fmt.Sprintf("recorded=%v", recorded), func(b *testing.B) {
			opts := Options{InoBase: 1 << 48}
			if recorded {
				var err error
				if opts.Live, err = livestate.Create("bench"); err != nil {
					b.Fatal(err)
				}
				defer opts.Live.Close() //nolint:errcheck // nobody goes on with it
			}
			o, err := New(b.TempDir(), b.TempDir(), nil, opts)
			if err != nil {
				b.Fatal(err)
			}
			defer func() {
				if err := o.Close(); err != nil {
					b.Error(err)
				}
			}()
			e, err := o.Mknod(Caller{}, RootNode, "f", unix.S_IFREG|0o644, 0)
			if err != nil {
				b.Fatal(err)
			}
			b.Run("known", func(b *testing.B) {
				for b.Loop() {
					o.nodes.mu.Lock()
					o.nodes.refLocked(o.nodes.m[e.Node])
					o.nodes.mu.Unlock()
					o.Forget(e.Node, 1)
				}
			})
			o.Forget(e.Node, 1)
			b.Run("new", func(b *testing.B) {
				for b.Loop() {
					e, err := o.Lookup(RootNode, "f")
					if err != nil {
						b.Fatal(err)
					}
					o.Forget(e.Node, 1)
				}
			})
		})
	}
}
