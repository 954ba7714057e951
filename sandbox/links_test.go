package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"snapfs/layers"
	"snapfs/squashfs"
)

// linkTree is a source of so many names of one file.
type linkTree int

func (linkTree) Root(context.Context) (*squashfs.Entry, error) {
	return &squashfs.Entry{Attr: squashfs.Attr{Ino: 1, Mode: unix.S_IFDIR | 0o755, Nlink: 2}}, nil
}

func (l linkTree) Names(context.Context, *squashfs.Entry) ([]string, error) {
	names := make([]string, l)
	for i := range names {
		names[i] = fmt.Sprintf("name%07d", i)
	}
	return names, nil
}

func (l linkTree) Entry(_ context.Context, _ *squashfs.Entry, name string) (*squashfs.Entry, error) {
	return &squashfs.Entry{
		Name: name, Attr: squashfs.Attr{Ino: 2, Mode: unix.S_IFREG | 0o644, Nlink: uint32(l)}, Inode: squashfs.InodeID{Layer: 1, Inode: 2},
	}, nil
}

func (linkTree) Open(context.Context, *squashfs.Entry) (squashfs.File, error) {
	return nil, errors.ErrUnsupported // it is empty
}

// TestTooManyLinks imports a file with as many names as the file system of the home has room for, and with one more,
// which is refused: it could not be changed.
func TestTooManyLinks(t *testing.T) {
	h := openSpaces(t, filepath.Join(t.TempDir(), "home"))
	most, err := layers.MaxLinks(h.dir)
	if err != nil {
		t.Fatal(err)
	}
	refuses := most > 0 && most < 1<<20
	if !refuses {
		most = 65000 // any number will do
	}
	for over := range uint32(2) {
		file, err := os.Create(filepath.Join(t.TempDir(), "image"))
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		if _, err := file.Seek(squashfs.HeaderSize, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		if _, err := squashfs.WriteStore(t.Context(), fileSink{file}, linkTree(most+over), squashfs.StoreOptions{}); err != nil {
			t.Fatal(err)
		}
		name := fmt.Sprintf("w%d", over)
		_, err = h.Create(t.Context(), CreateRequest{Name: name, Source: file.Name()})
		if over == 0 || !refuses {
			if err != nil {
				t.Errorf("%d names: %v", most+over, err)
			}
			continue
		}
		if !errors.Is(err, ErrInvalid) || !errors.Is(err, squashfs.ErrLinks) {
			t.Fatalf("%d names: got %v", most+over, err)
		}
		for _, part := range []string{fmt.Sprintf("name%07d", most), fmt.Sprint(most), h.dir} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q does not tell %q", err, part)
			}
		}
		if h.catalog.Workspace(name) != nil {
			t.Error("there is a workspace all the same")
		}
	}
}
