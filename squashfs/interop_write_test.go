package squashfs_test

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/internal/testsource"
	"snapfs/internal/treewalk"
	"snapfs/squashfs"
)

// TestOthersRead has squashfuse and rdsquashfs read what this package writes; kernel and unsquashfs do so in
// the tests of the writers.
func TestOthersRead(t *testing.T) {
	root := makeTree(t)
	dropEmptyXattrs(t, root) // squashfuse lists them, but cannot read them
	want, err := treewalk.Walk(root)
	must(t, err)
	file, _ := store(t, testsource.Dir(root))
	images := map[string]string{
		"store": file,
		"zstd":  ship(t, testsource.Dir(root), squashfs.ShipOptions{Compression: "zstd"}),
		"gzip": ship(t, testsource.Dir(root),
			squashfs.ShipOptions{Compression: "gzip", BlockSize: 4096, Exportable: true}),
	}
	if long() {
		images["lz4"] = ship(t, testsource.Dir(root), squashfs.ShipOptions{Compression: "lz4", BlockSize: 1 << 20})
		images["xz"] = ship(t, testsource.Dir(root), squashfs.ShipOptions{Compression: "xz", NoFragments: true})
		images["none"] = ship(t, testsource.Dir(root), squashfs.ShipOptions{Compression: "none"})
	}
	for name, img := range images {
		t.Run("squashfuse/"+name, func(t *testing.T) {
			got, err := treewalk.Walk(mountFuse(t, img))
			must(t, err)
			// Its version 0.1.104 takes trusted for security and the other way round, and numbers hard links apart.
			sameTree(t, want, got,
				treewalk.Options{IgnoreExtents: true, IgnoreNlink: true, DropXattr: func(name string) bool {
					return !strings.HasPrefix(name, "user.")
				}})
		})
		if name != "store" && !long() {
			continue
		}
		t.Run("rdsquashfs/"+name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "out")
			run(t, "rdsquashfs", "-u", "/", "-p", out, "-X", "-T", "-C", "-O", "-q", img)
			got, err := treewalk.Walk(out)
			must(t, err)
			// It makes no hard links, and sets directories' times before it fills them.
			sameTree(t, want, got,
				treewalk.Options{IgnoreExtents: true, IgnoreNlink: true, IgnoreRoot: true, IgnoreDirMtime: true})
		})
	}
}

// mountFuse mounts an image by squashfuse for the time of the test.
func mountFuse(t testing.TB, img string) string {
	t.Helper()
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	cmd := exec.CommandContext(ctx, "squashfuse", "-f", img, dir)
	cmd.WaitDelay = 5 * time.Second
	must(t, cmd.Start())
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount: %v", err)
		}
		cancel()
		_ = cmd.Wait() // it was killed
	})
	var before, now unix.Stat_t
	must(t, unix.Stat(filepath.Dir(dir), &before))
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if err := unix.Stat(dir, &now); err == nil && now.Dev != before.Dev {
			return dir
		}
	}
	t.Fatal("squashfuse does not mount")
	return ""
}
