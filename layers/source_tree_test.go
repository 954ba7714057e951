package layers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/chunkstore"
)

// oddTree makes one of everything.
func oddTree(t *testing.T) func(dir string) {
	return func(dir string) {
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		writeHost(t, filepath.Join(dir, "plain"), "plain")
		writeHost(t, filepath.Join(dir, "empty"), "")
		writeHost(t, filepath.Join(dir, "not utf-8 \xff\xfe"), "name")
		writeHost(t, filepath.Join(dir, "links/one"), "linked")
		must(os.Link(filepath.Join(dir, "links/one"), filepath.Join(dir, "links/two")))
		must(os.Link(filepath.Join(dir, "links/one"), filepath.Join(dir, "three")))
		must(os.Symlink("plain", filepath.Join(dir, "symlink")))
		must(unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600))
		must(unix.Mknod(filepath.Join(dir, "null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))))
		must(unix.Mknod(filepath.Join(dir, "whiteout"), unix.S_IFCHR, 0))
		must(os.Chmod(filepath.Join(dir, "plain"), 0o4750))
		must(unix.Setxattr(filepath.Join(dir, "plain"), "user.a", []byte("value"), 0))
		must(unix.Setxattr(filepath.Join(dir, "links"), "trusted.overlay.opaque", []byte("y"), 0))
		must(unix.Lsetxattr(filepath.Join(dir, "symlink"), "trusted.b", []byte("of a link"), 0))
		f, err := os.Create(filepath.Join(dir, "sparse"))
		must(err)
		_, err = f.WriteAt([]byte("in the middle"), 1<<20)
		must(err)
		must(f.Truncate(3 << 20))
		must(f.Close())
		deep := dir
		for range 60 {
			deep = filepath.Join(deep, strings.Repeat("d", 20))
		}
		writeHost(t, filepath.Join(deep, "bottom"), "deep")
		must(os.Mkdir(filepath.Join(dir, "mounted"), 0o755))
		writeHost(t, filepath.Join(dir, "mounted/beneath"), "is not seen")
		must(unix.Mount("tmpfs", filepath.Join(dir, "mounted"), "tmpfs", 0, ""))
		t.Cleanup(func() { _ = unix.Unmount(filepath.Join(dir, "mounted"), unix.MNT_DETACH) })
		writeHost(t, filepath.Join(dir, "mounted/above"), "is left out")
	}
}

// noNumbers takes the inode numbers out of a picture.
func noNumbers(lines []string) []string {
	out := make([]string, len(lines))
	for i, l := range lines {
		before, rest, _ := strings.Cut(l, "{Ino:")
		_, rest, _ = strings.Cut(rest, " ")
		out[i] = before + rest
	}
	return out
}

// TestSourceTree compares a source layer with its image, and that with what StoreTree makes; with no room in memory for
// attributes and targets as well.
func TestSourceTree(t *testing.T) {
	for name, held := range map[string]int64{"": 0, "nothing in memory": 1} {
		t.Run(name, func(t *testing.T) { testSourceTree(t, held) })
	}
}

func testSourceTree(t *testing.T, held int64) {
	store := openStore(t)
	s := &sourceScene{t: t, dir: t.TempDir(), copies: filepath.Join(t.TempDir(), "copies"), held: held}
	oddTree(t)(s.dir)
	s.open()
	im := s.image(store) // before a file is fixed
	image := picture(t, []*Lower{im})
	samePicture(t, "the layer after its import", picture(t, []*Lower{s.low}), image)
	s.close()
	s.open() // by the journal
	if n := s.low.source.log.held; held > 0 && n > held {
		t.Errorf("%d bytes of attributes and targets in memory", n)
	}
	again := picture(t, []*Lower{s.low})
	samePicture(t, "the layer opened again", again, image)
	samePicture(t, "the image of what was read", picture(t, []*Lower{s.image(store)}), image)
	s.close()
	m, err := StoreTree(t.Context(), store, s.dir, StoreOptions{}, func(*chunkstore.Tx, chunkstore.Manifest) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	r, err := store.OpenManifest(t.Context(), m.ID)
	if err != nil {
		t.Fatal(err)
	}
	tree, err := OpenImage("tree", r, m.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	samePicture(t, "an import", noNumbers(picture(t, []*Lower{tree})), noNumbers(image))
}

// TestSourceRestart kills nothing, but opens the layer a second time over what the first has left.
func TestSourceRestart(t *testing.T) {
	s := newSourceScene(t, func(dir string) {
		for i := range 50 {
			writeHost(t, filepath.Join(dir, fmt.Sprintf("d/f%d", i)), fmt.Sprint("old ", i))
		}
		writeHost(t, filepath.Join(dir, "gone"), "is removed at once")
	})
	o := s.overlay()
	for i := range 25 {
		readNode(t, o, at(t, o, "d", fmt.Sprintf("f%d", i)).Node)
	}
	numbers := map[string]uint64{}
	if err := o.ReadDir(at(t, o, "d").Node, 0, func(d DirEntry) bool { numbers[d.Name] = d.Ino; return true }); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(s.dir, "gone")); err != nil {
		t.Fatal(err)
	}
	if _, err := o.Lookup(RootNode, "gone"); !errors.Is(err, unix.ENOENT) {
		t.Errorf("what was removed before it was read: %v", err)
	}
	// The process is killed here: nothing is closed. What it was writing is cut off.
	j, err := os.OpenFile(filepath.Join(s.copies, journalName), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := j.WriteString("\x40\x00\x00\x00 torn"); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		name := filepath.Join(s.dir, fmt.Sprintf("d/f%d", i))
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
		writeHost(t, name, fmt.Sprint("newer ", i))
	}
	writeHost(t, filepath.Join(s.dir, "d/more"), "more")
	first := s.low
	defer first.Close()
	s.open()
	defer s.close()
	o = s.overlay()
	for i := range 50 {
		want := fmt.Sprint("old ", i)
		if i >= 25 {
			want = fmt.Sprint("newer ", i)
		}
		e := at(t, o, "d", fmt.Sprintf("f%d", i))
		if got := readNode(t, o, e.Node); got != want {
			t.Errorf("file %d: %q after a restart, want %q", i, got, want)
		}
		if name := fmt.Sprintf("f%d", i); e.Attr.Ino != numbers[name] {
			t.Errorf("%s is number %d after a restart, and was %d", name, e.Attr.Ino, numbers[name])
		}
	}
	if _, err := o.Lookup(at(t, o, "d").Node, "more"); !errors.Is(err, unix.ENOENT) {
		t.Errorf("what came after the listing: %v", err)
	}
}

// TestSourceHoles has copies be holes of the right size, as after a power failure. The files are copied again.
func TestSourceHoles(t *testing.T) {
	names := []string{"small", "zeros", "page", "large"}
	s := newSourceScene(t, func(dir string) {
		for i, size := range []int{5, 700, maxSummed, maxSummed + 1} {
			text := strings.Repeat(string([]byte{"s\x00pl"[i]}), size)
			writeHost(t, filepath.Join(dir, names[i]), text)
		}
	})
	o := s.overlay()
	want := map[string]string{}
	for _, name := range names {
		e := at(t, o, name)
		want[name] = readNode(t, o, e.Node)
		c := filepath.Join(s.copies, copyName(e.Attr.Ino))
		if err := errors.Join(os.Truncate(c, 0), os.Truncate(c, int64(e.Attr.Size))); err != nil {
			t.Fatal(err)
		}
	}
	first := s.low
	defer first.Close()
	s.open()
	defer s.close()
	o = s.overlay()
	for _, name := range names {
		if got := readNode(t, o, at(t, o, name).Node); got != want[name] {
			t.Errorf("%s has %.20q and more after a power failure, want %.20q", name, got, want[name])
		}
	}
}

// TestSourceMapped stores to a page that is mapped and dirty while the file is copied.
func TestSourceMapped(t *testing.T) {
	s := newSourceScene(t, func(dir string) { writeHost(t, filepath.Join(dir, "mapped"), "as it was") })
	defer s.close()
	var fs unix.Statfs_t
	f, err := os.OpenFile(filepath.Join(s.dir, "mapped"), os.O_RDWR, 0)
	if err := errors.Join(err, unix.Statfs(s.dir, &fs)); err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m, err := unix.Mmap(int(f.Fd()), 0, 9, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(m) }()
	copy(m, "is dirty ")
	copies := 0
	s.low.source.onCopy = func() {
		if copies++; copies == 1 {
			copy(m, "has moved")
		}
	}
	o := s.overlay()
	if got := readNode(t, o, at(t, o, "mapped").Node); got != "has moved" {
		t.Errorf("got %q", got)
	}
	if copies < 2 && fs.Type != unix.TMPFS_MAGIC {
		t.Error("the store was not noticed")
	}
}

// TestSourceSeal seals while a file of the layer is copied.
func TestSourceSeal(t *testing.T) {
	s := newSourceScene(t, func(dir string) { writeHost(t, filepath.Join(dir, "big"), "big") })
	defer s.close()
	o := s.overlay()
	copying, goOn := make(chan struct{}), make(chan struct{})
	s.low.source.onCopy = func() { close(copying); <-goOn }
	big := at(t, o, "big")
	done := make(chan error, 1)
	go func() {
		_, err := o.Read(big.Node, make([]byte, 10), 0)
		done <- err
	}()
	<-copying
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	sealed, err := o.Seal(ctx, "sealed", t.TempDir(), t.TempDir(), 2<<40)
	if err != nil {
		t.Fatal(err)
	}
	defer sealed.Close()
	if e := at(t, o, "big"); e.Node != big.Node {
		t.Errorf("looked up while it is copied: %+v", e)
	}
	close(goOn)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestSourceMoved moves files at the source, once they were seen and before.
func TestSourceMoved(t *testing.T) {
	s := newSourceScene(t, func(dir string) {
		for _, name := range []string{"a/told", "a/listed", "a/read"} {
			writeHost(t, filepath.Join(dir, name), name)
		}
		writeHost(t, filepath.Join(dir, "b/own"), "own")
	})
	store := openStore(t)
	o := s.overlay()
	readNode(t, o, at(t, o, "a", "read").Node)
	told := at(t, o, "a", "told")
	for _, name := range []string{"told", "listed", "read"} {
		if err := os.Rename(filepath.Join(s.dir, "a", name), filepath.Join(s.dir, "b", name)); err != nil {
			t.Fatal(err)
		}
	}
	var names []string
	if err := o.ReadDir(at(t, o, "b").Node, 0, func(d DirEntry) bool { names = append(names, d.Name); return true }); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(len(names)); got != "4" { // with . and ..: own and listed
		t.Errorf("b shows %q", names)
	}
	im := s.image(store)
	want := map[string]string{"a/told": "a/told", "a/read": "a/read", "b/listed": "a/listed", "b/own": "own"}
	got := contentsOf(t, im)
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the image has %q, want %q", got, want)
	}
	if err := o.Replace(im); err != nil {
		t.Fatal(err)
	}
	s.close()
	e := at(t, o, "a", "told")
	if e.Node != told.Node || readNode(t, o, e.Node) != "a/told" {
		t.Errorf("after the image came: %+v", e)
	}
}

// TestSourceChange changes what lies in the layer through an overlay.
func TestSourceChange(t *testing.T) {
	store := openStore(t)
	s := newSourceScene(t, oddTree(t))
	o := s.overlay()
	me := Caller{}
	d := at(t, o, strings.Repeat("d", 20))
	if err := o.Rename(RootNode, strings.Repeat("d", 20), RootNode, "moved", 0); err != nil {
		t.Fatal(err)
	}
	if e := at(t, o, "moved"); e.Node != d.Node {
		t.Errorf("the directory that was moved is %+v", e)
	}
	if err := o.Unlink(RootNode, "empty"); err != nil {
		t.Fatal(err)
	}
	one := at(t, o, "links", "one")
	if _, err := o.Write(one.Node, []byte("L"), 0, nil); err != nil {
		t.Fatal(err)
	}
	for _, names := range [][]string{{"links", "two"}, {"three"}} {
		if e := at(t, o, names...); e.Node != one.Node || readNode(t, o, e.Node) != "Linked" {
			t.Errorf("%q is %+v, and no link of what was written", names, e)
		}
	}
	if _, err := o.SetAttr(me, at(t, o, "sparse").Node, SetAttr{Valid: SetMode, Mode: 0o600}); err != nil {
		t.Fatal(err)
	}
	if err := o.Fsync(at(t, o, "sparse").Node, false); err != nil {
		t.Fatal(err)
	}
	look := func() []string {
		low, err := o.Lowers()
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			for _, l := range low {
				_ = l.Close()
			}
		}()
		return picture(t, low)
	}
	before := look()
	im := s.image(store)
	samePicture(t, "after the import", look(), before)
	if err := o.Replace(im); err != nil {
		t.Fatal(err)
	}
	s.close()
	samePicture(t, "with the image", look(), before)
	if _, err := o.Lookup(RootNode, "empty"); !errors.Is(err, unix.ENOENT) {
		t.Errorf("what was removed: %v", err)
	}
}

// TestSourceOther opens another directory over the copies of one that was removed.
func TestSourceOther(t *testing.T) {
	s := newSourceScene(t, func(dir string) { writeHost(t, filepath.Join(dir, "a"), "a") })
	s.close()
	if err := os.RemoveAll(s.dir); err != nil {
		t.Fatal(err)
	}
	writeHost(t, filepath.Join(s.dir, "a"), "b")
	if _, err := OpenSource("source", s.dir, SourceOptions{Copies: s.copies}); !errors.Is(err, ErrOtherSource) {
		t.Errorf("got %v", err)
	}
}

// TestSourceNoRoom reads a file for whose copy there is no room, and again when there is.
func TestSourceNoRoom(t *testing.T) {
	s := newSourceScene(t, func(dir string) {
		writeHost(t, filepath.Join(dir, "big"), strings.Repeat("0123456789abcdef", 1<<16))
		writeHost(t, filepath.Join(dir, "small"), "small")
	})
	s.close()
	disk := t.TempDir()
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=512k"); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Unmount(disk, unix.MNT_DETACH) }()
	s.copies = filepath.Join(disk, "copies")
	s.open()
	defer s.close()
	o := s.overlay()
	big := at(t, o, "big")
	for range 2 {
		if _, err := o.Read(big.Node, make([]byte, 10), 0); !errors.Is(err, unix.ENOSPC) {
			t.Errorf("without room: %v", err)
		}
	}
	if got := readNode(t, o, at(t, o, "small").Node); got != "small" {
		t.Errorf("a small file: %q", got)
	}
	if err := unix.Mount("", disk, "", unix.MS_REMOUNT, "size=8m"); err != nil {
		t.Fatal(err)
	}
	if got := readNode(t, o, big.Node); len(got) != 1<<16 {
		t.Errorf("with room there are %d bytes", len(got))
	}
}
