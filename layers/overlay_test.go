package layers

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"snapfs/internal/livestate"
)

// rig is an overlay under test with its directories.
type rig struct {
	t       *testing.T
	o       *Overlay
	dir     string
	seals   int
	lowers  []*Lower
	live    *livestate.State // nil: none
	account *Account         // nil: nothing is counted
}

// newRig makes an overlay over the directories given, topmost first.
func newRig(t *testing.T, lowerDirs ...string) *rig {
	t.Helper()
	var lowers []*Lower
	for i, d := range lowerDirs {
		l, err := OpenSealed("base"+string(rune('0'+i)), d, 0)
		if err != nil {
			t.Fatal(err)
		}
		lowers = append(lowers, l)
	}
	return newRigOver(t, lowers...)
}

// newRigOver makes an overlay over lowers, which it closes in the end.
func newRigOver(t *testing.T, lowers ...*Lower) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir(), lowers: lowers}
	up, work := r.fresh()
	o, err := New(up, work, r.lowers, Options{InoBase: r.base(), Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		t.Fatal(err)
	}
	r.o = o
	o.orphans.limit = rigPins
	t.Cleanup(func() {
		if err := r.o.Close(); err != nil {
			t.Error(err)
		}
		for _, l := range r.lowers {
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return r
}

func (r *rig) base() uint64 { return uint64(r.seals+1) << 48 }

func (r *rig) upper() string {
	return filepath.Join(r.dir, "upper"+strings.Repeat("'", r.seals))
}

func (r *rig) work() string { return filepath.Join(r.dir, "work"+strings.Repeat("'", r.seals)) }

func (r *rig) fresh() (string, string) {
	r.t.Helper()
	for _, d := range []string{r.upper(), r.work()} {
		if err := os.Mkdir(d, 0o700); err != nil {
			r.t.Fatal(err)
		}
	}
	return r.upper(), r.work()
}

// seal seals the present upper.
func (r *rig) seal() *Lower {
	r.t.Helper()
	r.seals++
	up, work := r.fresh()
	l, err := r.o.Seal(r.t.Context(), "seal"+strings.Repeat("'", r.seals), up, work, r.base())
	if err != nil {
		r.t.Fatal(err)
	}
	r.lowers = append([]*Lower{l}, r.lowers...)
	return l
}

// reopen closes the overlay and opens it again over the same directories.
func (r *rig) reopen() {
	r.t.Helper()
	if err := r.o.Close(); err != nil {
		r.t.Fatal(err)
	}
	r.open()
}

// open opens the overlay over the present directories.
func (r *rig) open() {
	r.t.Helper()
	opts := Options{InoBase: r.base(), Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)), Live: r.live, Account: r.account}
	o, err := New(r.upper(), r.work(), r.lowers, opts)
	if err != nil {
		r.t.Fatal(err)
	}
	r.o = o
	o.orphans.limit = rigPins
}

// find looks a path up; the caller forgets the entry.
func (r *rig) find(path string) (Entry, error) { return findPath(r.o, path) }

func findPath(o *Overlay, path string) (Entry, error) {
	e := Entry{Node: RootNode}
	for _, name := range split(path) {
		next, err := o.Lookup(e.Node, name)
		o.Forget(e.Node, 1)
		if err != nil {
			return Entry{}, err
		}
		e = next
	}
	return e, nil
}

func split(path string) []string {
	if path == "" || path == "." {
		return nil
	}
	return strings.Split(path, "/")
}

func (r *rig) parent(path string) (Entry, string, error) {
	dir, name := filepath.Split(path)
	e, err := r.find(strings.TrimSuffix(dir, "/"))
	return e, name, err
}

// on runs fn with the node of path.
func (r *rig) on(path string, fn func(n NodeID) error) error {
	e, err := r.find(path)
	if err != nil {
		return err
	}
	defer r.o.Forget(e.Node, 1)
	return fn(e.Node)
}

// in runs fn with the parent of path.
func (r *rig) in(path string, fn func(p NodeID, name string) error) error {
	e, name, err := r.parent(path)
	if err != nil {
		return err
	}
	defer r.o.Forget(e.Node, 1)
	if a, err := r.o.GetAttr(e.Node); err != nil || !isDir(a.Mode) {
		return errors.Join(err, unix.ENOTDIR)
	}
	return fn(e.Node, name)
}

func (r *rig) made(e Entry, err error) error {
	if err == nil {
		r.o.Forget(e.Node, 1)
	}
	return err
}

func (r *rig) mkdir(path string, mode uint32) error {
	return r.in(path, func(p NodeID, name string) error { return r.made(r.o.Mkdir(Caller{}, p, name, mode)) })
}

func (r *rig) mknod(path string, mode uint32, rdev uint64) error {
	return r.in(path, func(p NodeID, name string) error { return r.made(r.o.Mknod(Caller{}, p, name, mode, rdev)) })
}

func (r *rig) write(path, data string, off int64) error {
	return r.on(path, func(n NodeID) error {
		_, err := r.o.Write(n, []byte(data), off, nil)
		return err
	})
}

func (r *rig) create(path, data string) {
	r.t.Helper()
	if err := errors.Join(r.mknod(path, unix.S_IFREG|0o644, 0), r.write(path, data, 0)); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) read(path string) string {
	r.t.Helper()
	var s string
	err := r.on(path, func(n NodeID) error {
		a, err := r.o.GetAttr(n)
		if err != nil {
			return err
		}
		buf := make([]byte, a.Size)
		k, err := r.o.Read(n, buf, 0)
		s = string(buf[:k])
		return err
	})
	if err != nil {
		r.t.Errorf("read %s: %v", path, err)
	}
	return s
}

func (r *rig) attr(path string) Attr {
	r.t.Helper()
	e, err := r.find(path)
	if err != nil {
		r.t.Errorf("stat %s: %v", path, err)
		return Attr{}
	}
	r.o.Forget(e.Node, 1)
	return e.Attr
}

func (r *rig) unlink(path string) error { return r.in(path, r.o.Unlink) }
func (r *rig) rmdir(path string) error  { return r.in(path, r.o.Rmdir) }

func (r *rig) rename(from, to string, flags uint32) error {
	return r.in(from, func(fp NodeID, fn string) error {
		return r.in(to, func(tp NodeID, tn string) error { return r.o.Rename(fp, fn, tp, tn, flags) })
	})
}

func (r *rig) link(from, to string) error {
	return r.in(from, func(NodeID, string) error {
		return r.in(to, func(tp NodeID, tn string) error {
			return r.on(from, func(n NodeID) error { return r.made(r.o.Link(n, tp, tn)) })
		})
	})
}

func (r *rig) list(path string) []string {
	r.t.Helper()
	var names []string
	err := r.on(path, func(n NodeID) error {
		return r.o.ReadDir(n, 0, func(e DirEntry) bool {
			if e.Name != "." && e.Name != ".." {
				names = append(names, e.Name)
			}
			return true
		})
	})
	if err != nil {
		r.t.Errorf("list %s: %v", path, err)
	}
	return names
}

func (r *rig) wantNodes(n int) {
	r.t.Helper()
	if got := len(r.o.nodes.m); got != n {
		r.t.Errorf("%d nodes in memory, want %d", got, n)
	}
}

func TestFirstSteps(t *testing.T) {
	base := t.TempDir()
	for _, err := range []error{
		os.MkdirAll(base+"/dir/sub", 0o755),
		os.WriteFile(base+"/dir/f", []byte("lower"), 0o644),
		os.WriteFile(base+"/dir/sub/g", []byte("deep"), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	r := newRig(t, base)
	ino := r.attr("dir/f").Ino
	if got := r.read("dir/f"); got != "lower" {
		t.Errorf("got %q", got)
	}
	if err := r.write("dir/f", "LO", 0); err != nil {
		t.Fatal(err)
	}
	if got := r.read("dir/f"); got != "LOwer" {
		t.Errorf("got %q", got)
	}
	if got := r.attr("dir/f").Ino; got != ino {
		t.Errorf("inode number %d became %d", ino, got)
	}
	if err := r.rename("dir", "moved", 0); err != nil {
		t.Fatal(err)
	}
	if got := r.read("moved/sub/g"); got != "deep" {
		t.Errorf("got %q", got)
	}
	if _, err := r.find("dir"); !errors.Is(err, unix.ENOENT) {
		t.Errorf("got %v", err)
	}
	r.seal()
	if got := r.read("moved/f"); got != "LOwer" {
		t.Errorf("got %q", got)
	}
	if err := r.unlink("moved/sub/g"); err != nil {
		t.Fatal(err)
	}
	if err := r.rmdir("moved/sub"); err != nil {
		t.Fatal(err)
	}
	r.create("moved/new", "data")
	r.reopen()
	if got := strings.Join(r.list("moved"), " "); got != "f new" && got != "new f" {
		t.Errorf("got %q", got)
	}
	r.wantNodes(1)
}

// TestReadOnlyRoot: a read-only overlay over an upper that was never written shows the root of the layer below.
func TestReadOnlyRoot(t *testing.T) {
	base := t.TempDir()
	past := unix.Timespec{Sec: 1_000_000_000, Nsec: 7}
	if err := errors.Join(os.Chmod(base, os.ModeSticky|0o777), unix.UtimesNanoAt(unix.AT_FDCWD, base, []unix.Timespec{past, past}, 0)); err != nil {
		t.Fatal(err)
	}
	l, err := OpenSealed("base", base, 0)
	if err != nil {
		t.Fatal(err)
	}
	o, err := New(t.TempDir(), t.TempDir(), []*Lower{l}, Options{ReadOnly: true, InoBase: 1 << 48})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(o.Close(), l.Close()); err != nil {
			t.Error(err)
		}
	})
	a, err := o.GetAttr(RootNode)
	if err != nil {
		t.Fatal(err)
	}
	if a.Mode != unix.S_IFDIR|unix.S_ISVTX|0o777 || a.Mtime.Sec != past.Sec || a.Mtime.Nsec != 7 {
		t.Errorf("root is %o of %v, want 41777 of %v", a.Mode, a.Mtime, past)
	}
}
