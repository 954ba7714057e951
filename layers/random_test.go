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
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"snapfs/internal/testseed"
	"snapfs/internal/treewalk"
)

// step is one random operation; the same one is applied to an Overlay and to the kernel's overlayfs.
type step struct {
	kind string
	a, b string
	n    int64
	data string
}

func (s step) String() string { return fmt.Sprintf("%s %s %s %d %q", s.kind, s.a, s.b, s.n, s.data) }

// kinds are the operations, with weights.
var kinds = map[string]int{
	"mkdir": 8, "create": 10, "write": 14, "truncate": 6, "unlink": 10, "rmdir": 8, "rename": 16, "noreplace": 3,
	"exchange": 6, "link": 8, "symlink": 3, "chmod": 6, "chown": 5, "utimes": 5, "setxattr": 5, "rmxattr": 2, "fifo": 2,
	"read": 8, "stat": 8, "list": 5,
}

// names are the path elements: few, so that operations meet.
var names = []string{"a", "b", "c", "d", "e"}

func randomPath(rng *rand.Rand) string {
	p := names[rng.IntN(len(names))]
	for rng.IntN(5) < 3 && strings.Count(p, "/") < 4 {
		p += "/" + names[rng.IntN(len(names))]
	}
	return p
}

// act lets three actors work on the overlay until stop is called, which waits for them. None of their steps may end
// with one of refused.
func (r *rig) act(seed uint64, refused ...string) (stop func()) {
	var wg sync.WaitGroup
	var done atomic.Bool
	for actor := range 3 {
		rng := rand.New(rand.NewPCG(seed, uint64(actor)))
		wg.Go(func() {
			for !done.Load() {
				s := randomStep(rng)
				if s.kind == "list" {
					continue // the rig reports its errors
				}
				if got := r.do(s); slices.Contains(refused, got) {
					r.t.Errorf("%s: %s", s, got)
				}
			}
		})
	}
	return func() {
		done.Store(true)
		wg.Wait()
	}
}

func randomStep(rng *rand.Rand) step {
	total := 0
	for _, w := range kinds {
		total += w
	}
	s := step{a: randomPath(rng), b: randomPath(rng), n: rng.Int64N(9000), data: strconv.Itoa(rng.IntN(1000))}
	k := rng.IntN(total)
	for _, kind := range sortedKinds() {
		if k -= kinds[kind]; k < 0 {
			s.kind = kind
			break
		}
	}
	return s
}

func sortedKinds() []string {
	var all []string
	for k := range kinds {
		all = append(all, k)
	}
	slices.Sort(all)
	return all
}

// errName is an error as the two sides are compared.
func errName(err error) string {
	if err == nil {
		return "ok"
	}
	var errno unix.Errno
	if !errors.As(err, &errno) {
		return err.Error()
	}
	if errno == unix.ELOOP {
		errno = unix.ENOTDIR // the kernel side resolves paths without symlinks
	}
	return unix.ErrnoName(errno)
}

// oldTime is what an operation sets; later times are "now" and not compared.
func oldTime(n int64) unix.Timespec { return unix.Timespec{Sec: 1e9 + n, Nsec: n * 1000} }

// do applies a step to the overlay.
func (r *rig) do(s step) string {
	o := r.o
	var data string
	var err error
	switch s.kind {
	case "mkdir":
		err = r.mkdir(s.a, 0o755)
	case "create":
		err = r.mknod(s.a, unix.S_IFREG|0o644, 0)
	case "fifo":
		err = r.mknod(s.a, unix.S_IFIFO|0o600, 0)
	case "write":
		err = r.write(s.a, s.data, s.n)
	case "truncate":
		err = r.setattr(s.a, SetAttr{Valid: SetSize, Size: uint64(s.n) * uint64(s.n%2)})
	case "unlink":
		err = r.unlink(s.a)
	case "rmdir":
		err = r.rmdir(s.a)
	case "rename":
		err = r.rename(s.a, s.b, 0)
	case "noreplace":
		err = r.rename(s.a, s.b, unix.RENAME_NOREPLACE)
	case "exchange":
		err = r.rename(s.a, s.b, unix.RENAME_EXCHANGE)
	case "link":
		err = r.link(s.a, s.b)
	case "symlink":
		err = r.in(s.a, func(p NodeID, name string) error { return r.made(o.Symlink(Caller{}, p, name, s.data)) })
	case "chmod":
		err = r.setattr(s.a, SetAttr{Valid: SetMode, Mode: uint32(s.n) & 0o777})
	case "chown":
		err = r.setattr(s.a, SetAttr{Valid: SetUID | SetGID, UID: uint32(s.n), GID: uint32(s.n + 1)})
	case "utimes":
		t := oldTime(s.n)
		st := SetAttr{Valid: SetAtime | SetMtime}
		st.Atime.Sec, st.Atime.Nsec = t.Sec, uint32(t.Nsec)
		st.Mtime = st.Atime
		err = r.setattr(s.a, st)
	case "setxattr":
		err = r.on(s.a, func(n NodeID) error { return o.SetXattr(n, "trusted.t"+s.data[:1], []byte(s.data), 0) })
	case "rmxattr":
		err = r.on(s.a, func(n NodeID) error { return o.RemoveXattr(n, "trusted.t"+s.data[:1]) })
	case "read":
		err = r.on(s.a, func(n NodeID) error {
			buf := make([]byte, 10000)
			k, err := o.Read(n, buf, 0)
			data = string(buf[:k])
			return err
		})
	case "stat":
		err = r.on(s.a, func(n NodeID) error {
			a, err := o.GetAttr(n)
			data = statLine(a.Mode, a.Nlink, a.Size)
			return err
		})
	case "list":
		err = r.on(s.a, func(n NodeID) error {
			if a, err := o.GetAttr(n); err != nil || !isDir(a.Mode) {
				return errors.Join(err, unix.ENOTDIR)
			}
			list := r.list(s.a)
			slices.Sort(list)
			data = strings.Join(list, " ")
			return nil
		})
	}
	return errName(err) + " " + data
}

