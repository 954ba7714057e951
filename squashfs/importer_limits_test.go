package squashfs_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"snapfs/squashfs"
)

// TestImportNames checks that what no program could read or set is refused: targets and names that Linux has no room
// for.
func TestImportNames(t *testing.T) {
	link := func(n int) *squashfs.Entry {
		target := strings.Repeat("t", n)
		return &squashfs.Entry{
			Name: "l",
			Attr: squashfs.Attr{Ino: 2, Mode: unix.S_IFLNK | 0o777, Nlink: 1, Size: int64(n)}, Target: target,
		}
	}
	named := func(name string) *squashfs.Entry {
		return &squashfs.Entry{
			Name: "d", Attr: squashfs.Attr{Ino: 2, Mode: unix.S_IFDIR | 0o755, Nlink: 2},
			Xattrs: []squashfs.Xattr{{Name: name, Value: []byte("v")}},
		}
	}
	for _, c := range []struct {
		name  string
		entry *squashfs.Entry
		fails bool
	}{
		{"longest target", link(4095), false},
		{"target of a page", link(4096), true},
		{"target of many pages", link(60000), true},
		{"longest attribute name", named("user." + strings.Repeat("n", 250)), false},
		{"attribute name with NUL", named("user.a\x00bc"), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := &squashfs.Entry{Attr: squashfs.Attr{Ino: 1, Mode: unix.S_IFDIR | 0o755, Nlink: 3}}
			file, _ := store(t, &memSource{root: root, list: func(dir *squashfs.Entry) []*squashfs.Entry {
				if dir != root {
					return nil
				}
				return []*squashfs.Entry{c.entry}
			}})
			f, err := os.Open(file)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			fi, err := f.Stat()
			if err != nil {
				t.Fatal(err)
			}
			im, err := squashfs.Open(f, fi.Size(), squashfs.Options{})
			if err != nil {
				t.Fatal(err)
			}
			out, err := os.Create(filepath.Join(t.TempDir(), "out"))
			if err != nil {
				t.Fatal(err)
			}
			defer out.Close()
			sink := &fileSink{f: out, off: squashfs.HeaderSize, cutEnd: squashfs.HeaderSize}
			_, err = squashfs.WriteStore(testContext(t), sink, squashfs.ImageSource(im), squashfs.StoreOptions{})
			if got := errors.Is(err, squashfs.ErrCorrupt); got != c.fails || !got && err != nil {
				t.Errorf("got %v", err)
			}
		})
	}
}
