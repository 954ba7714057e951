package fs_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/hanwen/go-fuse/v2/posixtest"

	"snapfs/internal/testmount"
)

// TestPosix runs go-fuse's own suite.
func TestPosix(t *testing.T) {
	fs := testmount.Start(t, testmount.Config{})
	for name, check := range posixtest.All {
		t.Run(name, func(t *testing.T) {
			switch name {
			case "FcntlFlockLocksFile":
				t.Skip("wants a process to conflict with its own POSIX locks; ext4 fails it as well")
			case "OpenSymlinkRace":
				if os.Getenv("SNAPFS_LONG") == "" {
					t.Skip("takes ten seconds and more: SNAPFS_LONG=1")
				}
			}
			dir := filepath.Join(fs.Dir, name)
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			check(t, dir)
		})
	}
}
