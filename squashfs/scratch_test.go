package squashfs_test

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"snapfs/internal/testsource"
	"snapfs/squashfs"
)

// TestOpenCostsLittle: an image that is opened to look something up costs what it reads, not a block, however many are
// opened: a home opens some dozens for each restore.
func TestOpenCostsLittle(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	src := testsource.Dir(dir)
	out := scratch(t)
	if _, err := squashfs.WriteShip(testContext(t), out, src, squashfs.ShipOptions{BlockSize: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	image, err := os.ReadFile(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	const rounds = 100
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range rounds {
		im, err := squashfs.Open(bytes.NewReader(image), int64(len(image)), squashfs.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := im.Inode(im.Root()); err != nil {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	if got := (after.TotalAlloc - before.TotalAlloc) / rounds; got > 128<<10 {
		t.Errorf("opening an image and reading its root takes %d bytes of memory", got)
	}
}
