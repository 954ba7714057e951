package layers

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestFinishFull finishes a merged directory that programs have filled with attributes, so that it has no room for a note.
func TestFinishFull(t *testing.T) {
	lower := t.TempDir()
	if err := os.MkdirAll(filepath.Join(lower, "d", "below"), 0o755); err != nil {
		t.Fatal(err)
	}
	k := newKernelUpper(t, lower)
	d := filepath.Join(k.at, "d")
	if err := os.WriteFile(filepath.Join(d, "new"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for n, size := 0, 4096; size > 0 && n < 100; n++ { // until the host has no room, if it ever lacks it
		err := unix.Setxattr(d, fmt.Sprintf("user.%d", n), make([]byte, size), 0)
		switch {
		case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.E2BIG):
			size /= 2
		case err != nil:
			t.Fatal(err)
		}
	}
	_, want, _ := k.capture()
	k.end()
	upper := k.open()
	if err := FinishUpper(t.Context(), upper, []*Lower{k.base}); err != nil {
		t.Fatal(err)
	}
	got, err := Store(t.Context(), k.store, upper, []*Lower{k.base}, StoreOptions{Home: 5, NoSync: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got.Digest != want.Digest {
		t.Error("what was finished is stored as another image")
	}
}
