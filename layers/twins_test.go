package layers

import (
	"testing"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
)

// wantNoTwins fails if different inodes of a tree have one number, by a walk and by what the layers say.
func wantNoTwins(t *testing.T, stack []*Lower) {
	t.Helper()
	all := roaring64.New()
	for i, l := range stack {
		seen := roaring64.New()
		for ino, err := range l.Numbers(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if !seen.CheckedAdd(ino) {
				t.Errorf("layer %d has two inodes with number %d", i, ino)
			}
		}
		all.Or(seen)
	}
	found, n, err := FindTwins(t.Context(), stack, all, 20)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		t.Errorf("different files have inode number %d: %q (%d numbers in all)", f.Ino, f.Paths, n)
	}
}
