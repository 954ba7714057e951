package squashfs_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"golang.org/x/sys/unix"

	"snapfs/squashfs"
)

// TestFS runs the io/fs conformance test and looks at what it does not know: symlinks and Sys.
func TestFS(t *testing.T) {
	root := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(root, "a/b"), 0o755))
	must(t, os.Mkdir(filepath.Join(root, "no\xffutf8"), 0o755))
	must(t, os.WriteFile(filepath.Join(root, "a/b/file"), []byte("data"), 0o644))
	must(t, os.WriteFile(filepath.Join(root, "a/empty"), nil, 0o644))
	for name, target := range map[string]string{
		"rel": "a/b", "abs": "/a/b/file", "up": "a/../../../a/b/file", "loop": "loop", "chain": "rel/file",
		"gone": "nowhere",
	} {
		must(t, os.Symlink(target, filepath.Join(root, name)))
	}
	img := filepath.Join(t.TempDir(), "img.sqsh")
	run(t, "mksquashfs", root, img, "-noappend", "-no-progress", "-quiet")
	fsys := openImage(t, img).FS()
	sub, err := fs.Sub(fsys, "a")
	must(t, err)
	if err := fstest.TestFS(sub, "b/file", "empty"); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"abs", "up", "chain", "a/b/file", "rel/file"} {
		if b, err := fs.ReadFile(fsys, name); err != nil || string(b) != "data" {
			t.Errorf("%s: got %q, %v", name, b, err)
		}
	}
	if _, err := fs.Stat(fsys, "loop"); !errors.Is(err, unix.ELOOP) {
		t.Errorf("loop: %v", err)
	}
	for _, name := range []string{"gone", "b", "a/b/nothing"} {
		if _, err := fs.Stat(fsys, name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if target, err := fs.ReadLink(fsys, "up"); err != nil || target != "a/../../../a/b/file" {
		t.Errorf("up: %q, %v", target, err)
	}
	must(t, fs.WalkDir(fsys, ".", func(_ string, _ fs.DirEntry, err error) error { return err }))
	info, err := fs.Lstat(fsys, "loop")
	must(t, err)
	if n, ok := info.Sys().(*squashfs.Inode); !ok || info.Mode()&fs.ModeSymlink == 0 ||
		n.Attr().Mode&unix.S_IFMT != unix.S_IFLNK {
		t.Errorf("loop is %v of %T", info, info.Sys())
	}
}
