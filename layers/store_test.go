package layers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"snapfs/chunkstore"
	"snapfs/squashfs"
)

// picture lists a stack as its users see it: everything but access times, block counts and directories' link counts.
func picture(t *testing.T, stack []*Lower) []string {
	t.Helper()
	src, err := Merged(stack)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := src.(io.Closer).Close(); err != nil {
			t.Error(err)
		}
	}()
	var lines []string
	root, err := src.Root(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var walk func(path string, e *squashfs.Entry)
	walk = func(path string, e *squashfs.Entry) {
		a := e.Attr
		if isDir(a.Mode) {
			a.Size = 0
		}
		xattrs, err := e.Attributes()
		if err != nil {
			t.Fatal(err)
		}
		slices.SortFunc(xattrs, func(x, y squashfs.Xattr) int { return strings.Compare(x.Name, y.Name) })
		line := fmt.Sprintf("%s %+v %q %q", path, a, e.Target, xattrs)
		if isReg(a.Mode) {
			f, err := src.Open(t.Context(), e)
			if err != nil {
				t.Fatal(path, err)
			}
			data, err := io.ReadAll(io.NewSectionReader(f, 0, a.Size))
			if err != nil {
				t.Fatal(path, err)
			}
			x, err := f.Extents()
			if err != nil {
				t.Fatal(path, err)
			}
			line += fmt.Sprintf(" %q %v", data, x)
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
		}
		lines = append(lines, line)
		if !isDir(a.Mode) {
			return
		}
		names, err := src.Names(t.Context(), e)
		if err != nil {
			t.Fatal(path, err)
		}
		for _, name := range names {
			c, err := src.Entry(t.Context(), e, name)
			if err != nil {
				t.Fatal(path, name, err)
			}
			if c != nil {
				walk(path+"/"+name, c)
			}
		}
	}
	walk("", root)
	slices.Sort(lines)
	return lines
}

func samePicture(t *testing.T, what string, got, want []string) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		g, w := "", ""
		if i < len(got) {
			g = got[i]
		}
		if i < len(want) {
			w = want[i]
		}
		if g != w {
			t.Errorf("%s: first difference:\ngot  %.600s\nwant %.600s", what, g, w)
			return
		}
	}
}

