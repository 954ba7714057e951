package layers

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"snapfs/internal/testimage"
	"snapfs/squashfs"
)

// TestBadRedirects holds that a redirect which leads out of its layer, or is none, is damage for every reader, and
// leads nowhere.
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
		m, err := Store(t.Context(), openStore(t), rig.lowers[0], rig.lowers[1:], StoreOptions{}, nil)
		if !errors.Is(err, squashfs.ErrCorrupt) {
			t.Errorf("redirect %q: stored as %+v, %v", r, m, err)
		}
	}
}

// redirected is the source of an image with a directory and a metacopy that have a redirect.
type redirected string

func (r redirected) Root(context.Context) (*squashfs.Entry, error) {
	return &squashfs.Entry{Attr: squashfs.Attr{Ino: rootIno, Mode: unix.S_IFDIR | 0o755, Nlink: 1}}, nil
}

func (r redirected) Names(_ context.Context, dir *squashfs.Entry) ([]string, error) {
	if dir.Name != "" {
		return nil, nil
	}
	return []string{"dir", "file"}, nil
}

func (r redirected) Entry(_ context.Context, _ *squashfs.Entry, name string) (*squashfs.Entry, error) {
	e := &squashfs.Entry{Name: name, Attr: squashfs.Attr{Ino: 2, Mode: unix.S_IFDIR | 0o755, Nlink: 1}}
	if name == "file" {
		e.Attr = squashfs.Attr{Ino: 3, Mode: unix.S_IFREG | 0o644, Nlink: 1}
		e.Xattrs = []squashfs.Xattr{{Name: xattrMetacopy}}
	}
	e.Xattrs = append(e.Xattrs, squashfs.Xattr{Name: xattrRedirect, Value: []byte(r)})
	return e, nil
}

func (r redirected) Open(context.Context, *squashfs.Entry) (squashfs.File, error) {
	return emptyFile{}, nil
}

// TestBadRedirectsOfImages is TestBadRedirects for a layer that is an image.
func TestBadRedirectsOfImages(t *testing.T) {
	lower := t.TempDir()
	if err := errors.Join(os.WriteFile(filepath.Join(lower, "secret"), nil, 0o600), os.Mkdir(filepath.Join(lower, "below"), 0o700)); err != nil {
		t.Fatal(err)
	}
	for r, bad := range map[string]bool{
		"..": true, ".": true, "/..": true, "/a/../b": true, "/a/./b": true, "//a": true, "/a/": true, "/": true, "a/b": true,
		"../secret": true, "/a\x00b": true, "/" + strings.Repeat("x", 256): true, "below": false, "/below": false,
	} {
		f, err := os.Create(filepath.Join(t.TempDir(), "image"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := squashfs.WriteShip(t.Context(), f, redirected(r), squashfs.ShipOptions{Compression: "zstd"}); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		opened, err := testimage.Open(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		image, err := OpenImage("image", opened, 0)
		if err != nil {
			t.Fatal(err)
		}
		below, err := OpenSealed("below", lower, 0)
		if err != nil {
			t.Fatal(err)
		}
		rig := newRigOver(t, image, below)
		for _, name := range []string{"dir", "file"} {
			_, err := rig.find(name)
			if bad && !errors.Is(err, unix.EIO) || !bad && name == "dir" && err != nil {
				t.Errorf("redirect %q of a %s: %v", r, name, err)
			}
		}
	}
}
