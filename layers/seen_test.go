package layers

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/chunkstore"
	"snapfs/internal/statcache"
	"snapfs/internal/testseed"
)

// seenImports are the imports of a directory with what they note.
type seenImports struct {
	t     *testing.T
	store *chunkstore.Store
	src   string
	notes string

	from        *statcache.Reader
	to          *statcache.Writer
	kept, noted int
}

func (s *seenImports) Len() int                             { return s.from.Len() }
func (s *seenImports) Find(f statcache.File) ([]byte, bool) { return s.from.Find(f) }
func (s *seenImports) Note(f statcache.File, note []byte)   { s.noted++; s.to.Note(f, note) }
func (s *seenImports) Keep(f statcache.File, note []byte)   { s.kept++; s.to.Note(f, note) }
func (s *seenImports) begin(dev, ino uint64) Seen           { return s }

// newSeenImports skips the test where change times cannot be relied on.
func newSeenImports(t *testing.T) *seenImports {
	t.Helper()
	src := t.TempDir()
	var st unix.Statfs_t
	if err := unix.Statfs(src, &st); err != nil {
		t.Fatal(err)
	}
	if !exactTimes[int64(st.Type)] {
		t.Skip("nothing is noted of this file system")
	}
	return &seenImports{t: t, store: openStore(t), src: src, notes: t.TempDir()}
}