func (r *rig) setattr(path string, s SetAttr) error {
	return r.on(path, func(n NodeID) error {
		_, err := r.o.SetAttr(Caller{}, n, s)
		return err
	})
}

func statLine(mode, nlink uint32, size uint64) string {
	if isDir(mode) {
		nlink, size = 0, 0
	}
	return fmt.Sprintf("%o %d %d", mode, nlink, size)
}

// walk lists an overlay as treewalk lists a mount.
func (r *rig) walk() []treewalk.Node {
	r.t.Helper()
	var nodes []treewalk.Node
	groups := map[uint64][]int{}
	var visit func(path string, e Entry)
	visit = func(path string, e Entry) {
		defer r.o.Forget(e.Node, 1)
		a := e.Attr
		n := treewalk.Node{
			Path: path, Mode: a.Mode, UID: a.UID, GID: a.GID, Nlink: uint64(a.Nlink), Ino: a.Ino, Rdev: a.Rdev, Size: int64(a.Size),
			Mtime: treewalk.Time{Sec: a.Mtime.Sec, Nsec: int64(a.Mtime.Nsec)},
		}
		names, err := r.o.ListXattr(e.Node)
		if err != nil {
			r.t.Fatal(path, err)
		}
		for _, name := range names {
			v, err := r.o.GetXattr(e.Node, name)
			if err != nil {
				r.t.Fatal(path, err)
			}
			if n.Xattrs == nil {
				n.Xattrs = map[string]string{}
			}
			n.Xattrs[name] = string(v)
		}
		switch {
		case isLnk(a.Mode):
			if n.Target, err = r.o.Readlink(e.Node); err != nil {
				r.t.Fatal(path, err)
			}
		case isReg(a.Mode):
			buf := make([]byte, a.Size)
			k, err := r.o.Read(e.Node, buf, 0)
			if err != nil || k != len(buf) {
				r.t.Fatalf("%s: read %d of %d bytes: %v", path, k, len(buf), err)
			}
			n.Hash = string(buf)
		case isDir(a.Mode):
			n.Size = 0
		}
		if !isDir(a.Mode) && a.Nlink > 1 {
			groups[a.Ino] = append(groups[a.Ino], len(nodes))
		}
		nodes = append(nodes, n)
		if !isDir(a.Mode) {
			return
		}
		var list []DirEntry
		if err := r.o.ReadDir(e.Node, 0, func(d DirEntry) bool { list = append(list, d); return true }); err != nil {
			r.t.Fatal(path, err)
		}
		subdirs := uint32(0)
		for _, d := range list {
			if d.Name == "." || d.Name == ".." {
				continue
			}
			if isDir(d.Mode) {
				subdirs++
			}
			c, err := r.o.Lookup(e.Node, d.Name)
			if err != nil {
				r.t.Fatalf("%s/%s is listed: %v", path, d.Name, err)
			}
			if d.Ino != c.Attr.Ino || d.Mode != c.Attr.Mode&unix.S_IFMT {
				r.t.Errorf("%s/%s is listed as inode %d type %o, but is %d %o", path, d.Name, d.Ino, d.Mode, c.Attr.Ino, c.Attr.Mode)
			}
			visit(strings.TrimPrefix(path+"/"+d.Name, "./"), c)
		}
		// What merges directories of lowers that another program wrote has a link count of 1.
		if a.Nlink != 1 && a.Nlink != 2+subdirs {
			r.t.Errorf("%s: %d links, %d subdirectories", path, a.Nlink, subdirs)
		}
	}
	a, err := r.o.GetAttr(RootNode)
	if err != nil {
		r.t.Fatal(err)
	}
	visit(".", Entry{Node: RootNode, Attr: a})
	for _, g := range groups {
		if len(g) < 2 {
			continue
		}
		first := nodes[g[0]].Path
		for _, i := range g {
			first = min(first, nodes[i].Path)
		}
		for _, i := range g {
			nodes[i].Group = first
		}
	}
	slices.SortFunc(nodes, func(a, b treewalk.Node) int { return strings.Compare(a.Path, b.Path) })
	return nodes
}