func openStore(t *testing.T) *chunkstore.Store {
	t.Helper()
	s, err := chunkstore.Open(t.TempDir(), chunkstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func openStored(t *testing.T, s *chunkstore.Store, key string, m chunkstore.Manifest) *Lower {
	t.Helper()
	r, err := s.OpenManifest(t.Context(), m.ID)
	if err != nil {
		t.Fatal(err)
	}
	l, err := OpenImage(key, r, m.ID)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// sampleTree makes a tree with a bit of everything.
func sampleTree(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, err := range []error{
		os.MkdirAll(dir+"/d/sub/deep", 0o755),
		os.WriteFile(dir+"/d/f", []byte("file"), 0o644),
		os.Chmod(dir+"/d/f", 0o4755),
		os.Link(dir+"/d/f", dir+"/d/sub/hard"),
		os.WriteFile(dir+"/d/sub/deep/g", []byte(strings.Repeat("text ", 10000)), 0o600),
		os.WriteFile(dir+"/gone", []byte("x"), 0o600),
		os.Symlink("/nowhere", dir+"/l"),
		unix.Lsetxattr(dir+"/l", "trusted.t", []byte("v"), 0),
		unix.Lsetxattr(dir+"/d", "user.u", []byte("w"), 0),
		unix.Lsetxattr(dir+"/d", "trusted.overlay.opaque", []byte("y"), 0),
		unix.Mknod(dir+"/wh", unix.S_IFCHR, 0),
		unix.Mknod(dir+"/pipe", unix.S_IFIFO|0o600, 0),
		os.WriteFile(dir+"/sparse", []byte("head"), 0o600),
		os.Truncate(dir+"/sparse", 5<<20),
		os.Lchown(dir+"/l", 12, 13),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestStoreRoundTrip(t *testing.T) {
	s := openStore(t)
	base, err := StoreTree(t.Context(), s, sampleTree(t), StoreOptions{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := newRigOver(t, openStored(t, s, "base", base))
	if got := r.attr("wh"); got.Mode&unix.S_IFMT != unix.S_IFCHR || got.Rdev != 0 {
		t.Errorf("device 0/0 came out as %o", got.Mode)
	}
	err = errors.Join(
		r.write("d/sub/deep/g", "EDIT", 100),
		r.unlink("gone"),
		r.rename("d", "moved", 0),
		r.mkdir("d", 0o700),
		r.unlink("moved/f"),
		r.on("l", func(n NodeID) error { return r.o.SetXattr(n, "trusted.overlay.x", []byte("y"), 0) }),
		r.on("sparse", func(n NodeID) error {
			_, err := r.o.SetAttr(Caller{}, n, SetAttr{Valid: SetMode, Mode: 0o640})
			return err
		}),
	)
	if err != nil {
		t.Fatal(err)
	}
	r.create("d/new", "new")
	e, err := r.find("d/new") // held over seal and replacement
	if err != nil {
		t.Fatal(err)
	}
	l := r.seal()
	before := picture(t, r.lowers)
	m, err := Store(t.Context(), s, l, r.lowers[1:], StoreOptions{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	image := openStored(t, s, l.Key(), m)
	samePicture(t, "image", picture(t, append([]*Lower{image}, r.lowers[1:]...)), before)
	if err := r.o.Replace(image); err != nil {
		t.Fatal(err)
	}
	sealed := r.lowers[0]
	r.lowers[0] = image
	if err := sealed.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(r.dir, "upper")); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 10)
	if k, err := r.o.Read(e.Node, buf, 0); err != nil || string(buf[:k]) != "new" {
		t.Errorf("got %q, %v", buf[:k], err)
	}
	if err := r.write("d/new", "NEW!", 0); err != nil {
		t.Fatal(err)
	}
	if k, err := r.o.Read(e.Node, buf, 0); err != nil || string(buf[:k]) != "NEW!" {
		t.Errorf("got %q, %v", buf[:k], err)
	}
	r.o.Forget(e.Node, 1)
	if a := r.attr("d/new"); a.Ino != e.Attr.Ino {
		t.Errorf("inode number %d became %d", e.Attr.Ino, a.Ino)
	}
	r.wantNodes(1)
	now, err := r.o.Lowers()
	if err != nil {
		t.Fatal(err)
	}
	got := lines(t, now[1:], now)
	if want := "M d/new"; got != want {
		t.Errorf("diff: got %q, want %q", got, want)
	}
	got = lines(t, now[2:], now)
	if want := "A d|D d/f|A d/new|D gone|M l|R moved<d|M moved/sub/deep/g<d/sub/deep/g|M sparse"; got != want {
		t.Errorf("diff: got %q, want %q", got, want)
	}
	for _, l := range now {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}

// lines is a diff on one line.
func lines(t *testing.T, a, b []*Lower) string {
	t.Helper()
	var out []string
	cmp, err := Compare(a, b)
	if err != nil {
		t.Fatal(err)
	}
	defer cmp.Close()
	for c, err := range cmp.Changes(context.Background()) {
		if err != nil {
			t.Fatal(err)
		}
		s := string(rune(c.Kind)) + " " + c.Path
		if c.OldPath != "" {
			s += "<" + c.OldPath
		}
		out = append(out, s)
	}
	return strings.Join(out, "|")
}

func TestStoreTreeRefusesProc(t *testing.T) {
	if _, err := StoreTree(t.Context(), openStore(t), "/proc", StoreOptions{}, nil); !errors.Is(err, unix.EINVAL) {
		t.Errorf("got %v", err)
	}
}

// TestStoreTreeShrinking stores a tree in which a file becomes shorter after its size was read.
func TestStoreTreeShrinking(t *testing.T) {
	for _, twice := range []bool{false, true} {
		dir := t.TempDir()
		for _, name := range []string{"a", "b", "y", "z"} {
			if err := os.WriteFile(filepath.Join(dir, name), make([]byte, 3<<20), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		size := int64(2 << 20)
		tree, err := openTree(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer tree.close()
		tree.opened = func(name string) {
			if name == "z" && (size == 2<<20 || twice && size > 0) {
				size -= 1000
				if err := os.Truncate(filepath.Join(dir, "z"), size); err != nil {
					t.Error(err)
				}
			}
		}
		_, err = tree.storeStable(t.Context(), openStore(t), StoreOptions{}, nil)
		if twice != errors.Is(err, errShrunk) {
			t.Errorf("shrinks twice: %v, error %v", twice, err)
		}
	}
}
