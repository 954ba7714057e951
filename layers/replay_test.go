package layers

import (
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/internal/livestate"
	"snapfs/internal/testseed"
)

// mortal is an overlay whose process can be killed in the middle of a request, and has successors.
type mortal struct {
	*rig
	state  *livestate.State
	unique uint64
	seals  bool              // it is killed while it is to seal the upper
	nodes  map[string]NodeID // by path, as the kernel has them
}

// newMortal makes an overlay over a lower.
func newMortal(t *testing.T, lower, whiteouts string) *mortal {
	t.Helper()
	m := &mortal{rig: newRig(t, lower)}
	if err := m.o.Close(); err != nil {
		t.Fatal(err)
	}
	var err error
	if m.state, err = livestate.Create("test"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // of the last one
		if err := m.state.Close(); err != nil {
			t.Error(err)
		}
	})
	if m.o, err = New(m.upper(), m.work(), m.lowers, Options{InoBase: m.base(), Live: m.state, Whiteouts: whiteouts}); err != nil {
		t.Fatal(err)
	}
	if err := m.o.Settle(m.state.Requests()); err != nil {
		t.Fatal(err)
	}
	m.meet()
	return m
}

// meet looks all names up, so that the overlay knows the nodes.
func (m *mortal) meet() {
	m.t.Helper()
	m.nodes = map[string]NodeID{"": RootNode}
	var walk func(dir string)
	walk = func(dir string) {
		for _, name := range m.list(dir) {
			p := path.Join(dir, name)
			e, err := m.o.Lookup(m.nodes[dir], name)
			if err != nil {
				m.t.Fatal(p, err)
			}
			m.nodes[p] = e.Node
			if isDir(e.Attr.Mode) {
				walk(p)
			}
		}
	}
	walk("")
}

// opened opens the live state as a successor does.
func (m *mortal) opened() *livestate.State {
	m.t.Helper()
	fd, err := unix.FcntlInt(m.state.File().Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		m.t.Fatal(err)
	}
	s, err := livestate.Open(os.NewFile(uintptr(fd), "copy"))
	if err != nil {
		m.t.Fatal(err)
	}
	return s
}

// succeed puts a successor in the place of an overlay whose process is dead.
func (m *mortal) succeed() {
	m.t.Helper()
	dead, state := m.o, m.state
	m.state = m.opened()
	if m.seals {
		l, err := OpenSealed("seal"+strconv.Itoa(m.rig.seals), m.upper(), m.base())
		if err != nil {
			m.t.Fatal(err)
		}
		m.rig.seals++
		m.fresh()
		m.lowers = append([]*Lower{l}, m.lowers...)
	}
	m.t.Cleanup(func() { // a dead process closes nothing before
		if err := errors.Join(dead.Close(), state.Close()); err != nil {
			m.t.Error(err)
		}
	})
	o, err := New(m.upper(), m.work(), m.lowers, Options{InoBase: m.base(), Whiteouts: m.o.opts.Whiteouts, Live: m.state})
	if err != nil {
		m.t.Fatal(err)
	}
	m.o = o
	if err := o.Settle(m.state.Requests()); err != nil {
		m.t.Fatal("settle:", err)
	}
}

// request is one that programs make, by paths.
type request struct {
	name string
	run  func(v Noted, at func(path string) NodeID) (Entry, error)
}

func statusOnly(err error) (Entry, error) { return Entry{}, err }

// do has a request handled. At the step of that number the process is killed, and the request is given out again to its
// successor; hit reports whether there is such a step.
func (m *mortal) do(q request, kill int) (e Entry, err error, hit bool) {
	m.t.Helper()
	m.unique += 2
	nodes := m.nodes
	at := func(p string) NodeID {
		if id, ok := nodes[p]; ok {
			return id
		}
		return NodeID(1) << 62 // the kernel has no such name, and asks for none
	}
	type result struct {
		e   Entry
		err error
	}
	finished, dead := make(chan result), make(chan struct{})
	in := m.state.Requests().Begin(m.unique, 9, 1, true)
	n := 0
	steps = func(string) {
		if n++; n == kill {
			close(dead)
			select {} // nothing that is deferred runs
		}
	}
	go func(o *Overlay) {
		e, err := q.run(o.Noting(in), at)
		finished <- result{e, err}
	}(m.o)
	select {
	case <-dead:
		hit = true
	case r := <-finished:
		e, err = r.e, r.err
		hit = kill == n+1 // killed before the answer was given
	case <-time.After(time.Minute):
		m.t.Fatal(q.name, "hangs")
	}
	steps = nil
	if !hit {
		in.End()
		return e, err, false
	}
	m.succeed()
	in = m.state.Requests().Begin(m.unique|livestate.Resent, 9, 1, true)
	e, err = q.run(m.o.Noting(in), at)
	in.End()
	return e, err, true
}

