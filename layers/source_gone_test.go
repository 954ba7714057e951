package layers

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"snapfs/chunkstore"
)

func storeNothing(*chunkstore.Tx, chunkstore.Manifest) error { return nil }

// TestSourceRemoved removes the directory before it is imported: what is left of it is no tree to be stored.
func TestSourceRemoved(t *testing.T) {
	for name, looked := range map[string]bool{"before it is listed": false, "once it was listed": true} {
		t.Run(name, func(t *testing.T) {
			s := newSourceScene(t, func(dir string) {
				writeHost(t, filepath.Join(dir, "a"), "a")
				writeHost(t, filepath.Join(dir, "d/b"), "b")
			})
			defer s.close()
			o := s.overlay()
			if looked {
				at(t, o, "a")
				at(t, o, "d", "b")
			}
			if err := os.RemoveAll(s.dir); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if _, err := o.Lookup(RootNode, "a"); !errors.Is(err, unix.EIO) {
					t.Errorf("a look-up: %v", err)
				}
				if _, err := StoreSource(t.Context(), openStore(t), s.low, StoreOptions{}, storeNothing); !errors.Is(err, unix.EIO) {
					t.Errorf("the import: %v", err)
				}
			}
			if names := s.low.source.dirs[rootIno].names; looked != (len(names) == 2) {
				t.Errorf("there are %d names", len(names))
			}
		})
	}
}

// TestSourceRemovedEmpty removes a directory that has nothing in it.
func TestSourceRemovedEmpty(t *testing.T) {
	s := newSourceScene(t, func(string) {})
	defer s.close()
	s.overlay()
	if _, err := s.low.source.namesIn(s.low.source.dirs[rootIno]); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(s.dir); err != nil {
		t.Fatal(err)
	}
	if _, err := StoreSource(t.Context(), openStore(t), s.low, StoreOptions{}, storeNothing); !errors.Is(err, unix.EIO) {
		t.Errorf("the import: %v", err)
	}
}

// TestSourceReused has the host's number of a file that was read go to one with two names.
func TestSourceReused(t *testing.T) {
	for name, seen := range map[string]*sourceInode{
		"another birth": {attr: Attr{Mode: unix.S_IFREG}},
		"another type":  {attr: Attr{Mode: unix.S_IFLNK}, sourceMore: sourceMore{target: "to"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSourceScene(t, func(dir string) {
				writeHost(t, filepath.Join(dir, "n"), "new")
				if err := os.Link(filepath.Join(dir, "n"), filepath.Join(dir, "o")); err != nil {
					t.Fatal(err)
				}
			})
			defer s.close()
			var st unix.Stat_t
			if err := unix.Stat(filepath.Join(s.dir, "n"), &st); err != nil {
				t.Fatal(err)
			}
			seen.attr.Ino = st.Ino
			s.low.source.given.Add(st.Ino)
			s.low.source.fixed[st.Ino] = seen
			o := s.overlay()
			a, b := at(t, o, "n"), at(t, o, "o")
			if a.Attr.Ino == st.Ino || a.Node != b.Node {
				t.Errorf("a file whose number another has had is %+v and %+v", a, b)
			}
			if got := readNode(t, o, a.Node); got != "new" {
				t.Errorf("it has %q", got)
			}
		})
	}
}

// TestSourceReplaced replaces one of two names between a look at it and its being opened.
func TestSourceReplaced(t *testing.T) {
	s := newSourceScene(t, func(dir string) {
		writeHost(t, filepath.Join(dir, "a"), "linked")
		if err := os.Link(filepath.Join(dir, "a"), filepath.Join(dir, "b")); err != nil {
			t.Fatal(err)
		}
		writeHost(t, filepath.Join(dir, "c"), "LINKED")
	})
	defer s.close()
	o := s.overlay()
	a, b := at(t, o, "a"), at(t, o, "b")
	s.low.source.onOpen = func() {
		_ = os.Rename(filepath.Join(s.dir, "c"), filepath.Join(s.dir, "a"))
	}
	if _, err := o.Read(a.Node, make([]byte, 10), 0); err != nil && !errors.Is(err, unix.ESTALE) {
		t.Error(err)
	}
	if got := readNode(t, o, at(t, o, "b").Node); got != "linked" {
		t.Errorf("the name that stayed (%+v) shows %q", b, got)
	}
	if got := readNode(t, o, at(t, o, "a").Node); got != "LINKED" {
		t.Errorf("the name that was replaced shows %q", got)
	}
}

