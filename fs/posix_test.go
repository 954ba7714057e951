package fs_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/posixtest"

	"snapfs/internal/testmount"
)

// TestPosix runs go-fuse's own suite in every mode: in directories of the upper, of an image below it, of a sealed
// directory below it, and of an upper that was sealed beneath the running mount.
func TestPosix(t *testing.T) {
	for _, mode := range []string{"upper", "image", "sealed", "live"} {
		t.Run(mode, func(t *testing.T) {
			base := openDir(t)
			c := testmount.Config{Dir: filepath.Join(base, "ws"), Mount: filepath.Join(base, "mnt")}
			lower := filepath.Join(base, "lower")
			seed := func(dir string) {
				syscall.Umask(0o022)
				for name := range posixtest.All {
					if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
						t.Fatal(err)
					}
				}
			}
			switch mode {
			case "sealed":
				seed(lower)
				c.Sealed = []string{lower}
			case "image":
				seed(lower)
				image := filepath.Join(base, "image.sqsh")
				run(t, "mksquashfs", lower, image, "-quiet", "-no-progress", "-noI", "-noD", "-noF", "-noX")
				c.Images = []string{image}
			}
			fs := testmount.Start(t, c)
			if len(c.Sealed)+len(c.Images) == 0 {
				seed(fs.Dir)
			}
			if mode == "live" {
				fs.Seal("seeded")
			}
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
					check(t, filepath.Join(fs.Dir, name))
				})
			}
		})
	}
}
