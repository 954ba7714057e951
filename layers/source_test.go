package layers

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"snapfs/chunkstore"
)

// sourceScene is a directory that a source layer shows.
type sourceScene struct {
	t      *testing.T
	dir    string
	copies string
	held   int64
	low    *Lower
}

func newSourceScene(t *testing.T, fill func(dir string)) *sourceScene {
	t.Helper()
	s := &sourceScene{t: t, dir: t.TempDir(), copies: filepath.Join(t.TempDir(), "copies")}
	fill(s.dir)
	s.open()
	return s
}

func (s *sourceScene) open() {
	s.t.Helper()
	low, err := OpenSource("source", s.dir, SourceOptions{Copies: s.copies, held: s.held})
	if err != nil {
		s.t.Fatal(err)
	}
	s.low = low
}

func (s *sourceScene) close() {
	s.t.Helper()
	if err := s.low.Close(); err != nil {
		s.t.Error(err)
	}
}

// overlay opens one over the layer.
func (s *sourceScene) overlay() *Overlay {
	s.t.Helper()
	upper, work := s.t.TempDir(), s.t.TempDir()
	o, err := New(upper, work, []*Lower{s.low}, Options{InoBase: 1 << 40})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if err := o.Close(); err != nil {
			s.t.Error(err)
		}
	})
	return o
}

// image stores the layer.
func (s *sourceScene) image(store *chunkstore.Store) *Lower {
	s.t.Helper()
	m, err := StoreSource(s.t.Context(), store, s.low, StoreOptions{}, func(*chunkstore.Tx, chunkstore.Manifest) error { return nil })
	if err != nil {
		s.t.Fatal(err)
	}
	r, err := store.OpenManifest(s.t.Context(), m.ID)
	if err != nil {
		s.t.Fatal(err)
	}
	low, err := OpenImage("source", r, m.ID)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = low.Close() })
	return low
}

func writeHost(t *testing.T, path, data string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(data), 0o644); err != nil {
		t.Fatal(err)
	}
}

// at gives an entry by its path.
func at(t *testing.T, o *Overlay, names ...string) Entry {
	t.Helper()
	e := Entry{Node: RootNode}
	for _, name := range names {
		var err error
		if e, err = o.Lookup(e.Node, name); err != nil {
			t.Fatalf("%q: %v", names, err)
		}
	}
	return e
}

func readNode(t *testing.T, o *Overlay, id NodeID) string {
	t.Helper()
	buf := make([]byte, 1<<16)
	n, err := o.Read(id, buf, 0)
	if err != nil {
		t.Fatal(err)
	}
	return string(buf[:n])
}

func TestSourceStays(t *testing.T) {
	s := newSourceScene(t, func(dir string) {
		writeHost(t, filepath.Join(dir, "read"), "old")
		writeHost(t, filepath.Join(dir, "d/later"), "old")
		writeHost(t, filepath.Join(dir, "d/unread"), "old")
		writeHost(t, filepath.Join(dir, "opened"), "old")
	})
	store := openStore(t)
	o := s.overlay()
	read := at(t, o, "read")
	if got := readNode(t, o, read.Node); got != "old" {
		t.Fatalf("got %q", got)
	}
	opened := at(t, o, "opened")
	writeHost(t, filepath.Join(s.dir, "read"), "newer")
	writeHost(t, filepath.Join(s.dir, "opened"), "newer")
	writeHost(t, filepath.Join(s.dir, "d/later"), "newer")
	writeHost(t, filepath.Join(s.dir, "more"), "is not seen any more")
	if got := readNode(t, o, at(t, o, "read").Node); got != "old" {
		t.Errorf("a file that was read has become %q", got)
	}
	if got := readNode(t, o, at(t, o, "d", "later").Node); got != "newer" {
		t.Errorf("a file that was not read is %q", got)
	}
	buf := make([]byte, 10)
	if _, err := o.Read(opened.Node, buf, 0); !errors.Is(err, unix.ESTALE) {
		t.Errorf("reading a file of another size than was told: %v", err)
	}
	again := at(t, o, "opened")
	if again.Node != opened.Node || again.Gen == opened.Gen {
		t.Errorf("looked up again it is %+v after %+v", again, opened)
	}
	if got := readNode(t, o, again.Node); got != "newer" {
		t.Errorf("looked up again it has %q", got)
	}
	if _, err := o.Lookup(RootNode, "more"); !errors.Is(err, unix.ENOENT) {
		t.Errorf("a name that came later: %v", err)
	}
	want := picture(t, []*Lower{s.low})
	im := s.image(store)
	samePicture(t, "the image", picture(t, []*Lower{im}), want)
	if err := o.Replace(im); err != nil {
		t.Fatal(err)
	}
	s.close()
	if got := readNode(t, o, at(t, o, "read").Node); got != "old" {
		t.Errorf("in the image: %q", got)
	}
}

// TestSourceJournalFull lists directories and reads files while there is no room for the journal. Nothing is shown that
// is not noted, and all is once there is room.
func TestSourceJournalFull(t *testing.T) {
	const files = 400
	long := strings.Repeat("n", 200)
	s := newSourceScene(t, func(dir string) {
		writeHost(t, filepath.Join(dir, "read"), "read")
		writeHost(t, filepath.Join(dir, "linked/a"), "linked")
		for i := range files {
			writeHost(t, filepath.Join(dir, "dir", fmt.Sprint(long, i)), "")
		}
		if err := os.Link(filepath.Join(dir, "linked/a"), filepath.Join(dir, "dir/b")); err != nil {
			t.Fatal(err)
		}
	})
	s.close()
	disk := t.TempDir()
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Unmount(disk, unix.MNT_DETACH) }()
	s.copies = filepath.Join(disk, "copies")
	s.open()
	o := s.overlay()
	d := at(t, o, "dir")
	for range 3 {
		if _, err := o.Lookup(d.Node, "b"); !errors.Is(err, unix.ENOSPC) {
			t.Errorf("a listing that cannot be noted: %v", err)
		}
	}
	read := at(t, o, "read") // the journal goes on where it was
	readNode(t, o, read.Node)
	src := s.low.source
	if end, info := src.log.end, hostStat(t, filepath.Join(s.copies, journalName)); info.Size != end {
		t.Errorf("the journal has %d bytes, of which %d are records", info.Size, end)
	}
	if src.dirs[d.Attr.Ino].listed {
		t.Error("a listing is shown that is not noted")
	}
	if err := unix.Mount("", disk, "", unix.MS_REMOUNT, "size=8m"); err != nil {
		t.Fatal(err)
	}
	b := at(t, o, "dir", "b")
	if a := at(t, o, "linked", "a"); a.Node != b.Node {
		t.Errorf("links are %+v and %+v", a, b)
	}
	writeHost(t, filepath.Join(s.dir, "read"), "changed")
	writeHost(t, filepath.Join(s.dir, "dir/more"), "more")
	first := s.low // the process is killed here
	defer first.Close()
	s.open()
	defer s.close()
	o = s.overlay()
	if got := readNode(t, o, at(t, o, "read").Node); got != "read" {
		t.Errorf("after a restart: %q", got)
	}
	if _, err := o.Lookup(at(t, o, "dir").Node, "more"); !errors.Is(err, unix.ENOENT) {
		t.Errorf("after a restart the listing is another one: %v", err)
	}
	if again := at(t, o, "dir", "b"); again.Attr.Ino != b.Attr.Ino {
		t.Errorf("after a restart a number is %d, and was %d", again.Attr.Ino, b.Attr.Ino)
	}
}

func hostStat(t *testing.T, path string) unix.Stat_t {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st
}
