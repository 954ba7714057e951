package layers

import (
	"errors"
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
		"another type":  {attr: Attr{Mode: unix.S_IFLNK}, target: "to"},
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
