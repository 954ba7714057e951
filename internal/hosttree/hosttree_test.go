package hosttree

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// deep makes a chain of directories with long names and a file in each, without a path.
func deep(t *testing.T, at string, depth int) {
	t.Helper()
	fd, err := unix.Open(at, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	name := strings.Repeat("d", 200)
	for range depth {
		if err := unix.Mkdirat(fd, name, 0o700); err != nil {
			t.Fatal(err)
		}
		f, err := unix.Openat(fd, "file", unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		next, err := unix.Openat(fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		unix.Close(f)
		unix.Close(fd)
		fd = next
	}
	unix.Close(fd)
}

// limitFiles lets the test have only few more descriptors than it has.
func limitFiles(t *testing.T, more uint64) {
	t.Helper()
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	d, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	now := was
	now.Cur = uint64(len(d)) + more
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &now); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
			t.Error(err)
		}
	})
}

// TestDeep walks and removes a tree that is much deeper than descriptors and paths reach.
func TestDeep(t *testing.T) {
	dir := t.TempDir()
	const depth = 400
	deep(t, dir, depth)
	limitFiles(t, keptLevels+8)
	dirs, files := 0, 0
	err := Walk(context.Background(), dir, func(st *unix.Stat_t) error {
		if st.Mode&unix.S_IFMT == unix.S_IFDIR {
			dirs++
		} else {
			files++
		}
		return nil
	})
	if err != nil || dirs != depth+1 || files != depth {
		t.Errorf("walked over %d directories and %d files, want %d and %d; error %v", dirs, files, depth+1, depth, err)
	}
	if err := RemovePath(filepath.Join(dir, strings.Repeat("d", 200))); err != nil {
		t.Error(err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestRemove removes what is there, of any kind, follows no link, and does not mind what is not there.
func TestRemove(t *testing.T) {
	dir := t.TempDir()
	outside := filepath.Join(dir, "outside")
	for _, d := range []string{outside, filepath.Join(dir, "tree/a/b"), filepath.Join(dir, "tree/c")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{"outside/f", "tree/f", "tree/a/b/f", "plain"} {
		if err := os.WriteFile(filepath.Join(dir, f), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(outside, filepath.Join(dir, "tree/a/link")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"tree", "plain", "nothing"} {
		if err := RemovePath(filepath.Join(dir, name)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Lstat(filepath.Join(dir, name)); !os.IsNotExist(err) {
			t.Errorf("%s is still there: %v", name, err)
		}
	}
	if _, err := os.Stat(filepath.Join(outside, "f")); err != nil {
		t.Errorf("a link was followed: %v", err)
	}
}

// TestWalkMoved walks over a tree from which a part is moved away while the walk is deep in it.
func TestWalkMoved(t *testing.T) {
	dir := t.TempDir()
	deep(t, dir, 40)
	if err := os.MkdirAll(filepath.Join(dir, "z/after"), 0o755); err != nil {
		t.Fatal(err)
	}
	from := filepath.Join(dir, strings.Repeat(strings.Repeat("d", 200)+"/", keptLevels+2))
	const beside = 20 // still to be entered, some of them, in the topmost directory whose descriptor was given up
	for i := range beside {
		if err := os.Mkdir(filepath.Join(from, "../..", strconv.Itoa(i)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	err := Walk(context.Background(), dir, func(*unix.Stat_t) error {
		if n++; n == 2*keptLevels+30+beside {
			return os.Rename(from, filepath.Join(dir, "moved"))
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestRemovePathSlowly has the removal stop in the middle, and go on.
func TestRemovePathSlowly(t *testing.T) {
	top := filepath.Join(t.TempDir(), "top")
	if err := os.Mkdir(top, 0o700); err != nil {
		t.Fatal(err)
	}
	deep(t, top, 3)
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	err := RemovePathSlowly(ctx, top, func() {
		if calls++; calls == 3 {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) || calls != 3 {
		t.Errorf("cancelled at the third name, %d calls: %v", calls, err)
	}
	if err := RemovePathSlowly(t.Context(), top, func() { calls++ }); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(top); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
	if calls < 6 {
		t.Errorf("asked %d times about 6 names", calls)
	}
}
