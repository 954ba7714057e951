package layers

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/chunkstore"
)

// storeTree stores a directory and opens the image as the only lower of an overlay.
func storeTree(t *testing.T, s *chunkstore.Store, dir string) *rig {
	t.Helper()
	m, err := StoreTree(t.Context(), s, dir, StoreOptions{NoSync: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return newRigOver(t, openStored(t, s, "base", m))
}

// freeze seals, stores the layer and puts its image in its place.
func (r *rig) freeze(s *chunkstore.Store) (chunkstore.Manifest, time.Duration) {
	r.t.Helper()
	l := r.seal()
	start := time.Now()
	m, err := Store(r.t.Context(), s, l, r.lowers[1:], StoreOptions{}, nil)
	took := time.Since(start)
	if err != nil {
		r.t.Fatal(err)
	}
	r.lowers[0] = openStored(r.t, s, l.Key(), m)
	if err := errors.Join(r.o.Replace(r.lowers[0]), l.Close()); err != nil {
		r.t.Fatal(err)
	}
	return m, took
}

// TestBlockHugeFile writes one page of a file of 10 GB that lies in a chunk store.
func TestBlockHugeFile(t *testing.T) {
	const size = 10 << 30
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, "huge"))
	if err != nil {
		t.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	data := randomData(rnd, 2<<20)
	stretch := int64(640 << 20)
	if os.Getenv("SNAPFS_LONG") == "1" {
		stretch = 2 << 20 // data everywhere
	}
	for off := int64(0); off < size; off += stretch {
		if _, err := f.WriteAt(data, off); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(f.Truncate(size), f.Close()); err != nil {
		t.Fatal(err)
	}
	s := openStore(t)
	r := storeTree(t, s, dir)
	if err := os.Remove(filepath.Join(dir, "huge")); err != nil {
		t.Fatal(err)
	}
	e, err := r.find("huge")
	if err != nil {
		t.Fatal(err)
	}
	page := randomData(rnd, 4096)
	places := []int64{3 * stretch / 2 &^ 0xFFF, 2*stretch + 8192, size - 5000}
	for i, off := range places {
		start := time.Now()
		if _, err := r.o.Write(e.Node, page, off, nil); err != nil {
			t.Fatal(err)
		}
		t.Logf("write %d: %v", i, time.Since(start))
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(r.upper(), "huge"), &st); err != nil {
		t.Fatal(err)
	}
	if kept := st.Blocks * 512; kept > 4*(1<<blockShift) {
		t.Errorf("%d bytes in the upper", kept)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	m, took := r.freeze(s)
	runtime.ReadMemStats(&after)
	t.Logf("stored %d bytes anew in %v, allocated %d bytes, %d chunks", m.New, took, after.TotalAlloc-before.TotalAlloc, m.Chunks)
	if m.New > 2<<20 || m.Size < 10<<20 {
		t.Errorf("%d bytes are new of an image of %d", m.New, m.Size)
	}
	got := make([]byte, len(page))
	for _, off := range places {
		if _, err := r.o.Read(e.Node, got, off); err != nil || !bytes.Equal(got, page) {
			t.Errorf("page at %d: %v", off, err)
		}
	}
	if _, err := r.o.Read(e.Node, got, 3*stretch+4096); err != nil || !bytes.Equal(got, data[4096:8192]) {
		t.Error("data beside the pages:", err)
	}
	r.o.Forget(e.Node, 1)
	problems, err := s.Check(context.Background(), chunkstore.CheckOptions{ReadData: stretch > 2<<20})
	if err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
}
