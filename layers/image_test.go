package layers

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"snapfs/internal/testimage"
)

// openForeign makes an image of a directory with mksquashfs and opens it.
func openForeign(t *testing.T, dir string, args ...string) *Lower {
	t.Helper()
	file := filepath.Join(t.TempDir(), "image.sqsh")
	cmd := exec.CommandContext(t.Context(), "mksquashfs", append([]string{dir, file, "-quiet", "-no-progress"}, args...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("mksquashfs: %v: %s", err, out)
	}
	f, err := testimage.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	l, err := OpenImage("foreign", f, 0)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestForeignRootNumber checks that the overlay's root shares its number with no inode of an image of another tool,
// which counts from 1 in an order of its own.
func TestForeignRootNumber(t *testing.T) {
	src := t.TempDir()
	if err := os.MkdirAll(filepath.Join(src, "tree/sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(src, "tree/file"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	r := newRigOver(t, openForeign(t, src))
	seen := map[uint64]string{}
	for _, n := range r.walk() { // it also compares listed numbers with those of stat
		if other, ok := seen[n.Ino]; ok {
			t.Errorf("%s and %s are both inode %d", other, n.Path, n.Ino)
		}
		seen[n.Ino] = n.Path
	}
	if len(seen) != 4 {
		t.Errorf("%d inodes, want 4", len(seen))
	}
}

// TestStoreImage checks that a foreign image becomes a plain tree, whatever in it looks like a part of an overlay.
func TestStoreImage(t *testing.T) {
	dir := sampleTree(t)
	im := openForeign(t, dir, "-xattrs")
	s := openStore(t)
	m, err := StoreImage(t.Context(), s, im.image.im, StoreOptions{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := im.Close(); err != nil {
		t.Error(err)
	}
	r := newRigOver(t, openStored(t, s, "base", m))
	if a := r.attr("wh"); a.Mode&unix.S_IFMT != unix.S_IFCHR || a.Rdev != 0 {
		t.Errorf("device 0/0 came out as %o", a.Mode)
	}
	err = r.on("d", func(n NodeID) error {
		v, err := r.o.GetXattr(n, xattrOpaque)
		if string(v) != "y" {
			t.Errorf("trusted.overlay.opaque is %q", v)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	seen := map[uint64]string{}
	for _, n := range r.walk() {
		if other, ok := seen[n.Ino]; ok && n.Group == "" {
			t.Errorf("%s and %s are both inode %d", other, n.Path, n.Ino)
		}
		seen[n.Ino] = n.Path
	}
}
