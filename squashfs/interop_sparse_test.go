package squashfs_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"snapfs/squashfs"
)

// sparseImage was made by mksquashfs 4.5.1 from what sparseFile describes, as TestReadHugeSparse does in long runs:
// reading 2.5 GiB of holes takes it many seconds.
const sparseImage = "../testdata/images/mksquashfs-sparse.sqsh"

// sparseFile is a file of 2.5 GiB with data in few places.
type sparseFile struct{}

const sparseSize = 5<<29 + 12345

var (
	sparsePlaces = []int64{0, 1 << 30, 1<<31 - 5000, 1<<31 + 70000, sparseSize - 4000}
	sparseData   = []byte(strings.Repeat("data in a hole ", 400))
)

func (sparseFile) ReadAt(p []byte, off int64) (int, error) {
	n := int(min(int64(len(p)), sparseSize-off))
	clear(p[:n])
	for _, at := range sparsePlaces {
		for i := max(at, off); i < min(at+int64(len(sparseData)), off+int64(n)); i++ {
			p[i-off] = sparseData[i-at]
		}
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// TestReadHugeSparse reads a file of more than 2 GiB.
func TestReadHugeSparse(t *testing.T) {
	readSparse(t, sparseImage)
	if !long() {
		return
	}
	src, img := t.TempDir(), filepath.Join(t.TempDir(), "img.sqsh")
	f, err := os.Create(filepath.Join(src, "sparse"))
	must(t, err)
	must(t, f.Truncate(sparseSize))
	for _, off := range sparsePlaces {
		_, err := f.WriteAt(sparseData[:min(int64(len(sparseData)), sparseSize-off)], off)
		must(t, err)
	}
	must(t, f.Close())
	run(t, "mksquashfs", src, img, "-noappend", "-no-progress", "-quiet", "-comp", "zstd")
	readSparse(t, img)
}

func readSparse(t *testing.T, img string) {
	t.Helper()
	sound(t, img)
	im := openImage(t, img)
	root, err := im.Inode(im.Root())
	must(t, err)
	e, err := root.Lookup("sparse")
	must(t, err)
	n, err := im.Inode(e.Ref)
	must(t, err)
	extents, err := n.Extents()
	must(t, err)
	want := []squashfs.Extent{
		{Off: 0, Len: 128 << 10},
		{Off: 1 << 30, Len: 128 << 10},
		{Off: 1<<31 - 128<<10, Len: 256 << 10},
		{Off: 5 << 29, Len: 12345},
	}
	if n.Attr().Size != sparseSize || !slices.Equal(extents, want) {
		t.Errorf("size %d, extents %v, want %v", n.Attr().Size, extents, want)
	}
	rng := rand.New(rand.NewPCG(7, 8))
	a, b := make([]byte, 300<<10), make([]byte, 300<<10)
	for i := range 300 {
		off := rng.Int64N(sparseSize)
		if i%2 == 0 {
			off = min(max(sparsePlaces[i/2%len(sparsePlaces)]+rng.Int64N(400<<10)-200<<10, 0), sparseSize-1)
		}
		p := 1 + rng.IntN(len(a))
		k, werr := sparseFile{}.ReadAt(a[:p], off)
		m, gerr := n.ReadAt(b[:p], off)
		if k != m || !errors.Is(gerr, werr) || !bytes.Equal(a[:k], b[:m]) {
			t.Fatalf("%d bytes at %d: got %d, %v, want %d, %v", p, off, m, gerr, k, werr)
		}
	}
}
