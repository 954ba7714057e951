package treewalk

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	Child()
	os.Exit(m.Run())
}

func build(t *testing.T, dir string) {
	t.Helper()
	for _, err := range []error{
		os.Mkdir(filepath.Join(dir, "d"), 0o750),
		os.WriteFile(filepath.Join(dir, "d/f"), []byte("contents"), 0o640),
		os.Link(filepath.Join(dir, "d/f"), filepath.Join(dir, "a")),
		os.Symlink("/nowhere", filepath.Join(dir, "l")),
		unix.Lsetxattr(filepath.Join(dir, "l"), "trusted.x", []byte("y"), 0),
		unix.Mknod(filepath.Join(dir, "null"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))),
		os.WriteFile(filepath.Join(dir, "sparse"), nil, 0o600),
		os.Truncate(filepath.Join(dir, "sparse"), 1<<20),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range []string{"d/f", "l", "null", "sparse", "d", "."} {
		ts := []unix.Timespec{{Sec: 5, Nsec: 6}, {Sec: 7, Nsec: 8}}
		if err := unix.UtimesNanoAt(unix.AT_FDCWD, filepath.Join(dir, p), ts, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			t.Fatal(err)
		}
	}
}

func TestWalkAndDiff(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	build(t, a)
	build(t, b)
	wa, err := Walk(a)
	if err != nil {
		t.Fatal(err)
	}
	wb, err := WalkApart(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	if d := Diff(wa, wb, Options{}); len(d) > 0 {
		t.Fatalf("equal trees differ: %q", d)
	}
	if got := wa[1]; got.Path != "a" || got.Group != "a" || got.Mtime != (Time{7, 8}) {
		t.Errorf("got %v", got)
	}
	changes := map[string]func(string) error{
		"mode":     func(d string) error { return os.Chmod(d+"/d", 0o700) },
		"owner":    func(d string) error { return os.Lchown(d+"/l", 3, 4) },
		"contents": func(d string) error { return os.WriteFile(d+"/a", []byte("CONTENTS"), 0) },
		"xattr":    func(d string) error { return unix.Lsetxattr(d+"/l", "trusted.x", []byte("z"), 0) },
		"link":     func(d string) error { return os.Remove(d + "/a") },
		"new":      func(d string) error { return os.Mkdir(d+"/new", 0) },
		"extent":   func(d string) error { return os.WriteFile(d+"/sparse", make([]byte, 1<<20), 0) },
		"time": func(d string) error {
			return unix.UtimesNanoAt(unix.AT_FDCWD, d+"/null", []unix.Timespec{{Sec: 5}, {Sec: 7, Nsec: 9}}, 0)
		},
	}
	for name, change := range changes {
		c := t.TempDir()
		build(t, c)
		if err := change(c); err != nil {
			t.Fatal(err)
		}
		wc, err := Walk(c)
		if err != nil {
			t.Fatal(err)
		}
		if len(Diff(wa, wc, Options{})) == 0 {
			t.Errorf("%s: change not seen", name)
		}
	}
}
