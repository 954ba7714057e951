package uppers

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestKeepApart checks that a home's uppers are kept apart on ext4, and that other hosts do without.
func TestKeepApart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "uppers")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	keepApart(dir)
	keepApart(dir)
	keepApart(filepath.Join(dir, "missing"))
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		t.Fatal(err)
	}
	if fs.Type != unix.EXT4_SUPER_MAGIC {
		t.Logf("the host is %#x, not ext4: nothing to see", fs.Type)
		return
	}
	d, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close() //nolint:errcheck // read only
	flags, err := unix.IoctlGetInt(int(d.Fd()), unix.FS_IOC_GETFLAGS)
	if err != nil || flags&topDirFlag == 0 {
		t.Errorf("flags are %#x, %v", flags, err)
	}
}
