package squashfs_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"snapfs/internal/testsource"
	"snapfs/internal/treewalk"
	"snapfs/squashfs"
)

func TestStoreRoundTrip(t *testing.T) {
	root := makeOddTree(t)
	want, err := treewalk.Walk(root)
	must(t, err)
	file, sink := store(t, testsource.Dir(root))

	t.Run("own reader", func(t *testing.T) {
		sound(t, file)
		got, err := walkImage(openImage(t, file))
		must(t, err)
		sameTree(t, want, got, exact)
	})
	t.Run("tables", func(t *testing.T) {
		places, err := openImage(t, file).Tables()
		must(t, err)
		off, tables := int64(squashfs.HeaderSize), 0
		for _, c := range sink.cuts {
			if c.Meta && c.Table != "padding" {
				tables++
				if want := (squashfs.Extent{Off: off, Len: c.Size}); places[c.Table] != want {
					t.Errorf("%s: got %v, want %v", c.Table, places[c.Table], want)
				}
			}
			off += c.Size
		}
		if tables != len(places) {
			t.Errorf("%d tables, want %d", len(places), tables)
		}
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
		again, cuts := store(t, shuffled{testsource.Dir(root), rand.New(rand.NewPCG(3, 4))})
		sameBytes(t, file, again)
		if len(cuts.cuts) != len(sink.cuts) {
			t.Errorf("%d cuts, want %d", len(cuts.cuts), len(sink.cuts))
		}
	})
}

// TestWideDirectory has more entries than one header, one metadata block or 16 bits of number difference can span.
func TestWideDirectory(t *testing.T) {
	const files = 36_000
	name := func(i int) string { return fmt.Sprintf("name-%06d-%s", i, strings.Repeat("y", i%50)) }
	var entries []*squashfs.Entry
	for i := range files {
		entries = append(entries, fileEntry(name(i), uint64(i), 0))
	}
	deep := dirEntry("name-000005-deep")
	entries = append(entries, deep, dirEntry("empty"))
	src := oneDir()
	src.list = func(dir *squashfs.Entry) []*squashfs.Entry {
		switch dir.Name {
		case "":
			return entries
		case deep.Name:
			return entries[:34_000]
		}
		return nil
	}
	check := func(t *testing.T, file string) {
		sound(t, file)
		dir := mountImage(t, file)
		root := openImage(t, file).FS()
		for at, want := range map[string]int{"": files + 2, deep.Name: 34_000, "empty": 0} {
			got, err := os.ReadDir(filepath.Join(dir, at))
			must(t, err)
			if len(got) != want {
				t.Errorf("the kernel lists %d names in %q, want %d", len(got), at, want)
			}
		}
		for i := 0; i < files; i += 997 {
			if _, err := os.Lstat(filepath.Join(dir, name(i))); err != nil {
				t.Error(err)
			}
		}
		if _, err := os.Lstat(filepath.Join(dir, "name-0")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a name that is not there: %v", err)
		}
		got, err := fs.ReadDir(root, ".")
		must(t, err)
		if len(got) != files+2 {
			t.Errorf("%d names, want %d", len(got), files+2)
		}
		if n := strings.Count(run(t, "unsquashfs", "-ls", file), "\n"); n < files+34_000 {
			t.Errorf("unsquashfs lists %d lines", n)
		}
	}
	t.Run("store", func(t *testing.T) {
		file, _ := store(t, src)
		check(t, file)
	})
	t.Run("ship", func(t *testing.T) {
		check(t, ship(t, src, squashfs.ShipOptions{Level: 1, Exportable: true}))
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

// TestMounts: files of two devices with the same inode number are two files.
func TestMounts(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{"a", "b"} {
		dir := filepath.Join(root, name)
		must(t, os.Mkdir(dir, 0o755))
		run(t, "mount", "-t", "tmpfs", "-o", "size=1m", "none", dir)
		t.Cleanup(func() { run(t, "umount", dir) })
		must(t, os.WriteFile(filepath.Join(dir, "x"), []byte("of "+name), 0o644))
		must(t, os.Link(filepath.Join(dir, "x"), filepath.Join(dir, "y")))
	}
	src := testsource.Dir(root)
	t.Cleanup(func() { must(t, src.Close()) })
	file, _ := store(t, src)
	sound(t, file)
	fsys := openImage(t, file).FS()
	for _, name := range []string{"a/x", "a/y", "b/x", "b/y"} {
		if b, err := fs.ReadFile(fsys, name); err != nil || string(b) != "of "+name[:1] {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
}
