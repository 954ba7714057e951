package hosttree

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestOpenFollowsNoLink: neither a link nor a link of /proc leads anywhere, whatever the kernel's system calls.
func TestOpenFollowsNoLink(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	in := func(name string) string { return filepath.Join(top, name) }
	held, err := os.Open(top)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close() //nolint:errcheck // read only
	magic := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), held.Fd())
	if err := errors.Join(os.Mkdir(in("dir"), 0o755), os.WriteFile(in("dir/file"), nil, 0o644),
		os.Symlink("dir", in("link")), os.Symlink("dir/file", in("filelink")), os.Symlink(magic, in("magic")),
	); err != nil {
		t.Fatal(err)
	}
	const dir = unix.O_PATH | unix.O_DIRECTORY
	for _, c := range []struct {
		path  string
		flags int
		good  bool
	}{
		{"/", dir, true},
		{in("dir"), dir, true},
		{in("dir/file"), unix.O_RDONLY, true},
		{in("link"), dir, false},
		{in("link/file"), unix.O_RDONLY, false},
		{in("filelink"), unix.O_RDONLY, false},
		{in("magic"), dir, false},
		{in("magic/dir/file"), unix.O_RDONLY, false},
		{magic, dir, false},
		{magic + "/dir", dir, false},
	} {
		f, err := Open(c.path, c.flags)
		if err == nil {
			err = f.Close()
		}
		if (err == nil) != c.good {
			t.Errorf("Open(%s): %v", c.path, err)
		}
		fd, err := openSteps(c.path, c.flags|unix.O_NOFOLLOW|unix.O_CLOEXEC)
		if err == nil {
			err = unix.Close(fd)
		}
		if (err == nil) != c.good {
			t.Errorf("openSteps(%s): %v", c.path, err)
		}
	}
	if err := errors.Join(Mkdir(in("new"), 0o755), Rmdir(in("new"))); err != nil {
		t.Error(err)
	}
	if Mkdir(in("magic/new"), 0o755) == nil || Mkdir(in("link/new"), 0o755) == nil {
		t.Error("a directory was made through a link")
	}
	if err := os.Mkdir(in("dir/new"), 0o755); err != nil {
		t.Fatal(err)
	}
	if Rmdir(in("magic/dir/new")) == nil || Rmdir(in("link/new")) == nil {
		t.Error("a directory was removed through a link")
	}
}
