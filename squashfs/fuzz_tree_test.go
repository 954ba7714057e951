package squashfs

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"snapfs/internal/testimage"
)

// keeper is a Sink that keeps the image, up to a size.
type keeper struct{ b []byte }

var errFull = errors.New("sink is full")

func (m *keeper) Write(p []byte) (int, error) {
	if len(m.b)+len(p) > 16<<20 {
		return 0, errFull
	}
	m.b = append(m.b, p...)
	return len(p), nil
}
func (m *keeper) Cut(Cut) error         { return nil }
func (m *keeper) Header(p []byte) error { copy(m.b, p); return nil }

// treeSeeds are whole images of several tools, small enough to be patched all over.
func treeSeeds(f *testing.F) [][]byte {
	f.Helper()
	m := soundModel()
	m.grow()
	seeds := [][]byte{soundModel().build(), m.build()}
	for _, s := range extensionScenarios {
		x := soundModel()
		s.make(x)
		seeds = append(seeds, x.build())
	}
	files, err := filepath.Glob("testdata/trees/*.sqsh")
	if err != nil {
		f.Fatal(err)
	}
	slices.Sort(files)
	for _, file := range files {
		if fi, err := os.Stat(file); err != nil || fi.Size() > 256<<10 {
			continue
		}
		img, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		seeds = append(seeds, img)
	}
	return seeds
}

// FuzzTree makes a workspace of whole images in which anything may be changed. They are refused as corrupt or beyond a
// limit, or what is stored of them is a sound image. It is to be run with a bound on memory (ulimit -v).
func FuzzTree(f *testing.F) {
	seeds := treeSeeds(f)
	for i := range seeds {
		f.Add(uint8(i), []byte{})
		f.Add(uint8(i), []byte{16, 0, 0, 0, 3, 0, 32, 0, 0, 0, 1, 0})
	}
	f.Fuzz(func(t *testing.T, seed uint8, patches []byte) {
		if len(patches) > testimage.MaxPatches {
			return
		}
		img := testimage.Altered(seeds[int(seed)%len(seeds)], patches)
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		im, err := Open(bytes.NewReader(img), int64(len(img)), Options{CacheBytes: 1 << 20})
		if err == nil {
			err = im.Complete()
		}
		if onlyCorrupt(t, err); err != nil {
			return
		}
		out := &keeper{b: make([]byte, HeaderSize)}
		_, err = WriteStore(ctx, out, ImageSource(im), StoreOptions{})
		switch {
		case errors.Is(err, errFull), errors.Is(err, ErrLimit):
			return
		case err != nil:
			onlyCorrupt(t, err)
			return
		}
		for _, v := range violations(t, out.b) {
			t.Fatalf("what was stored of it is unsound: %+v", v)
		}
		if err := readAll(out.b); err != nil {
			t.Fatalf("what was stored of it cannot be read: %v", err)
		}
	})
}