// shown describes all that callers see, but times.
func (m *mortal) shown() []string {
	m.t.Helper()
	var out []string
	groups := map[uint64]string{} // first name of each inode
	var walk func(dir string)
	walk = func(dir string) {
		for _, name := range m.list(dir) {
			p := path.Join(dir, name)
			e, err := m.find(p)
			if err != nil {
				out = append(out, p+": "+err.Error())
				continue
			}
			if groups[e.Attr.Ino] == "" {
				groups[e.Attr.Ino] = p
			}
			line := fmt.Sprintf("%s: mode %o of %d:%d, %d links, device %d, inode of %s", p, e.Attr.Mode, e.Attr.UID, e.Attr.GID,
				e.Attr.Nlink, e.Attr.Rdev, groups[e.Attr.Ino])
			switch {
			case isReg(e.Attr.Mode):
				text := m.read(p)
				line += fmt.Sprintf(", %d bytes, sum %x", len(text), crc32.ChecksumIEEE([]byte(text)))
			case isLnk(e.Attr.Mode):
				target, err := m.o.Readlink(e.Node)
				line += fmt.Sprintf(", to %s, %v", target, err)
			}
			names, err := m.o.ListXattr(e.Node)
			slices.Sort(names)
			for _, x := range names {
				v, verr := m.o.GetXattr(e.Node, x)
				line += fmt.Sprintf(", %s=%q %v", x, v, verr)
			}
			if err != nil {
				line += ", attributes: " + err.Error()
			}
			m.o.Forget(e.Node, 1)
			out = append(out, line)
			if isDir(e.Attr.Mode) {
				walk(p)
			}
		}
	}
	walk("")
	return out
}

