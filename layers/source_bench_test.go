package layers

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// BenchmarkSourceFirstList opens a tree of $SNAPFS_IMPORT files, 20,000 by default, as a source layer, and lists its
// root with all attributes, as the first ls -l does.
func BenchmarkSourceFirstList(b *testing.B) {
	files := 20_000
	if n, err := strconv.Atoi(os.Getenv("SNAPFS_IMPORT")); err == nil {
		files = n
	}
	src := b.TempDir()
	makeImport(b, src, files)
	for i := 0; b.Loop(); i++ {
		low, err := OpenSource("source", src, SourceOptions{Copies: filepath.Join(b.TempDir(), strconv.Itoa(i))})
		if err != nil {
			b.Fatal(err)
		}
		o, err := New("", "", []*Lower{low}, Options{ReadOnly: true})
		if err != nil {
			b.Fatal(err)
		}
		names := 0
		if err := o.ReadDirPlus(RootNode, 0, func(DirEntry, Entry) bool { names++; return true }); err != nil || names < 3 {
			b.Fatal(names, err)
		}
		if err := o.Close(); err != nil {
			b.Fatal(err)
		}
		if err := low.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