// TestSourceBack has names go and come back, as with a checkout, before they are read and while they are imported.
func TestSourceBack(t *testing.T) {
	s := newSourceScene(t, func(dir string) {
		for _, name := range []string{"seen", "unseen", "turned", "d/in", "e/in", "gone", "a/link"} {
			writeHost(t, filepath.Join(dir, name), "old")
		}
		if err := os.Link(filepath.Join(dir, "a/link"), filepath.Join(dir, "b")); err != nil {
			t.Fatal(err)
		}
	})
	defer s.close()
	store := openStore(t)
	o := s.overlay()
	at(t, o, "seen")
	d, e := at(t, o, "d"), at(t, o, "e")
	at(t, o, "d", "in") // e is not listed
	if a, b := at(t, o, "a", "link"), at(t, o, "b"); a.Node != b.Node {
		t.Fatalf("links are %+v and %+v", a, b)
	}
	if err := os.RemoveAll(s.dir + "/d"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"seen", "unseen", "turned", "e", "gone", "a/link"} {
		if err := os.RemoveAll(filepath.Join(s.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	a := at(t, o, "a")
	away := func(dir NodeID, name string) {
		t.Helper()
		if _, err := o.Lookup(dir, name); !errors.Is(err, unix.ENOENT) {
			t.Errorf("%s, which is away: %v", name, err)
		}
	}
	for _, name := range []string{"seen", "unseen", "turned", "gone"} {
		away(RootNode, name)
	}
	away(d.Node, "in")
	away(e.Node, "in")
	away(a.Node, "link")
	if n, some := s.low.SourceLost(); n != 7 || len(some) != mostLost {
		t.Errorf("%d names are lost, such as %q", n, some)
	}
	readNode(t, o, at(t, o, "b").Node) // the other name of the link
	for _, name := range []string{"seen", "unseen", "d/in", "e/in", "a/link"} {
		writeHost(t, filepath.Join(s.dir, name), "new "+name)
	}
	if err := os.Symlink("to", filepath.Join(s.dir, "turned")); err != nil {
		t.Fatal(err)
	}
	for _, names := range [][]string{{"seen"}, {"d", "in"}} {
		if got := readNode(t, o, at(t, o, names...).Node); got != "new "+filepath.Join(names...) {
			t.Errorf("%q came back with %q", names, got)
		}
	}
	im := s.image(store) // this meets the others
	want := map[string]string{
		"seen": "new seen", "unseen": "new unseen", "d/in": "new d/in", "e/in": "new e/in", "a/link": "new a/link", "b": "old",
	}
	if got := contentsOf(t, im); !maps.Equal(got, want) {
		t.Errorf("the image has %q, want %q", got, want)
	}
	if n, some := s.low.SourceLost(); n != 1 || some[0] != "gone" {
		t.Errorf("%d names are lost, such as %q", n, some)
	}
	writeHost(t, filepath.Join(s.dir, "gone"), "too late")
	away(RootNode, "gone")
	if err := o.Replace(im); err != nil {
		t.Fatal(err)
	}
	away(RootNode, "gone")
	if got, err := o.Readlink(at(t, o, "turned").Node); got != "to" {
		t.Errorf("what became a symlink leads to %q: %v", got, err)
	}
	var names []string
	if err := o.ReadDir(e.Node, 0, func(d DirEntry) bool { names = append(names, d.Name); return true }); err != nil {
		t.Fatal(err)
	}
	if len(names) != 3 {
		t.Errorf("the directory that came back has %q", names)
	}
}

// TestSourceSettles has names come back only while the import waits for that, and a program ask for one that the import
// has passed.
func TestSourceSettles(t *testing.T) {
	s := newSourceScene(t, func(dir string) {
		writeHost(t, filepath.Join(dir, "a"), "a")
		writeHost(t, filepath.Join(dir, "z"), "z")
	})
	defer s.close()
	store := openStore(t)
	o := s.overlay()
	at(t, o, "a")
	if err := os.Remove(filepath.Join(s.dir, "a")); err != nil {
		t.Fatal(err)
	}
	src := s.low.source
	src.onCopy = func() { // z is copied, so the walk has passed a
		src.onCopy = nil
		writeHost(t, filepath.Join(s.dir, "a"), "is back")
	}
	src.walk.again = map[uint64]bool{at(t, o, "z").Attr.Ino: true}
	want := map[string]string{"a": "is back", "z": "z"}
	im := s.image(store)
	if got := contentsOf(t, im); !maps.Equal(got, want) {
		t.Errorf("the image has %q, want %q", got, want)
	}
	if src.onCopy != nil {
		t.Error("z was not copied")
	}
}

// TestSourceRotated has a file move into a directory that is listed later, and another come in its place; then what was
// moved is removed, or replaced.
func TestSourceRotated(t *testing.T) {
	for name, then := range map[string]func(moved string) error{
		"removed": os.Remove,
		"replaced": func(moved string) error {
			return errors.Join(os.WriteFile(moved+"x", []byte("other"), 0o600), os.Rename(moved+"x", moved))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSourceScene(t, func(dir string) {
				writeHost(t, filepath.Join(dir, "log"), "first")
				writeHost(t, filepath.Join(dir, "old/log.0"), "0")
			})
			defer s.close()
			o := s.overlay()
			at(t, o, "log")
			moved := filepath.Join(s.dir, "old/log.1")
			if err := os.Rename(filepath.Join(s.dir, "log"), moved); err != nil {
				t.Fatal(err)
			}
			writeHost(t, filepath.Join(s.dir, "log"), "second")
			at(t, o, "old", "log.0")
			if got := at(t, o, "log"); got.Attr.Size != uint64(len("first")) {
				t.Fatalf("the file does not follow: %+v", got)
			}
			if err := then(moved); err != nil {
				t.Fatal(err)
			}
			if got := readNode(t, o, at(t, o, "log").Node); got != "second" {
				t.Errorf("got %q", got)
			}
		})
	}
}