// replayLower makes the lower of these tests, and replayScene what an upper has over it.
func replayLower(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "lower")
	page := strings.Repeat("0123456789abcdef", 256)
	for _, err := range []error{
		os.MkdirAll(dir+"/low/empty", 0o755), os.MkdirAll(dir+"/low/full/deep", 0o750), os.MkdirAll(dir+"/low/gone", 0o755),
		os.Mkdir(dir+"/low/gonedir", 0o755), os.WriteFile(dir+"/low/file", []byte(page+page+page), 0o644),
		os.WriteFile(dir+"/low/other", []byte("other"), 0o600), os.WriteFile(dir+"/low/covered", nil, 0o644),
		os.WriteFile(dir+"/low/full/x", []byte("x"), 0o644),
		os.WriteFile(dir+"/low/linked", []byte("linked"), 0o644), os.Link(dir+"/low/linked", dir+"/low/linked2"),
		os.Symlink("target", dir+"/low/symlink"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func (m *mortal) scene() {
	m.t.Helper()
	page := strings.Repeat("0123456789abcdef", 256)
	for _, err := range []error{m.mkdir("up", 0o755), m.mkdir("up/dir", 0o755)} {
		if err != nil {
			m.t.Fatal(err)
		}
	}
	m.create("up/file", page+page+page)
	m.create("up/other", "other")
	m.create("up/setuid", "")
	for _, err := range []error{
		m.unlink("low/covered"), m.rmdir("low/gonedir"), m.mkdir("up/setgid", 0o2775),
		m.mkdir("up/dir/sub", 0o755),
		m.setattr("up/setuid", SetAttr{Valid: SetMode, Mode: 0o4755}), m.link("up/other", "up/linked"),
		m.on("up/file", func(id NodeID) error { return m.o.SetXattr(id, "user.old", []byte("old"), 0) }),
		m.mkdir("up/empty", 0o700),
	} {
		if err != nil {
			m.t.Fatal(err)
		}
	}
	m.meet()
}

var replayCaller = Caller{UID: 0, GID: 1234, Umask: 0o027}

// replayed are all requests that change something and are no other if done twice.
func replayed() []request {
	var out []request
	add := func(name string, run func(v Noted, at func(string) NodeID) (Entry, error)) {
		out = append(out, request{name, run})
	}
	for _, p := range []string{"up/new", "low/new", "low/covered", "low/gonedir", "up/setgid/new", "low/full/deep/new"} {
		dir, name := path.Split(p)
		dir = strings.TrimSuffix(dir, "/")
		add("mkdir "+p, func(v Noted, at func(string) NodeID) (Entry, error) {
			return v.Mkdir(replayCaller, at(dir), name, 0o777)
		})
		add("mknod "+p, func(v Noted, at func(string) NodeID) (Entry, error) {
			return v.Mknod(replayCaller, at(dir), name, unix.S_IFREG|0o4666, 0)
		})
		add("device "+p, func(v Noted, at func(string) NodeID) (Entry, error) {
			return v.Mknod(Caller{UID: 65534, GID: 65534}, at(dir), name, unix.S_IFCHR|0o666, 0)
		})
		add("symlink "+p, func(v Noted, at func(string) NodeID) (Entry, error) {
			return v.Symlink(replayCaller, at(dir), name, "target")
		})
		for _, from := range []string{"up/file", "low/file", "low/linked"} {
			add("link "+from+" "+p, func(v Noted, at func(string) NodeID) (Entry, error) { return v.Link(at(from), at(dir), name) })
		}
	}
	for _, p := range []string{"up/file", "up/other", "low/file", "low/linked", "low/symlink"} {
		dir, name := path.Split(p)
		dir = strings.TrimSuffix(dir, "/")
		add("unlink "+p, func(v Noted, at func(string) NodeID) (Entry, error) { return statusOnly(v.Unlink(at(dir), name)) })
	}
	for _, p := range []string{"up/empty", "low/empty", "low/full/deep", "up/dir"} {
		dir, name := path.Split(p)
		dir = strings.TrimSuffix(dir, "/")
		add("rmdir "+p, func(v Noted, at func(string) NodeID) (Entry, error) { return statusOnly(v.Rmdir(at(dir), name)) })
	}
	for _, from := range []string{"up/file", "low/file", "low/linked", "up/dir", "low/full", "low/symlink"} {
		for _, to := range []string{"up/new", "low/new", "up/other", "low/other", "low/covered", "low/empty", "up/empty", "low/gonedir", "low/linked2"} {
			for _, flags := range []uint32{0, unix.RENAME_NOREPLACE, unix.RENAME_EXCHANGE, unix.RENAME_WHITEOUT} {
				add(fmt.Sprintf("rename %s %s %d", from, to, flags), func(v Noted, at func(string) NodeID) (Entry, error) {
					return statusOnly(v.Rename(at(path.Dir(from)), path.Base(from), at(path.Dir(to)), path.Base(to), flags))
				})
			}
		}
	}
	for _, p := range []string{"up/file", "low/file"} {
		add("create attribute "+p, func(v Noted, at func(string) NodeID) (Entry, error) {
			return statusOnly(v.SetXattr(at(p), "user.new", []byte("value"), unix.XATTR_CREATE))
		})
		add("create old attribute "+p, func(v Noted, at func(string) NodeID) (Entry, error) {
			return statusOnly(v.SetXattr(at(p), "user.old", []byte("value"), unix.XATTR_CREATE))
		})
		add("replace attribute "+p, func(v Noted, at func(string) NodeID) (Entry, error) {
			return statusOnly(v.SetXattr(at(p), "user.old", []byte("value"), unix.XATTR_REPLACE))
		})
		add("remove attribute "+p, func(v Noted, at func(string) NodeID) (Entry, error) {
			return statusOnly(v.RemoveXattr(at(p), "user.old"))
		})
		for _, mode := range []uint32{
			0, unix.FALLOC_FL_KEEP_SIZE, unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE, unix.FALLOC_FL_ZERO_RANGE,
			unix.FALLOC_FL_COLLAPSE_RANGE, unix.FALLOC_FL_INSERT_RANGE,
		} {
			add(fmt.Sprintf("fallocate %x %s", mode, p), func(v Noted, at func(string) NodeID) (Entry, error) {
				return statusOnly(v.Fallocate(at(p), mode, 4096, 4096))
			})
		}
		for _, s := range []SetAttr{{Valid: SetSize, Size: 5}, {Valid: SetSize}, {Valid: SetMode, Mode: 0o4711}, {Valid: SetUID | KillPriv, UID: 77}} {
			add(fmt.Sprintf("setattr %x %s", s.Valid, p), func(v Noted, at func(string) NodeID) (Entry, error) {
				a, err := v.SetAttr(Caller{}, at(p), s)
				return Entry{Node: at(p), Attr: a}, err
			})
		}
		add("write "+p, func(v Noted, at func(string) NodeID) (Entry, error) {
			_, err := v.Write(at(p), []byte("written"), 12_285, nil)
			return statusOnly(err)
		})
		add("copy "+p, func(v Noted, at func(string) NodeID) (Entry, error) {
			_, err := v.CopyRange(at("up/file"), 100, at(p), 9000, 50)
			return statusOnly(err)
		})
	}
	return out
}

// sameAnswer compares what a request got with what it gets from a process that is not killed.
func sameAnswer(got, want Entry, gotErr, wantErr error) error {
	var g, w unix.Errno
	if errors.As(gotErr, &g); (gotErr == nil) != (wantErr == nil) || errors.As(wantErr, &w) && g != w {
		return fmt.Errorf("error %s, want %s", fmt.Sprint(gotErr), fmt.Sprint(wantErr))
	}
	a, b := got.Attr, want.Attr
	if a.Mode != b.Mode || a.UID != b.UID || a.GID != b.GID || a.Nlink != b.Nlink || a.Size != b.Size || a.Rdev != b.Rdev {
		return fmt.Errorf("answer %+v, want %+v", a, b)
	}
	return nil
}

// differs says in what a tree is not as it should be.
func differs(got, want []string) string {
	out := ""
	for _, line := range got {
		if !slices.Contains(want, line) {
			out += "\nhas " + line
		}
	}
	for _, line := range want {
		if !slices.Contains(got, line) {
			out += "\nlacks " + line
		}
	}
	return out
}

// TestReplay kills a process at each step of each request: its successor gives the answer that was to be given, and
// shows the tree that was to be.
func TestReplay(t *testing.T) {
	rng := rand.New(rand.NewPCG(testseed.Of(t), 18))
	long := os.Getenv("SNAPFS_LONG") != ""
	for _, kind := range []string{"char", "xattr", "char, in a seal", "xattr, in a seal"} {
		t.Run(kind, func(t *testing.T) {
			whiteouts, in, _ := strings.Cut(kind, ",")
			old := unix.Umask(0)
			defer unix.Umask(old)
			lower := replayLower(t)
			for _, q := range replayed() {
				if (kind != "char" || strings.HasPrefix(q.name, "rename")) && !long && rng.IntN(6) > 0 {
					continue
				}
				t.Run(q.name, func(t *testing.T) {
					twin := newMortal(t, lower, whiteouts)
					twin.scene()
					want, wantErr, _ := twin.do(q, 0)
					tree := twin.shown()
					for kill, hit := 1, true; hit; kill++ {
						m := newMortal(t, lower, whiteouts)
						m.scene()
						m.seals = in != ""
						var e Entry
						var err error
						e, err, hit = m.do(q, kill)
						if err := sameAnswer(e, want, err, wantErr); err != nil {
							t.Errorf("killed at step %d: %v", kill, err)
						}
						if diff := differs(m.shown(), tree); diff != "" {
							t.Errorf("killed at step %d: %s", kill, diff)
						}
						if kill > 40 {
							t.Fatal("no end of steps")
						}
					}
				})
			}
		})
	}
}

// TestReplayGivenUp: what a process was making when it was killed is not undone once others may have made the same, the
// program that had asked for it having been killed.
func TestReplayGivenUp(t *testing.T) {
	m := newMortal(t, replayLower(t), "")
	in := m.state.Requests().Begin(2, 9, 1, true)
	dead := make(chan struct{})
	steps = func(s string) {
		if s == "inode made" {
			close(dead)
			select {}
		}
	}
	go func(o *Overlay) { _, _ = o.Noting(in).Mkdir(Caller{}, RootNode, "new", 0o755) }(m.o)
	select {
	case <-dead:
	case <-time.After(time.Minute):
		t.Fatal("nothing is made")
	}
	steps = nil
	// A successor for which the host did not answer when it was to settle what was left, and then did.
	next := m.opened()
	next.Requests().Begin(4, 9, 1, true).End()
	if err := next.Close(); err != nil {
		t.Fatal(err)
	}
	m.succeed()
	if e, err := m.find("new"); err != nil || !isDir(e.Attr.Mode) {
		t.Errorf("what was made is gone: %v", err)
	}
}

// TestReplayRandom is TestReplay for rows of requests, of which each one may be killed, and again by its successor's
// death.
func TestReplayRandom(t *testing.T) {
	seed := testseed.Of(t)
	rng := rand.New(rand.NewPCG(seed, 17))
	rounds := 20
	if os.Getenv("SNAPFS_LONG") != "" {
		rounds = 1000
	}
	old := unix.Umask(0)
	defer unix.Umask(old)
	lower := replayLower(t)
	all := replayed()
	for range rounds {
		twin, m := newMortal(t, lower, ""), newMortal(t, lower, "")
		twin.scene()
		m.scene()
		var done []string
		for range 12 {
			q, kill := all[rng.IntN(len(all))], rng.IntN(8)
			if !twin.knows(q) {
				continue
			}
			done = append(done, fmt.Sprintf("%s, killed at %d", q.name, kill))
			want, wantErr, _ := twin.do(q, 0)
			e, err, _ := m.do(q, kill)
			if err := sameAnswer(e, want, err, wantErr); err != nil {
				t.Errorf("%s: %v", strings.Join(done, "; "), err)
			}
			if diff := differs(m.shown(), twin.shown()); diff != "" {
				t.Fatalf("%s: %s", strings.Join(done, "; "), diff)
			}
			twin.meet()
			m.meet()
		}
	}
}

// knows reports whether the kernel has all nodes that a request is of.
func (m *mortal) knows(q request) bool {
	ok := true
	for _, p := range strings.Fields(q.name) {
		if dir := path.Dir(p); strings.Contains(p, "/") && m.nodes[dir] == 0 {
			ok = false
		}
	}
	words := strings.Fields(q.name)
	switch words[0] {
	case "mkdir", "mknod", "device", "symlink", "unlink", "rmdir", "rename":
		return ok
	case "link", "setattr", "write", "copy":
		return ok && m.isFile(words[1]) && m.isFile("up/file")
	}
	return ok && m.isFile(words[len(words)-1])
}

func (m *mortal) isFile(p string) bool {
	e, err := m.find(p)
	if err != nil {
		return strings.IndexFunc(p, func(r rune) bool { return r == '/' }) < 0
	}
	m.o.Forget(e.Node, 1)
	return isReg(e.Attr.Mode)
}

// TestReplayDirectories kills a process at each step of a rename that two directories are about, both of which programs
// have open: each stays itself.
func TestReplayDirectories(t *testing.T) {
	lower := replayLower(t)
	for _, names := range [][2]string{{"up/dir", "up/empty"}, {"up/dir", "low/empty"}, {"low/full", "up/empty"}} {
		for _, flags := range []uint32{0, unix.RENAME_EXCHANGE} {
			for kill, hit := 1, true; hit; kill++ {
				m := newMortal(t, lower, "")
				m.scene()
				q := request{"rename", func(v Noted, at func(string) NodeID) (Entry, error) {
					return statusOnly(v.Rename(at(path.Dir(names[0])), path.Base(names[0]), at(path.Dir(names[1])), path.Base(names[1]), flags))
				}}
				ids := [2]NodeID{m.nodes[names[0]], m.nodes[names[1]]}
				var before [2]Attr
				var lists [2][]string
				list := func(id NodeID) (out []string) {
					_ = m.o.ReadDir(id, 0, func(d DirEntry) bool { out = append(out, d.Name); return true })
					slices.Sort(out)
					return out
				}
				for i, id := range ids {
					before[i], _ = m.o.GetAttr(id)
					lists[i] = list(id)
				}
				var err error
				if _, err, hit = m.do(q, kill); err != nil {
					t.Fatal(names, flags, kill, err)
				}
				for i, id := range ids {
					a, err := m.o.GetAttr(id)
					if err != nil || a.Ino != before[i].Ino || a.Mode != before[i].Mode {
						t.Errorf("%v, flags %d, killed at %d: got inode %d, mode %o, %v; want %d, %o", names, flags, kill, a.Ino, a.Mode, err,
							before[i].Ino, before[i].Mode)
					}
					if got := list(id); !slices.Equal(got, lists[i]) {
						t.Errorf("%v, flags %d, killed at %d: got %v, want %v", names, flags, kill, got, lists[i])
					}
				}
			}
		}
	}
}
