package squashfs_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"snapfs/internal/testsource"
	"snapfs/squashfs"
)

// flat writes an image of directories with the given numbers of files, and returns the directories.
func flat(t testing.TB, sizes ...int) []*squashfs.Inode {
	t.Helper()
	root := t.TempDir()
	for i, size := range sizes {
		dir := filepath.Join(root, fmt.Sprintf("dir%03d", i))
		must(t, os.Mkdir(dir, 0o755))
		for k := range size {
			must(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("name-of-usual-length-%05d.go", k)), nil, 0o644))
		}
	}
	file, _ := store(t, testsource.Dir(root))
	im := openImage(t, file)
	top, err := im.Inode(im.Root())
	must(t, err)
	var dirs []*squashfs.Inode
	for e, err := range top.ReadDir("") {
		must(t, err)
		n, err := im.Inode(e.Ref)
		must(t, err)
		dirs = append(dirs, n)
	}
	return dirs
}

// TestLookupSizes looks up what a listing shows, and what it does not show, in directories small and large and in more
// of them than are kept taken apart.
func TestLookupSizes(t *testing.T) {
	sizes := []int{0, 1, 2, 100, 255, 256, 257, 300, 2000}
	for range 40 {
		sizes = append(sizes, 20)
	}
	dirs := flat(t, sizes...)
	for range 2 {
		for i, dir := range dirs {
			count := 0
			for e, err := range dir.ReadDir("") {
				must(t, err)
				count++
				if got, err := dir.Lookup(e.Name); err != nil || got != e {
					t.Fatalf("directory %d, %q: got %+v, %v, want %+v", i, e.Name, got, err, e)
				}
				for _, missing := range []string{e.Name + "0", e.Name[:len(e.Name)-1], "", "~"} {
					if got, err := dir.Lookup(missing); !errors.Is(err, fs.ErrNotExist) {
						t.Fatalf("directory %d, %q: got %+v, %v", i, missing, got, err)
					}
				}
			}
			if count != sizes[i] {
				t.Fatalf("directory %d has %d names instead of %d", i, count, sizes[i])
			}
		}
	}
}

// BenchmarkLookup looks up all names of directories, one directory after the other.
func BenchmarkLookup(b *testing.B) {
	for _, size := range []int{10, 100, 1000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			dir := flat(b, size)[0]
			var names []string
			for e, err := range dir.ReadDir("") {
				must(b, err)
				names = append(names, e.Name)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if _, err := dir.Lookup(names[i%size]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
