package fs_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"snapfs/internal/testmount"
)

// smallDisk mounts an ext4 of its own.
func smallDisk(t *testing.T, size int64, options ...string) string {
	t.Helper()
	base := t.TempDir()
	disk, image := filepath.Join(base, "disk"), filepath.Join(base, "disk.img")
	for _, err := range []error{os.Mkdir(disk, 0o755), os.WriteFile(image, nil, 0o600), os.Truncate(image, size)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	run(t, "mkfs.ext4", append(append([]string{"-q", "-m", "0"}, options...), image)...)
	run(t, "mount", "-o", "loop", image, disk)
	t.Cleanup(func() { run(t, "umount", disk) })
	return disk
}

// TestHostLimits checks that what the host refuses is refused with the host's errno, and that statfs is the host's.
func TestHostLimits(t *testing.T) {
	home := filepath.Join(smallDisk(t, 32<<20, "-N", "256", "-b", "4096"), "ws")
	lower := t.TempDir()
	if err := os.WriteFile(filepath.Join(lower, "low"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	// As many links as ext4 has, made without the detour.
	if err := os.MkdirAll(filepath.Join(home, "upper"), 0o755); err != nil {
		t.Fatal(err)
	}
	first := filepath.Join(home, "upper", "l0")
	if err := os.WriteFile(first, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	const maxLinks = 65000
	for i := 1; i < maxLinks; i++ {
		if err := os.Link(first, filepath.Join(home, "upper", fmt.Sprintf("l%d", i))); err != nil {
			t.Fatal(err)
		}
	}
	fs := testmount.Start(t, testmount.Config{Dir: home, Sealed: []string{lower}})
	path := func(name string) string { return filepath.Join(fs.Dir, name) }
	want := func(what string, err error, errno syscall.Errno) {
		t.Helper()
		if !errors.Is(err, errno) {
			t.Errorf("%s: got %v, want %v", what, err, errno)
		}
	}
	want("one link too many", os.Link(path("l0"), path("more")), syscall.EMLINK)
	if err := os.Remove(path("l1")); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(path("l0"), path("more")); err != nil {
		t.Errorf("link when there is room: %v", err)
	}
	want("truncate beyond the host's largest file", os.Truncate(path("low"), 1<<45), syscall.EFBIG)
	f, err := os.OpenFile(path("l0"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt([]byte("x"), 1<<45)
	want("write beyond it", err, syscall.EFBIG)
	want("allocate beyond it", unix.Fallocate(int(f.Fd()), 0, 1<<45, 1), syscall.EFBIG)
	want("allocate more than there is", unix.Fallocate(int(f.Fd()), 0, 0, 1<<30), syscall.ENOSPC)
	// What could be allocated stays, as on the host. The directory may need a block for its next name.
	if err := errors.Join(f.Truncate(0), f.Close()); err != nil {
		t.Error(err)
	}
	want("name of 256 bytes", os.Symlink("x", path(strings.Repeat("n", 256))), syscall.ENAMETOOLONG)

	// The host may write back and commit between the two.
	var here, host unix.Statfs_t
	for range 100 {
		if err := errors.Join(unix.Statfs(fs.Dir, &here), unix.Statfs(home, &host)); err != nil {
			t.Fatal(err)
		}
		if here.Bfree == host.Bfree && here.Bavail == host.Bavail {
			break
		}
	}
	if here.Blocks != host.Blocks || here.Bfree != host.Bfree || here.Bavail != host.Bavail || here.Files != host.Files ||
		here.Ffree != host.Ffree || here.Bsize != host.Bsize || here.Namelen != 255 {
		t.Errorf("statfs %+v, the host's %+v", here, host)
	}
	for i := 0; ; i++ { // no more inodes
		if err = os.WriteFile(path(fmt.Sprintf("f%d", i)), nil, 0o644); err != nil || i > 300 {
			break
		}
	}
	want("the last inode is taken", err, syscall.ENOSPC)
	if err := os.Remove(path("f0")); err != nil {
		t.Fatal(err)
	}
}
