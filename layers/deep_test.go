package layers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/internal/hosttree"
	"snapfs/squashfs"
)

// deepTree makes directories in each other, with long names and a file in each, and gives the outermost.
func deepTree(t *testing.T, depth int) string {
	t.Helper()
	top := filepath.Join(t.TempDir(), "deep")
	if err := os.Mkdir(top, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := hosttree.RemovePath(top); err != nil { // t.TempDir would take descriptors for it
			t.Error(err)
		}
	})
	fd, err := unix.Open(top, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { unix.Close(fd) }()
	for i := range depth {
		name := fmt.Sprintf("%0200d", i)
		if err := unix.Mkdirat(fd, name, 0o755); err != nil {
			t.Fatal(err)
		}
		f, err := unix.Openat(fd, "file", unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := unix.Write(f, []byte(name)); err != nil {
			t.Fatal(err)
		}
		unix.Close(f)
		next, err := unix.Openat(fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		unix.Close(fd)
		fd = next
	}
	return top
}

// TestDeepTree stores, compares, merges and exports a tree whose paths are much longer than any program can name. One
// path for each of its files would take 220 MiB.
func TestDeepTree(t *testing.T) {
	const depth, most = 1500, 80 << 20
	step := func(what string, do func()) {
		t.Helper()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		start := time.Now()
		do()
		runtime.ReadMemStats(&after)
		t.Logf("%s: %v, %d MiB", what, time.Since(start), (after.TotalAlloc-before.TotalAlloc)>>20)
		if n := after.TotalAlloc - before.TotalAlloc; n > most {
			t.Errorf("%s allocates %d MiB, want at most %d", what, n>>20, most>>20)
		}
	}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	dir := deepTree(t, depth)
	s := openStore(t)
	var base, layer *Lower
	step("a directory as a base", func() {
		m, err := StoreTree(t.Context(), s, dir, StoreOptions{}, nil)
		check(err)
		base = openStored(t, s, "base", m)
	})
	step("a sealed layer", func() {
		sealed, err := OpenSealed("layer", dir, 1<<40)
		check(err)
		m, err := Store(t.Context(), s, sealed, []*Lower{base}, StoreOptions{}, nil)
		check(err)
		check(sealed.Close())
		layer = openStored(t, s, "layer", m)
	})
	step("a comparison", func() {
		nothing, err := OpenSealed("nothing", t.TempDir(), 0)
		check(err)
		told := 0
		cmp, err := Compare([]*Lower{nothing}, []*Lower{layer, base})
		check(err)
		for c, err := range cmp.Changes(t.Context()) {
			check(err)
			if told++; len(c.Path) > MaxPath {
				t.Fatalf("a path of %d bytes is told", len(c.Path))
			}
		}
		if told == 0 || told > 100 {
			t.Errorf("%d changes are told, want those that have a path", told)
		}
		cmp.Close()
		check(nothing.Close())
	})
	step("a merge", func() {
		_, err := Merge(t.Context(), s, []*Lower{layer, base}, 2, StoreOptions{}, nil)
		check(err)
	})
	step("an export", func() {
		src, err := Merged([]*Lower{layer, base})
		check(err)
		info, err := squashfs.WriteStore(context.Background(), discarded{io.Discard}, src, squashfs.StoreOptions{})
		check(err)
		if want := uint32(2*depth + 1); info.Inodes != want {
			t.Errorf("%d inodes, want %d", info.Inodes, want)
		}
		check(src.(io.Closer).Close())
	})
	check(layer.Close())
	check(base.Close())
}

// TestDeepTreeFromBelow: directories far above are opened from those below them. The way from the root is gone when
// they are needed.
func TestDeepTreeFromBelow(t *testing.T) {
	const depth = 300
	dir := deepTree(t, depth)
	tree, err := openTree(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer tree.close()
	way := filepath.Join(dir, fmt.Sprintf("%0200d", 0), fmt.Sprintf("%0200d", 1))
	files := 0
	tree.inTurn = true
	tree.opened = func(string) {
		descriptors.purge(func(k fdKey) bool { return k.o.layer == tree.layer && k.o != tree.layer.opened.Load() })
		if files++; files == 1 {
			if err := os.Rename(way, way+"x"); err != nil {
				t.Error(err)
			}
		}
	}
	if _, err := tree.storeStable(t.Context(), openStore(t), StoreOptions{}, nil); err != nil {
		t.Error(err)
	}
	if files != depth {
		t.Errorf("%d files are stored, want %d", files, depth)
	}
}

// TestDeepTreeMoved: where the host's parent of a directory is another one now, it is not taken for the old one.
func TestDeepTreeMoved(t *testing.T) {
	top := t.TempDir()
	if err := errors.Join(os.MkdirAll(top+"/a/b/c/d", 0o755), os.Mkdir(top+"/elsewhere", 0o755)); err != nil {
		t.Fatal(err)
	}
	low, err := OpenSealed("moved", top, 1<<40)
	if err != nil {
		t.Fatal(err)
	}
	defer low.Close()
	be := low.dir
	at := []*part{rootPart(&layer{lower: low})}
	for _, name := range []string{"a", "b", "c", "d"} {
		f, err := be.find(at[len(at)-1], name)
		if err != nil {
			t.Fatal(err)
		}
		at = append(at, at[len(at)-1].child(name, f))
	}
	h, err := be.dir(at[4])
	if err != nil {
		t.Fatal(err)
	}
	h.release()
	if err := os.Rename(top+"/a/b/c", top+"/elsewhere/c"); err != nil {
		t.Fatal(err)
	}
	descriptors.purge(func(k fdKey) bool { return k.o.layer == at[0].layer && k.o != at[4] })
	if h, err = be.dir(at[2]); err != nil {
		t.Fatal(err)
	}
	defer h.release()
	a, err := nameIn(h.fd, ".").stat()
	if err != nil || a.Ino != at[2].host {
		t.Errorf("the parent of what has moved is taken for the one before: %v", err)
	}
}

// discarded is an image that nobody wants.
type discarded struct{ io.Writer }

func (discarded) Cut(c squashfs.Cut) error {
	if len(c.Path) > 4096 || strings.Contains(c.Path, "//") {
		return fmt.Errorf("a path of %d bytes", len(c.Path))
	}
	return nil
}
func (discarded) Header([]byte) error { return nil }
