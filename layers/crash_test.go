package layers

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"snapfs/internal/treewalk"
	"snapfs/squashfs"
)

// TestGroupCutShort opens an upper whose last copy-up of a hard-linked file met a crash before it had linked all names.
func TestGroupCutShort(t *testing.T) {
	r := newRig(t)
	for _, dir := range []string{"d", "d/sub"} {
		if err := r.mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	r.create("a", "text")
	for _, name := range []string{"d/b", "d/sub/c"} {
		if err := r.link("a", name); err != nil {
			t.Fatal(err)
		}
	}
	r.seal()
	if err := r.setattr("d/sub", SetAttr{Valid: SetMtime, Mtime: squashfs.Time{Sec: 1e9}}); err != nil {
		t.Fatal(err)
	}
	before := r.walk()
	if err := r.setattr("a", SetAttr{Valid: SetMode, Mode: 0o600}); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(r.work()); err != nil || len(left) > 0 {
		t.Errorf("a whole copy-up leaves %v, %v in the work directory", left, err)
	}
	for _, cut := range []error{
		os.Link(filepath.Join(r.upper(), "a"), filepath.Join(r.work(), "=#1")),
		os.Remove(filepath.Join(r.upper(), "d/sub/c")),
		unix.UtimesNanoAt(unix.AT_FDCWD, filepath.Join(r.upper(), "d/sub"), []unix.Timespec{{Sec: 1e9}, {Sec: 1e9}}, 0),
	} {
		if cut != nil {
			t.Fatal(cut)
		}
	}
	r.reopen()
	for _, d := range treewalk.Diff(before, r.walk(), treewalk.Options{Ino: true}) {
		t.Error(d)
	}
	if left, err := os.ReadDir(r.work()); err != nil || len(left) > 0 {
		t.Errorf("the work directory holds %v, %v", left, err)
	}
}

// TestRenameOverWhiteouts renames a directory over one that is empty, but of the upper holds whiteouts. The old name
// never has the other directory, where a crash would leave it.
func TestRenameOverWhiteouts(t *testing.T) {
	for _, below := range []bool{false, true} { // whether a layer below has the old name, too
		r := newRig(t)
		for _, dir := range []string{"to", "from"} {
			if err := r.mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		r.create("to/f", "old")
		if !below {
			if err := r.rmdir("from"); err != nil {
				t.Fatal(err)
			}
		}
		r.seal()
		if !below {
			if err := r.mkdir("from", 0o755); err != nil {
				t.Fatal(err)
			}
		}
		r.create("from/g", "new")
		if err := r.unlink("to/f"); err != nil {
			t.Fatal(err)
		}
		fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		if _, err := unix.InotifyAddWatch(fd, r.upper(), unix.IN_MOVED_TO); err != nil {
			t.Fatal(err)
		}
		if err := r.rename("from", "to", 0); err != nil {
			t.Fatal(err)
		}
		if got := movedTo(t, fd); !slices.Equal(got, []string{"to"}) {
			t.Errorf("below %v: the names %q were moved to", below, got)
		}
		for range 2 {
			if got := strings.Join(r.list("to"), " "); got != "g" || r.read("to/g") != "new" {
				t.Errorf("below %v: the directory has %q", below, got)
			}
			if _, err := r.find("from"); !errors.Is(err, unix.ENOENT) {
				t.Errorf("below %v: the old name: %v", below, err)
			}
			r.reopen()
		}
	}
}

// movedTo reads the names of inotify's events.
func movedTo(t *testing.T, fd int) []string {
	t.Helper()
	buf := make([]byte, 4096)
	n, err := unix.Read(fd, buf)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for b := buf[:n]; len(b) > 0; {
		size := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(b[12:]))
		names = append(names, strings.TrimRight(string(b[unix.SizeofInotifyEvent:size]), "\x00"))
		b = b[size:]
	}
	return names
}
