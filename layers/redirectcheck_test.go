package layers

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"snapfs/squashfs"
)

// TestBadRedirects holds that a redirect which leads out of its layer, or is none, is damage for every reader, and leads nowhere.
func TestBadRedirects(t *testing.T) {
	lower := t.TempDir()
	if err := os.WriteFile(filepath.Join(lower, "secret"), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, r := range []string{
		"..", ".", "/..", "/a/../b", "/a/./b", "//a", "/a/", "/", "a/b", "../a", "/a\x00b", "/" + strings.Repeat("x", 256),
	} {
		top := t.TempDir()
		for _, name := range []string{"dir", "file"} {
			path := filepath.Join(top, name)
			err := os.Mkdir(path, 0o755)
			if name == "file" {
				err = errors.Join(os.Remove(path), os.WriteFile(path, []byte("sparse"), 0o644), unix.Setxattr(path, xattrMetacopy, nil, 0))
			}
			if err := errors.Join(err, unix.Setxattr(path, xattrRedirect, []byte(r), 0)); err != nil {
				t.Fatal(err)
			}
		}
		rig := newRig(t, top, lower)
		for _, name := range []string{"dir", "file"} {
			if _, err := rig.find(name); !errors.Is(err, unix.EIO) {
				t.Errorf("redirect %q of a %s: got %v, want EIO", r, name, err)
			}
		}
		m, err := Pack(t.Context(), openStore(t), rig.lowers[0], rig.lowers[1:], PackOptions{}, nil)
		if !errors.Is(err, squashfs.ErrCorrupt) {
			t.Errorf("redirect %q: packed as %+v, %v", r, m, err)
		}
	}
}
