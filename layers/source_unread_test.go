package layers

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/internal/statcache"
)

// unreadScene is a source that is looked at with the rights of another user.
func unreadScene(t *testing.T, fill func(dir string)) *sourceScene {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root, to act for another user")
	}
	s := &sourceScene{t: t, dir: t.TempDir(), copies: filepath.Join(t.TempDir(), "copies")}
	if err := os.Chmod(filepath.Dir(s.dir), 0o711); err != nil {
		t.Fatal(err)
	}
	fill(s.dir)
	low, err := OpenSource("source", s.dir, SourceOptions{Copies: s.copies, Do: func(fn func() error) error {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		_ = unix.Setfsuid(4321)
		defer func() { _ = unix.Setfsuid(0) }()
		return fn()
	}})
	if err != nil {
		t.Fatal(err)
	}
	s.low = low
	return s
}

// notesKept are Seen that count.
type notesKept struct {
	mu    sync.Mutex
	notes map[statcache.File][]byte
	kept  int
}

func (n *notesKept) Len() int { return 0 }

func (n *notesKept) Find(f statcache.File) ([]byte, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	note, ok := n.notes[f]
	return note, ok
}

func (n *notesKept) Note(f statcache.File, note []byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.notes[f] = note
}

func (n *notesKept) Keep(statcache.File, []byte) { n.kept++ }

// TestSourceUnreadable has an import meet what may not be read: it tells of all, has read the rest, and ends once that can
// be read.
func TestSourceUnreadable(t *testing.T) {
	s := unreadScene(t, func(dir string) {
		for _, name := range []string{"a/f", "d/secret", "locked/x", "z"} {
			writeHost(t, filepath.Join(dir, name), name)
		}
		for _, name := range []string{"d/secret", "locked"} {
			if err := os.Chmod(filepath.Join(dir, name), 0); err != nil {
				t.Fatal(err)
			}
		}
		old := time.Now().Add(-time.Hour)
		if err := os.Chtimes(filepath.Join(dir, "z"), old, old); err != nil {
			t.Fatal(err)
		}
	})
	defer s.close()
	time.Sleep(clockTick + steady) // younger files are not noted
	store := openStore(t)
	n := &notesKept{notes: map[statcache.File][]byte{}}
	opts := StoreOptions{Seen: func(uint64, uint64) Seen { return n }}
	_, err := StoreSource(t.Context(), store, s.low, opts, storeNothing)
	var u *Unreadable
	if !errors.As(err, &u) || !errors.Is(err, unix.EACCES) || u.Count != 2 || !slices.Equal(u.Paths, []string{"d/secret", "locked"}) {
		t.Fatalf("stored with %v, want what cannot be read", err)
	}
	if s.low.source.host.exact && len(n.notes) != 2 {
		t.Errorf("noted %v, want the files that can be read", n.notes)
	}
	for _, name := range []string{"d/secret", "locked"} {
		if err := os.Chmod(filepath.Join(s.dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := StoreSource(t.Context(), store, s.low, opts, storeNothing); err != nil {
		t.Fatal(err)
	}
	if s.low.source.host.exact && (n.kept != 2 || len(n.notes) < 3) {
		t.Errorf("%d files were not read again, and %d noted", n.kept, len(n.notes))
	}
}

// TestSourceLog imports a log that a program has open and appends to all the time: that ends, with the beginning of it,
// and tells.
func TestSourceLog(t *testing.T) {
	s := newSourceScene(t, func(dir string) {
		writeHost(t, filepath.Join(dir, "log"), "0\n")
		writeHost(t, filepath.Join(dir, "other"), "other")
	})
	defer s.close()
	var told []string
	s.low.source.opts.Rough = func(path string) { told = append(told, path) }
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	written := "0\n"
	s.low.source.hasty = true
	s.low.source.onCopy = func() {
		written += "line\n"
		if _, err := log.WriteString("line\n"); err != nil {
			t.Error(err)
		}
	}
	s.low.source.files[mustIno(t, s.dir, "log")] = sourceFile{pass: 1} // a program has seen it since the first pass took it
	s.low.source.walk.again = map[uint64]bool{mustIno(t, s.dir, "log"): true}
	store := openStore(t)
	im := s.image(store)
	o, err := New("", "", []*Lower{im}, Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = o.Close() }()
	got := readNode(t, o, at(t, o, "log").Node)
	if !strings.HasPrefix(written, got) || !strings.HasPrefix(got, "0\nline\n") || !slices.Equal(told, []string{"log"}) {
		t.Errorf("the image has %q of %q, told %q", got, written, told)
	}
}

// TestSourceUnsettled has a file change at each copy: an import is begun anew so many times, and no more.
func TestSourceUnsettled(t *testing.T) {
	s := newSourceScene(t, func(dir string) {
		writeHost(t, filepath.Join(dir, "log"), "0\n")
	})
	defer s.close()
	w := &s.low.source.walk
	passes := 0
	s.low.source.onCopy = func() {
		passes++
		path := filepath.Join(s.dir, "log")
		if err := os.Truncate(path, 0); err != nil {
			t.Error(err)
		}
		s.low.source.mu.Lock()
		w.unset = nil // it is left for the next pass, each time
		s.low.source.mu.Unlock()
	}
	w.again = map[uint64]bool{mustIno(t, s.dir, "log"): true}
	s.low.source.hasty = true
	_, err := StoreSource(t.Context(), openStore(t), s.low, StoreOptions{}, storeNothing)
	if !errors.Is(err, errUnsettled) || !strings.Contains(err.Error(), `"log"`) {
		t.Errorf("stored with %v", err)
	}
	if most := mostPasses * unsetTries; passes != most {
		t.Errorf("copied %d times, want %d", passes, most)
	}
}

func mustIno(t *testing.T, dir, name string) uint64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(filepath.Join(dir, name), &st); err != nil {
		t.Fatal(err)
	}
	return st.Ino
}