// normalWalk makes two walks comparable: times that are "now" go, contents stand for their hashes.
func normalWalk(t *testing.T, nodes []treewalk.Node, root string) []treewalk.Node {
	t.Helper()
	for i := range nodes {
		n := &nodes[i]
		if n.Mtime.Sec > 1.2e9 {
			n.Mtime = treewalk.Time{}
		}
		if root != "" && isReg(n.Mode) {
			data, err := os.ReadFile(filepath.Join(root, n.Path))
			if err != nil {
				t.Fatal(err)
			}
			n.Hash = string(data)
		}
	}
	return nodes
}

func compareTrees(t *testing.T, what string, r *rig, mount string) bool {
	t.Helper()
	theirs, err := treewalk.Walk(mount)
	if err != nil {
		t.Fatal(err)
	}
	opts := treewalk.Options{IgnoreExtents: true, IgnoreRoot: true}
	diff := treewalk.Diff(normalWalk(t, r.walk(), ""), normalWalk(t, theirs, mount), opts)
	for i, d := range diff {
		if i < 10 {
			t.Errorf("%s: snapfs against kernel: %.300s", what, d)
		}
	}
	return len(diff) == 0
}

// randomLower makes a lower tree of the names that the steps use. Only the topmost one may have hard links: the kernel
// counts names that a layer above hides.
func randomLower(t *testing.T, rng *rand.Rand, links bool) string {
	t.Helper()
	dir := t.TempDir()
	old := []unix.Timespec{{Sec: 1e9}, {Sec: 1e9, Nsec: 5}}
	var files []string
	for range 60 {
		p := filepath.Join(dir, randomPath(rng))
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			continue // a file is in the way
		}
		var err error
		switch {
		case links && rng.IntN(4) == 0 && len(files) > 0:
			err = os.Link(files[rng.IntN(len(files))], p)
		case rng.IntN(10) == 0:
			err = os.Symlink("target", p)
		default:
			err = os.WriteFile(p, []byte(strings.Repeat(p[len(dir):], rng.IntN(200))), 0o644)
			if err == nil {
				files = append(files, p)
			}
		}
		if err != nil && !errors.Is(err, unix.EEXIST) && !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.ENOENT) {
			t.Fatal(err)
		}
	}
	err := filepath.WalkDir(dir, func(p string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return unix.UtimesNanoAt(unix.AT_FDCWD, p, old, unix.AT_SYMLINK_NOFOLLOW)
	})
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestRandomAgainstKernel applies the same operations to an Overlay and to the kernel's overlayfs and compares every
// result and, now and then, the trees. SNAPFS_LONG=1 makes a million operations.
func TestRandomAgainstKernel(t *testing.T) {
	seed := testseed.Of(t)
	rounds, steps := 4, 500
	if os.Getenv("SNAPFS_LONG") != "" {
		rounds, steps = 1000, 1000
	}
	for i := range rounds {
		if !t.Run(strconv.Itoa(i), func(t *testing.T) { randomRound(t, seed+uint64(i), steps) }) {
			return
		}
	}
}

func randomRound(t *testing.T, seed uint64, steps int) {
	rng := rand.New(rand.NewPCG(seed, 1))
	base, other := randomLower(t, rng, true), randomLower(t, rng, false)
	r := newRig(t, base, other)
	k, mount := mountKernel(t, base, other)
	var history []step
	fail := func() {
		for _, s := range history[max(0, len(history)-200):] {
			t.Log(s)
		}
		t.Fatalf("SNAPFS_SEED=%d", seed)
	}
	for i := range steps {
		s := randomStep(rng)
		history = append(history, s)
		got, want := r.do(s), k.do(s)
		if got != want {
			t.Errorf("step %d: %s: got %.200q, the kernel %.200q", i, s, got, want)
			fail()
		}
		switch rng.IntN(120) {
		case 0:
			history = append(history, step{kind: "SEAL"})
			r.seal()
		case 1:
			history = append(history, step{kind: "REOPEN"})
			r.reopen()
		case 2:
			if !compareTrees(t, "step "+strconv.Itoa(i), r, mount) {
				fail()
			}
		}
	}
	if !compareTrees(t, "end", r, mount) {
		fail()
	}
	r.wantNodes(1)
	r.reopen()
	if !compareTrees(t, "reopened", r, mount) {
		fail()
	}
	if !compareTrees(t, "the kernel on our layers", r, mountLayers(t, r, base, other)) {
		fail()
	}
	r.seal()
	wantNoTwins(t, r.lowers)
}
