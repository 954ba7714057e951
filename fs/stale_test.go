package fs_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"snapfs/internal/testmount"
)

// TestStaleHandle holds that the handle of a removed file never opens another one to which the host has given its
// inode.
func TestStaleHandle(t *testing.T) {
	m := testmount.Start(t, testmount.Config{})
	dir, err := unix.Open(m.Dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(dir)
	reused := 0
	for range 20 {
		old := filepath.Join(m.Dir, "old")
		if err := os.WriteFile(old, []byte("old"), 0o600); err != nil {
			t.Fatal(err)
		}
		h, _, err := unix.NameToHandleAt(unix.AT_FDCWD, old, 0)
		if err != nil {
			t.Fatal(err)
		}
		var was unix.Stat_t
		if err := errors.Join(unix.Lstat(old, &was), os.Remove(old)); err != nil {
			t.Fatal(err)
		}
		for range 50 { // until the host uses the inode again, which it may do once the kernel has forgotten it
			other, err := os.CreateTemp(m.Dir, "other")
			if err != nil {
				t.Fatal(err)
			}
			var is unix.Stat_t
			err = unix.Fstat(int(other.Fd()), &is)
			fd, herr := unix.OpenByHandleAt(dir, h, unix.O_RDONLY)
			if herr == nil {
				t.Errorf("the handle of a removed file opens inode %d, which was %d", is.Ino, was.Ino)
				_ = unix.Close(fd)
			} else if !errors.Is(herr, unix.ESTALE) {
				t.Errorf("got %v, want ESTALE", herr)
			}
			if err := errors.Join(err, other.Close()); err != nil {
				t.Fatal(err)
			}
			if is.Ino == was.Ino {
				reused++
				break
			}
		}
	}
	t.Logf("%d inodes were used again", reused)
}
