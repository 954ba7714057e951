package layers

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/chunkstore"
	"snapfs/squashfs"
)

func TestRecord(t *testing.T) {
	for _, r := range []inodeInfo{
		{ino: 7, ctime: noCtime, subs: uncounted},
		{ino: 1 << 63, ctime: packTime(squashfs.Time{Sec: -5, Nsec: 999_999_999}), subs: 3},
		{ino: 1, ctime: packTime(squashfs.Time{Sec: 1_800_000_000, Nsec: 1}), subs: 0},
	} {
		got, ok := decodeInodeInfo(r.encode(true))
		if !ok || got != r {
			t.Errorf("got %+v, want %+v", got, r)
		}
		if got, ok := decodeInodeInfo(r.encode(false)); !ok || got.ctime != r.ctime || got.ino != r.ino {
			t.Errorf("as of a file: got %+v, want %+v", got, r)
		}
	}
	var a Attr
	inodeInfo{ctime: packTime(squashfs.Time{Sec: -5, Nsec: 999_999_999})}.apply(&a)
	if a.Ctime != (squashfs.Time{Sec: -5, Nsec: 999_999_999}) {
		t.Errorf("got %v", a.Ctime)
	}
	if packTime(squashfs.Time{Sec: 1 << 40}) != noCtime {
		t.Error("a time that does not fit is kept")
	}
}

// facts is what must not change by itself.
type facts struct {
	ctime squashfs.Time
	nlink uint32
	size  uint64
}

// facts gives those of all files by path; a directory's link count must be right.
func (r *rig) facts() map[string]facts {
	r.t.Helper()
	all := map[string]facts{}
	var visit func(path string, n NodeID, a Attr)
	visit = func(path string, n NodeID, a Attr) {
		all[path] = facts{a.Ctime, a.Nlink, a.Size}
		if !isDir(a.Mode) {
			return
		}
		type child struct {
			name string
			e    Entry
		}
		var children []child
		err := r.o.ReadDirPlus(n, 0, func(d DirEntry, e Entry) bool {
			if e.Node != 0 {
				children = append(children, child{d.Name, e})
			}
			return true
		})
		if err != nil {
			r.t.Fatal(path, err)
		}
		links := uint32(2)
		for _, c := range children {
			if isDir(c.e.Attr.Mode) {
				links++
			}
			visit(path+"/"+c.name, c.e.Node, c.e.Attr)
			r.o.Forget(c.e.Node, 1)
		}
		if a.Nlink != links || a.Size != dirSize {
			r.t.Errorf("%s: %d links, %d bytes; want %d, %d", path, a.Nlink, a.Size, links, dirSize)
		}
	}
	a, err := r.o.GetAttr(RootNode)
	if err != nil {
		r.t.Fatal(err)
	}
	visit("", RootNode, a)
	return all
}

// wantChanged checks which ctimes have changed, and gives the new facts. A name that comes or goes counts as itself.
func (r *rig) wantChanged(what string, before map[string]facts, paths ...string) map[string]facts {
	r.t.Helper()
	now := r.facts()
	var got []string
	for path, f := range now {
		if b, ok := before[path]; !ok || b.ctime != f.ctime {
			got = append(got, path)
		}
	}
	for path := range before {
		if _, ok := now[path]; !ok {
			got = append(got, path)
		}
	}
	slices.Sort(got)
	slices.Sort(paths)
	if !slices.Equal(got, paths) {
		r.t.Errorf("%s: changed are %q, want %q", what, got, paths)
	}
	time.Sleep(2 * tick)
	return now
}

// tick is longer than the steps of the host's clock for file times.
const tick = 10 * time.Millisecond

func (r *rig) wantFacts(what string, want map[string]facts) {
	r.t.Helper()
	got := r.facts()
	var bad []string
	for path, f := range want {
		if got[path] != f {
			bad = append(bad, fmt.Sprintf("%q: got %v, want %v", path, got[path], f))
		}
	}
	slices.Sort(bad)
	if len(bad) > 0 || len(got) != len(want) {
		r.t.Errorf("%s: %d files, want %d; %s", what, len(got), len(want), strings.Join(bad, "; "))
	}
}

