package squashfs_test

import (
	"bytes"
	"math/rand/v2"
	"os"
	"testing"

	"snapfs/internal/treewalk"
	"snapfs/squashfs"
)

func TestStoreRoundTrip(t *testing.T) {
	root := makeOddTree(t)
	want, err := treewalk.Walk(root)
	must(t, err)
	file, sink := store(t, squashfs.DirSource(root))

	t.Run("own reader", func(t *testing.T) {
		got, err := walkImage(openImage(t, file))
		must(t, err)
		sameTree(t, want, got, exact)
	})
	t.Run("kernel", func(t *testing.T) {
		got, err := treewalk.Walk(mountImage(t, file))
		must(t, err)
		sameTree(t, want, got, plain)
	})
	t.Run("unsquashfs", func(t *testing.T) {
		dir := t.TempDir() + "/out"
		run(t, "unsquashfs", "-no-progress", "-quiet", "-d", dir, file)
		got, err := treewalk.Walk(dir)
		must(t, err)
		sameTree(t, want, got, plain)
	})
	t.Run("rewritten", func(t *testing.T) {
		again, _ := store(t, squashfs.ImageSource(openImage(t, file)))
		sameBytes(t, file, again)
	})
	t.Run("shuffled", func(t *testing.T) {
		again, cuts := store(t, shuffled{squashfs.DirSource(root), rand.New(rand.NewPCG(3, 4))})
		sameBytes(t, file, again)
		if len(cuts.cuts) != len(sink.cuts) {
			t.Errorf("%d cuts, want %d", len(cuts.cuts), len(sink.cuts))
		}
	})
}

func sameBytes(t testing.TB, a, b string) {
	t.Helper()
	x, err := os.ReadFile(a)
	must(t, err)
	y, err := os.ReadFile(b)
	must(t, err)
	if !bytes.Equal(x, y) {
		i := 0
		for i < min(len(x), len(y)) && x[i] == y[i] {
			i++
		}
		t.Errorf("images of %d and %d bytes differ at %d", len(x), len(y), i)
	}
}
