package squashfs_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"snapfs/squashfs"
)

// manyNames is a tree of one directory, of which names lead to one file.
func manyNames(names ...string) *memSource {
	root := &squashfs.Entry{Attr: squashfs.Attr{Ino: 1, Mode: unix.S_IFDIR | 0o755, Nlink: 3}}
	dir := &squashfs.Entry{Name: "dir", Attr: squashfs.Attr{Ino: 2, Mode: unix.S_IFDIR | 0o755, Nlink: 2}}
	var list []*squashfs.Entry
	for _, name := range names {
		list = append(list, &squashfs.Entry{
			Name: name, Attr: squashfs.Attr{Ino: 3, Mode: unix.S_IFREG | 0o644, Nlink: uint32(len(names))},
			Inode: squashfs.InodeID{Layer: 1, Inode: 3},
		})
	}
	return &memSource{root: root, list: func(at *squashfs.Entry) []*squashfs.Entry {
		switch at {
		case root:
			return []*squashfs.Entry{dir}
		case dir:
			return list
		}
		return nil
	}}
}

// TestMaxLinks: a file with more names than it may have is refused, by the name that is too many.
func TestMaxLinks(t *testing.T) {
	for _, c := range []struct {
		most uint32
		ok   bool
	}{{0, true}, {2, false}, {3, true}} {
		out, err := os.Create(filepath.Join(t.TempDir(), "out"))
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		sink := &fileSink{f: out, off: squashfs.HeaderSize, cutEnd: squashfs.HeaderSize}
		_, err = squashfs.WriteStore(testContext(t), sink, manyNames("a", "b", "c"),
			squashfs.StoreOptions{MaxLinks: c.most})
		switch {
		case c.ok && err != nil:
			t.Errorf("at most %d: %v", c.most, err)
		case !c.ok && (!errors.Is(err, squashfs.ErrLinks) || !strings.Contains(err.Error(), "dir/c") ||
			!strings.Contains(err.Error(), " 2 names")):
			t.Errorf("at most %d: got %v", c.most, err)
		}
	}
}

// countedReads counts the calls of ReadAt.
type countedReads struct {
	io.ReaderAt
	n int
}

func (c *countedReads) ReadAt(p []byte, off int64) (int, error) {
	c.n++
	return c.ReaderAt.ReadAt(p, off)
}

// TestLookupsReadIndexOnce checks that looking up all names of a large directory reads its index once.
func TestLookupsReadIndexOnce(t *testing.T) {
	names := make([]string, 20_000)
	for i := range names {
		names[i] = fmt.Sprintf("a-name-of-some-length-%06d", i)
	}
	file, _ := store(t, manyNames(names...))
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	r := &countedReads{ReaderAt: bytes.NewReader(data)}
	im, err := squashfs.Open(r, int64(len(data)), squashfs.Options{})
	if err != nil {
		t.Fatal(err)
	}
	root, err := im.Inode(im.Root())
	if err != nil {
		t.Fatal(err)
	}
	e, err := root.Lookup("dir")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		dir, err := im.Inode(e.Ref) // as for a look-up of its own
		if err != nil {
			t.Fatal(err)
		}
		if _, err := dir.Lookup(name); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	if r.n > len(names)/10 {
		t.Errorf("%d reads for %d look-ups", r.n, len(names))
	}
	t.Logf("%d reads for %d look-ups", r.n, len(names))
}