// TestChangeTimes: ctime moves when callers change something, and never by a copy-up, a seal, storing or restoring; the
// same holds for size and link count of directories.
func TestChangeTimes(t *testing.T) {
	base := t.TempDir()
	for _, err := range []error{
		os.MkdirAll(base+"/d/e/f", 0o755),
		os.MkdirAll(base+"/d/gone", 0o755),
		os.MkdirAll(base+"/d/over", 0o755),
		os.MkdirAll(base+"/mv/sub/sub", 0o755),
		os.MkdirAll(base+"/other", 0o755),
		os.WriteFile(base+"/d/e/f/file", []byte("text"), 0o644),
		os.WriteFile(base+"/d/e/f/file2", []byte("text"), 0o644),
		os.WriteFile(base+"/d/mode", []byte("text"), 0o644),
		os.WriteFile(base+"/mv/sub/x", []byte("text"), 0o644),
		os.WriteFile(base+"/hard", []byte("text"), 0o644),
		os.Link(base+"/hard", base+"/other/hard"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	s := openStore(t)
	m, err := StoreTree(t.Context(), s, base, StoreOptions{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * tick)
	lowers := map[string]func(t *testing.T) *Lower{
		"directory": func(t *testing.T) *Lower {
			l, err := OpenSealed("base", base, 0)
			if err != nil {
				t.Fatal(err)
			}
			return l
		},
		"image": func(t *testing.T) *Lower { return openStored(t, s, "base", m) },
	}
	for name, open := range lowers {
		t.Run(name, func(t *testing.T) { changeTimes(t, s, newRigOver(t, open(t)), open) })
	}
}

func changeTimes(t *testing.T, s *chunkstore.Store, r *rig, base func(t *testing.T) *Lower) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	fails := func(what string, err, want error) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", what, err, want)
		}
	}
	f := r.facts()
	must(r.write("d/e/f/file", "TEXT", 0))
	f = r.wantChanged("write", f, "/d/e/f/file")
	must(r.mkdir("d/e/new", 0o755))
	f = r.wantChanged("mkdir", f, "/d/e", "/d/e/new")
	must(r.setattr("d/mode", SetAttr{Valid: SetMode, Mode: 0o600}))
	f = r.wantChanged("chmod", f, "/d/mode")
	must(r.setattr("d/mode", SetAttr{Valid: SetSize, Size: 2}))
	f = r.wantChanged("truncate after chmod", f, "/d/mode")
	fails("mkdir of what is there", r.mkdir("d/e", 0o755), unix.EEXIST)
	fails("rmdir of what is full", r.rmdir("mv"), unix.ENOTEMPTY)
	fails("noreplace", r.rename("mv", "d", unix.RENAME_NOREPLACE), unix.EEXIST)
	fails("link over", r.link("hard", "d/mode"), unix.EEXIST)
	fails("replace nothing", r.on("d/e/f/file2", func(n NodeID) error {
		return r.o.SetXattr(n, "user.x", nil, unix.XATTR_REPLACE)
	}), unix.ENODATA)
	f = r.wantChanged("what fails", f)
	must(r.rmdir("d/gone"))
	f = r.wantChanged("rmdir", f, "/d", "/d/gone")
	must(r.rename("mv", "moved", 0))
	f = r.wantChanged("rename", f, "", "/mv", "/mv/sub", "/mv/sub/sub", "/mv/sub/x", "/moved", "/moved/sub", "/moved/sub/sub", "/moved/sub/x")
	must(r.mkdir("d/empty", 0o755))
	f = r.wantChanged("mkdir", f, "/d", "/d/empty")
	must(r.rename("d/empty", "d/over", 0))
	f = r.wantChanged("rename over a directory of the layer below", f, "/d", "/d/empty", "/d/over")
	must(r.unlink("hard"))
	f = r.wantChanged("unlink of a hard link", f, "", "/hard", "/other/hard")
	must(r.link("d/e/f/file2", "hard"))
	f = r.wantChanged("link", f, "", "/hard", "/d/e/f/file2")
	must(r.write("moved/sub/x", "TEXT", 0))
	f = r.wantChanged("write below what moved", f, "/moved/sub/x")

	first := r.seal()
	r.wantFacts("sealed", f)
	must(r.setattr("d/e/f/file", SetAttr{Valid: SetMode, Mode: 0o600}))
	f = r.wantChanged("chmod after a seal", f, "/d/e/f/file")
	r.reopen()
	r.wantFacts("opened again", f)
	second := r.seal()
	r.reopen()
	r.wantFacts("sealed and opened again", f)

	m1, err := Store(t.Context(), s, first, r.lowers[2:], StoreOptions{}, nil)
	must(err)
	m2, err := Store(t.Context(), s, second, r.lowers[1:], StoreOptions{}, nil)
	must(err)
	stored := newRigOver(t, openStored(t, s, "second", m2), openStored(t, s, "first", m1), base(t))
	stored.wantFacts("stored and restored", f)
	must(stored.setattr("moved/sub/x", SetAttr{Valid: SetMode, Mode: 0o600}))
	f = stored.wantChanged("chmod in what was restored", f, "/moved/sub/x")
	must(stored.mkdir("moved/sub/more", 0o755))
	stored.wantChanged("mkdir in what was restored", f, "/moved/sub", "/moved/sub/more")
}
