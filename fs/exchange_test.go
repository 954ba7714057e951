package fs_test

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"snapfs/internal/testmount"
	"snapfs/internal/treewalk"
	"snapfs/internal/twin"
)

// TestUppersAreExchanged takes an upper that snapfs wrote, by random operations over a lower, to the kernel's
// overlayfs, and one that the kernel wrote to snapfs: both show the same tree.
func TestUppersAreExchanged(t *testing.T) {
	steps := 1500
	if os.Getenv("SNAPFS_LONG") != "" {
		steps = 60000
	}
	for seed := range uint64(3) {
		base := openDir(t)
		lower := filepath.Join(base, "lower")
		make := func(name string) string {
			dir := filepath.Join(base, name)
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			return dir
		}
		work := func(dir string, seed uint64, n int) {
			a := twin.Start(t, twin.Config{Tested: dir, Seed: seed})
			a.Steps(n)
			a.Stop()
		}
		work(make("lower"), 100+seed, 400)
		run(t, "find", lower, "!", "-type", "f", "!", "-type", "d", "!", "-type", "l", "-delete")
		kernel := func(dir string, do func(mnt string)) {
			mnt := make("kernel")
			opts := "lowerdir=" + lower + ",upperdir=" + dir + "/upper,workdir=" + dir + "/work" +
				",redirect_dir=on,metacopy=on,index=on"
			if err := unix.Mount("overlay", mnt, "overlay", 0, opts); err != nil {
				t.Fatal("mount: ", err)
			}
			defer func() {
				if err := unix.Unmount(mnt, 0); err != nil {
					_ = unix.Unmount(mnt, unix.MNT_DETACH)
					t.Fatal(err)
				}
			}()
			do(mnt)
		}
		snapfs := func(dir string, do func(fs *testmount.FS)) {
			fs := testmount.Start(t, testmount.Config{Dir: dir, Sealed: []string{lower}, Mount: make("snapfs")})
			do(fs)
			fs.Stop()
		}
		walk := func(dir string) []treewalk.Node {
			nodes, err := treewalk.Walk(dir)
			if err != nil {
				t.Fatal(err)
			}
			return nodes
		}
		same := func(what string, a, b []treewalk.Node) {
			diff := treewalk.Diff(a, b, treewalk.Options{IgnoreExtents: true})
			for _, d := range diff[:min(len(diff), 10)] {
				t.Errorf("seed %d: %s: %.300s", seed, what, d)
			}
		}
		var wrote []treewalk.Node
		ours, theirs := make("ours"), make("theirs")
		make("theirs/upper")
		make("theirs/work")
		snapfs(ours, func(fs *testmount.FS) {
			work(fs.Dir, seed, steps)
			wrote = walk(fs.Dir)
		})
		kernel(ours, func(mnt string) { same("what snapfs wrote, shown by snapfs and by the kernel", wrote, walk(mnt)) })
		kernel(theirs, func(mnt string) {
			work(mnt, seed, steps)
			wrote = walk(mnt)
		})
		snapfs(theirs, func(fs *testmount.FS) {
			same("what the kernel wrote, shown by the kernel and by snapfs", wrote, walk(fs.Dir))
			work(fs.Dir, seed+50, 300) // and it can be written on
		})
	}
}
