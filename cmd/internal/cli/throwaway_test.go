package cli

import (
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestThrowAwayDir: where no directory can be made for a mount, the error says what names another place.
func TestThrowAwayDir(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	dir, err := throwAwayDir()
	if err != nil || filepath.Dir(dir) != tmp {
		t.Errorf("got %s, %v, want a name in %s", dir, err, tmp)
	}
	t.Setenv("TMPDIR", filepath.Join(tmp, "missing"))
	if _, err := throwAwayDir(); err == nil || !strings.Contains(err.Error(), "TMPDIR") {
		t.Errorf("got %v, want an error that names TMPDIR", err)
	}
	if unix.Getuid() != 0 { // root may write everywhere
		t.Setenv("TMPDIR", "/")
		if _, err := throwAwayDir(); err == nil {
			t.Error("a user may write to /")
		}
	}
}