// run imports the directory, with what was noted, and compares with an import without.
func (s *seenImports) run(what string) {
	s.t.Helper()
	var err error
	if s.from, err = statcache.Open(s.notes, statcache.Key{}); err != nil {
		s.t.Fatal(err)
	}
	if s.to, err = statcache.Create(s.notes, statcache.Key{}); err != nil {
		s.t.Fatal(err)
	}
	s.kept, s.noted = 0, 0
	got, err := StoreTree(s.t.Context(), s.store, s.src, StoreOptions{Home: 5, Seen: s.begin}, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.to.Commit(); err != nil {
		s.t.Fatal(err)
	}
	want, err := StoreTree(s.t.Context(), s.store, s.src, StoreOptions{Home: 5}, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	if got.Digest != want.Digest || got.Size != want.Size {
		s.t.Fatalf("%s: the import with notes differs from that without: %d and %d bytes", what, got.Size, want.Size)
	}
}

// age waits until what was changed before can be noted.
func age() { time.Sleep(2 * clockTick) }

func (s *seenImports) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// TestSeenRandom edits a tree in all ways, most of them such that size and modification time do not tell, and imports it
// after each few edits.
func TestSeenRandom(t *testing.T) {
	s := newSeenImports(t)
	r := rand.New(rand.NewPCG(testseed.Of(t), 3))
	const dirs, files = 4, 40
	path := func() string { return filepath.Join(s.src, fmt.Sprint(r.IntN(dirs)), fmt.Sprint(r.IntN(files/dirs))) }
	contents := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte('a' + r.IntN(4))
		}
		return b
	}
	sizes := []int{0, 1, 100, 5000, 5000, 5000, 70_000, 3 << 20}
	for d := range dirs {
		s.must(os.Mkdir(filepath.Join(s.src, fmt.Sprint(d)), 0o755))
		for f := range files / dirs {
			s.must(os.WriteFile(filepath.Join(s.src, fmt.Sprint(d), fmt.Sprint(f)), contents(sizes[r.IntN(len(sizes))]), 0o644))
		}
	}
	edits := []func(p string, fi os.FileInfo) error{
		func(p string, fi os.FileInfo) error { // in place, of the same size, and the modification time is set back
			f, err := os.OpenFile(p, os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			defer func() { _ = f.Close() }()
			if _, err := f.WriteAt(contents(min(int(fi.Size()), 50)), 0); err != nil {
				return err
			}
			return os.Chtimes(p, time.Time{}, fi.ModTime())
		},
		func(p string, fi os.FileInfo) error { // renamed over, of the same size and modification time
			tmp := filepath.Join(s.src, "tmp")
			if err := os.WriteFile(tmp, contents(int(fi.Size())), 0o600); err != nil {
				return err
			}
			if err := os.Chtimes(tmp, time.Time{}, fi.ModTime()); err != nil {
				return err
			}
			return os.Rename(tmp, p)
		},
		func(p string, _ os.FileInfo) error { return os.Rename(p, path()) },
		func(p string, _ os.FileInfo) error {
			to := path()
			if err := os.Remove(to); err != nil && !os.IsNotExist(err) {
				return err
			}
			if err := os.Link(p, to); err != nil && !os.IsNotExist(err) { // it was the same name
				return err
			}
			return nil
		},
		func(p string, _ os.FileInfo) error { return os.Chmod(p, os.FileMode(0o400+r.IntN(0o200))) },
		func(p string, fi os.FileInfo) error { return os.Truncate(p, fi.Size()+int64(r.IntN(2<<20))) },
		func(p string, _ os.FileInfo) error { return os.Remove(p) },
		func(p string, _ os.FileInfo) error { return unix.Setxattr(p, "user.x", contents(5), 0) },
		func(p string, _ os.FileInfo) error { // a directory moves over, and keeps its files' change times
			a, b := filepath.Dir(p), filepath.Dir(path())
			return unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
		},
		func(p string, _ os.FileInfo) error {
			return os.WriteFile(path(), contents(sizes[r.IntN(len(sizes))]), 0o644)
		},
	}
	kept := 0
	for round := range 30 {
		for range r.IntN(6) {
			p := path()
			fi, err := os.Lstat(p)
			if err != nil {
				continue
			}
			if err := edits[r.IntN(len(edits))](p, fi); err != nil {
				t.Fatal(err)
			}
		}
		if round%5 == 0 {
			age()
		}
		s.run(fmt.Sprintf("round %d", round))
		kept += s.kept
	}
	if kept < 30*files/4 {
		t.Errorf("only %d files were not read again", kept)
	}
}

// TestSeenUnchanged imports a tree again: nothing is read, whatever names it was changed to meanwhile.
func TestSeenUnchanged(t *testing.T) {
	s := newSeenImports(t)
	for i := range 20 {
		s.must(os.WriteFile(filepath.Join(s.src, fmt.Sprint(i)), bytes.Repeat([]byte{byte(i)}, 1000*i+1), 0o644))
	}
	s.must(os.Truncate(filepath.Join(s.src, "3"), 9<<20))
	age()
	s.run("first")
	if s.noted != 20 {
		t.Fatalf("%d files were noted", s.noted)
	}
	s.run("second")
	if s.kept != 20 || s.noted != 0 {
		t.Fatalf("%d files were kept, and %d read", s.kept, s.noted)
	}
	s.must(os.Rename(filepath.Join(s.src, "5"), filepath.Join(s.src, "other")))
	s.must(os.WriteFile(filepath.Join(s.src, "6"), []byte("changed"), 0o644))
	s.run("changed")
	if s.kept != 18 {
		t.Fatalf("%d files were kept", s.kept)
	}
}

// TestSeenMapped writes to a file by a shared mapping: the second write to a page that is not on the disk yet leaves
// the change time as it is.
func TestSeenMapped(t *testing.T) {
	s := newSeenImports(t)
	path := filepath.Join(s.src, "mapped")
	f, err := os.Create(path)
	s.must(err)
	defer func() { _ = f.Close() }()
	s.must(f.Truncate(100_000))
	m, err := unix.Mmap(int(f.Fd()), 0, 100_000, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	s.must(err)
	defer func() { s.must(unix.Munmap(m)) }()
	m[0], m[50_000] = 1, 1
	for i := range fewYoung + 10 { // all are written to the disk, one by one or together
		s.must(os.WriteFile(filepath.Join(s.src, fmt.Sprint(i)), []byte{1}, 0o644))
	}
	age()
	for i := range byte(5) {
		s.run(fmt.Sprintf("write %d", i))
		m[0], m[50_000] = i, i+1
	}
	s.run("last write")
}

// TestSeenNotListed opens another file than the one that was listed: what the store has of the latter is not taken for
// it.
func TestSeenNotListed(t *testing.T) {
	s := newSeenImports(t)
	secret, own := filepath.Join(s.src, "file"), filepath.Join(s.src, "z")
	s.must(os.WriteFile(secret, []byte("secret"), 0o600))
	s.must(os.WriteFile(own, []byte("public"), 0o644))
	age()
	s.run("first")
	var err error
	s.from, err = statcache.Open(s.notes, statcache.Key{})
	s.must(err)
	s.to, err = statcache.Create(s.notes, statcache.Key{})
	s.must(err)
	tr, err := openTree(s.src)
	s.must(err)
	defer tr.close()
	tr.inTurn = true
	tr.do = func(fn func() error) error { return fn() }
	tr.opened = func(name string) {
		if name == "file" {
			s.must(os.Rename(own, secret))
		}
	}
	s.kept = 0
	m, err := tr.storeStable(t.Context(), s.store, StoreOptions{Seen: s.begin}, nil)
	s.must(err)
	s.must(s.to.Abort())
	l := openStored(t, s.store, "swapped", m)
	defer func() { s.must(l.Close()) }()
	for _, line := range picture(t, []*Lower{l}) {
		if bytes.Contains([]byte(line), []byte("secret")) {
			t.Error(line)
		}
	}
	if s.kept != 0 {
		t.Errorf("%d files were kept", s.kept)
	}
}
