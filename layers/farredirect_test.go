package layers

import (
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

// TestRenameTooDeep renames directories of a lower above and below where an image has room for the path that they came
// from.
func TestRenameTooDeep(t *testing.T) {
	const depth = 400
	low, err := OpenSealed("deep", deepTree(t, depth), 1<<40)
	if err != nil {
		t.Fatal(err)
	}
	r := newRigOver(t, low)
	at := RootNode
	for i := range depth {
		name := fmt.Sprintf("%0200d", i)
		if i == 100 || i == depth-1 {
			err := r.o.Rename(at, name, at, "moved", 0)
			if want := i*201 > longestRedirect; want != errors.Is(err, unix.EXDEV) || !want && err != nil {
				t.Errorf("at depth %d: %v, want EXDEV: %v", i, err, want)
			}
			if err == nil {
				name = "moved"
			}
		}
		e, err := r.o.Lookup(at, name)
		if err != nil {
			t.Fatal(i, err)
		}
		at = e.Node
	}
}
