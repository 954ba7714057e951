package fs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"snapfs/internal/testmount"
	"snapfs/internal/treewalk"
)

// wantUpper checks what the kernel's overlayfs looks for in the file system of an upper, and does without, but for a
// line in its log, where it is missing.
func wantUpper(t *testing.T, dir string) {
	t.Helper()
	file := filepath.Join(dir, "probe")
	tmp, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR, 0o600)
	if err == nil {
		err = unix.Close(tmp)
	}
	for i, err := range []error{
		err,
		os.WriteFile(file, nil, 0o600),
		unix.Setxattr(file, "trusted.overlay.probe", []byte("y"), 0),
		unix.Renameat2(unix.AT_FDCWD, file, unix.AT_FDCWD, file+"2", unix.RENAME_WHITEOUT),
		os.Remove(file),
		os.Remove(file + "2"),
	} {
		if err != nil {
			t.Errorf("step %d of the overlayfs's probe: %v", i, err)
		}
	}
}

// stackOverlay mounts the kernel's overlayfs with upper and work directory in dir.
func stackOverlay(t *testing.T, lower, dir string) (mount string, unmount func()) {
	t.Helper()
	for _, d := range []string{"u", "w"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	mount = t.TempDir()
	opts := fmt.Sprintf("lowerdir=%s,upperdir=%s/u,workdir=%s/w,redirect_dir=on,metacopy=on", lower, dir, dir)
	if err := unix.Mount("overlay", mount, "overlay", 0, opts); err != nil {
		t.Fatalf("mount: %v", err)
	}
	mounted := true
	unmount = func() {
		if mounted {
			mounted = false
			if err := unix.Unmount(mount, 0); err != nil {
				t.Error(err)
				_ = unix.Unmount(mount, unix.MNT_DETACH) // the first error counts
			}
		}
	}
	t.Cleanup(unmount)
	return mount, unmount
}

// TestOverlayOnTop gives a mount to the kernel's overlayfs as its upper, works in it and checks that the same tree is
// there after a seal beneath it, and in a new mount of what was sealed.
func TestOverlayOnTop(t *testing.T) {
	lower := t.TempDir()
	for _, err := range []error{
		os.MkdirAll(lower+"/dir/sub", 0o755),
		os.MkdirAll(lower+"/gone/sub", 0o755),
		os.WriteFile(lower+"/dir/f", []byte("lower f"), 0o644),
		os.WriteFile(lower+"/dir/sub/g", []byte("lower g"), 0o644),
		os.WriteFile(lower+"/gone/x", []byte("x"), 0o644),
		os.WriteFile(lower+"/chmod", []byte("metadata only"), 0o644),
		os.WriteFile(lower+"/moved", []byte("moved"), 0o644),
		os.WriteFile(lower+"/removed", []byte("removed"), 0o644),
		os.WriteFile(lower+"/linked", []byte("linked"), 0o644),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	fs := testmount.Start(t, testmount.Config{})
	first := fs.Upper
	var want []treewalk.Node
	walk := func(dir string) []treewalk.Node {
		t.Helper()
		nodes, err := treewalk.Walk(dir)
		if err != nil {
			t.Fatal(err)
		}
		return nodes
	}
	compare := func(what string, got []treewalk.Node) {
		t.Helper()
		for _, d := range treewalk.Diff(want, got, treewalk.Options{}) {
			t.Errorf("%s: %.300s", what, d)
		}
	}
	wantUpper(t, fs.Dir)
	m, unmount := stackOverlay(t, lower, fs.Dir)
	path := func(name string) string { return filepath.Join(m, name) }
	tmp, err := unix.Open(m, unix.O_TMPFILE|unix.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	for i, err := range []error{
		os.Rename(path("dir"), path("renamed")),
		os.WriteFile(path("renamed/f"), []byte("changed f"), 0o644),
		os.RemoveAll(path("gone")),
		os.Mkdir(path("gone"), 0o755),
		os.WriteFile(path("gone/new"), []byte("opaque"), 0o644),
		os.Chmod(path("chmod"), 0o600),
		os.Rename(path("moved"), path("moved2")),
		os.Remove(path("removed")),
		os.Link(path("linked"), path("linked2")),
		unix.Linkat(tmp, "", unix.AT_FDCWD, path("fromtmp"), unix.AT_EMPTY_PATH),
		unix.Close(tmp),
		unix.Setxattr(path("chmod"), "user.a", []byte("b"), 0),
	} {
		if err != nil {
			t.Fatal(i, err)
		}
	}
	want = walk(m)
	unmount()
	again := func(what, dir string) {
		m, unmount := stackOverlay(t, lower, dir)
		compare(what, walk(m))
		unmount()
	}
	again("mounted again", fs.Dir)
	fs.Seal("frozen")
	again("after a seal", fs.Dir)
	restored := testmount.Start(t, testmount.Config{Sealed: []string{first}})
	again("restored", restored.Dir)
}
