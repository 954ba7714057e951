package e2e

import (
	"io/fs"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestEmptyHome: a home with an empty workspace takes less than 2 MB of the disk while its daemon runs.
func TestEmptyHome(t *testing.T) {
	h := newHome(t)
	h.ok("create", "app")
	taken := int64(0)
	if err := filepath.WalkDir(h.dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		err = unix.Lstat(path, &st)
		taken += st.Blocks * 512
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if taken >= 2e6 {
		t.Errorf("an empty home takes %d bytes", taken)
	}
}
