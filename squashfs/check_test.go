package squashfs_test

import (
	"context"
	"os"
	"testing"

	"snapfs/squashfs"
)

// check returns all violations of an image file.
func check(t testing.TB, file string) []squashfs.Violation {
	t.Helper()
	f, err := os.Open(file)
	must(t, err)
	defer f.Close()
	info, err := f.Stat()
	must(t, err)
	var list []squashfs.Violation
	must(t, squashfs.Check(context.Background(), f, info.Size(), func(v squashfs.Violation) { list = append(list, v) }))
	return list
}

// sound fails the test for each violation.
func sound(t testing.TB, file string) {
	t.Helper()
	for _, v := range check(t, file) {
		t.Errorf("check of a sound image: %d %q: %s", v.Off, v.Path, v.Rule)
	}
}
