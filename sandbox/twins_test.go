package sandbox

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"snapfs/chunkstore"
	"snapfs/layers"
	"snapfs/sandbox/internal/catalog"
	"snapfs/sandbox/internal/uppers"
	"snapfs/squashfs"
)

// unpack unpacks a home that an earlier version has made.
func unpack(t *testing.T, archive, to string) string {
	t.Helper()
	f, err := os.Open(filepath.Join("../testdata/homes", archive))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			return filepath.Join(to, "home")
		}
		if err != nil {
			t.Fatal(err)
		}
		at := filepath.Join(to, e.Name)
		if e.Typeflag == tar.TypeDir {
			err = os.Mkdir(at, e.FileInfo().Mode().Perm())
		} else {
			data, rerr := io.ReadAll(r)
			err = errors.Join(rerr, os.WriteFile(at, data, e.FileInfo().Mode().Perm()))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// twinsOf gives what Check finds of files with one inode number: paths by where and number. There must be no other
// problem.
func twinsOf(t *testing.T, h *Home) map[string]map[uint64][]string {
	t.Helper()
	r, err := h.Check(t.Context(), CheckRequest{ReadData: true})
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]map[uint64][]string{}
	told := map[string]int{}
	for _, p := range r.Problems {
		switch {
		case p.Ino == 0 && told[p.Where] == 0 && len(found[p.Where]) > 0:
			told[p.Where]++ // what to do
		case p.Ino == 0:
			t.Errorf("%s: %s", p.Where, p.What)
		default:
			if found[p.Where] == nil {
				found[p.Where] = map[uint64][]string{}
			}
			found[p.Where][p.Ino] = p.Paths
		}
	}
	if len(told) != len(found) {
		t.Errorf("%d trees with twins, told of %d what to do", len(found), len(told))
	}
	return found
}

func sameTwins(t *testing.T, what string, got, want map[string]map[uint64][]string) {
	t.Helper()
	if !maps.EqualFunc(got, want, func(a, b map[uint64][]string) bool { return maps.EqualFunc(a, b, slices.Equal) }) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// TestTwinsOfOldHome checks a home of an earlier version, which had imported an image of another home: b0 … b3 were
// given the numbers of d/a0 … d/a3, of which the first three had been copied up by the first snapshot, and the others
// by the third. Exported and imported, the files have numbers of their own.
func TestTwinsOfOldHome(t *testing.T) {
	tmp := t.TempDir()
	h := openSpaces(t, unpack(t, "foreign-numbers.tar.gz", tmp))
	pairs := map[uint64][]string{}
	for i := range 4 {
		pairs[1<<40+36+uint64(i)] = []string{fmt.Sprintf("b%d", i), fmt.Sprintf("d/a%d", i)}
	}
	want := map[string]map[uint64][]string{"workspace w": pairs}
	last := ""
	for s := range h.catalog.ListSnapshots(catalog.Query{}) {
		last = s.ID
		want["snapshot "+s.ID] = pairs
	}
	if len(want) != 4 {
		t.Fatalf("%d snapshots", len(want)-1)
	}
	sameTwins(t, "old home", twinsOf(t, h), want)
	file := filepath.Join(tmp, "export.sqsh")
	if _, err := h.Export(t.Context(), ExportRequest{Snapshot: last, Path: file}); err != nil {
		t.Fatal(err)
	}
	distinct(t, "imported anew", numbers(t, h, imported(t, h, "anew", file)))
	sameTwins(t, "with the import", twinsOf(t, h), want)
}

// flatTree is a source of files with chosen inode numbers in one directory.
type flatTree map[string]uint64

func (f flatTree) entry(name string, mode uint32, ino uint64) *squashfs.Entry {
	return &squashfs.Entry{Name: name, Attr: squashfs.Attr{Ino: ino, Mode: mode, Nlink: 1}}
}

func (f flatTree) Root(context.Context) (*squashfs.Entry, error) {
	return f.entry("", unix.S_IFDIR|0o755, 1), nil
}

func (f flatTree) Names(context.Context, *squashfs.Entry) ([]string, error) {
	return slices.Collect(maps.Keys(f)), nil
}

func (f flatTree) Entry(_ context.Context, _ *squashfs.Entry, name string) (*squashfs.Entry, error) {
	return f.entry(name, unix.S_IFREG|0o644, f[name]), nil
}

func (f flatTree) Open(context.Context, *squashfs.Entry) (squashfs.File, error) {
	return nil, errors.ErrUnsupported // all are empty
}

// image writes the image of the files, which claims to be one of this home.
func (f flatTree) image(t *testing.T, h *Home) *os.File {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "image"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() }) // read only by then
	if _, err := file.Seek(squashfs.HeaderSize, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	if _, err := squashfs.WriteStore(t.Context(), fileSink{file}, f, squashfs.StoreOptions{Home: h.number}); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestNumbersTwiceInAnImage imports an image with numbers that this home has given out, to two files each: all get
// numbers of their own.
func TestNumbersTwiceInAnImage(t *testing.T) {
	h := openSpaces(t, filepath.Join(t.TempDir(), "home"))
	if _, err := h.Create(t.Context(), CreateRequest{Name: "w"}); err != nil {
		t.Fatal(err)
	}
	put(t, h, "w", "a")
	ino := numbers(t, h, put(t, h, "w", "b").ID)["a"]
	once, twice := flatTree{"a": ino, "b": ino + 1}, flatTree{"a": ino, "b": ino, "c": ino + 1}
	if got := numbers(t, h, imported(t, h, "once", once.image(t, h).Name())); got["a"] != ino || got["b"] != ino+1 {
		t.Errorf("got %v, want %v: they are this home's", got, once)
	}
	got := numbers(t, h, imported(t, h, "twice", twice.image(t, h).Name()))
	distinct(t, "imported", got)
	for p, n := range got {
		if n>>uppers.SpaceBits != 0 {
			t.Errorf("%q is inode %#x", p, n)
		}
	}
	sameTwins(t, "after the imports", twinsOf(t, h), map[string]map[uint64][]string{})
}

// beneath puts an image beneath a workspace without layers, with the numbers that it has, as earlier versions did.
func beneath(t *testing.T, h *Home, workspace string, files flatTree) {
	t.Helper()
	f := files.image(t, h)
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		t.Fatal(err)
	}
	im, err := squashfs.Open(f, size, squashfs.Options{})
	if err != nil {
		t.Fatal(err)
	}
	base := catalog.Layer{ID: h.catalog.NewID()}
	w := *h.catalog.Workspace(workspace)
	w.Base = base.ID
	var ch catalog.Change
	all := layers.StoreOptions{Home: h.number, Ours: func(uint32) bool { return true }}
	_, err = layers.StoreImage(t.Context(), h.store, im, all, func(tx *chunkstore.Tx, m chunkstore.Manifest) error {
		stored := base.Stored(m)
		ch = catalog.Change{PutLayers: []*catalog.Layer{&stored}, PutWorkspaces: []*catalog.Workspace{&w}}
		return h.catalog.Write(tx, &ch)
	})
	if err != nil {
		t.Fatal(err)
	}
	h.catalog.Committed(&ch)
	_, _, done, err := h.overlayOf(t.Context(), &w, false) // which makes the root's record
	if err != nil {
		t.Fatal(err)
	}
	done()
}

// TestTwinsInDirectories has twins of an upper, which stay through seal and store; what replaces its twin is none, nor
// are hard links.
func TestTwinsInDirectories(t *testing.T) {
	h := openSpaces(t, filepath.Join(t.TempDir(), "home"))
	if _, err := h.Create(t.Context(), CreateRequest{Name: "w"}); err != nil {
		t.Fatal(err)
	}
	upper := h.catalog.Workspace("w").Upper
	base := flatTree{"alone": 1<<40 | 7}
	want := map[uint64][]string{}
	for _, name := range []string{"x", "y", "z", "replaces", "unlike"} {
		at := filepath.Join(h.uppers.Path(upper), name)
		if err := os.WriteFile(at, []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
		var st unix.Stat_t
		if err := unix.Stat(at, &st); err != nil {
			t.Fatal(err)
		}
		ino := uppers.InoBase(upper) | st.Ino
		switch name {
		case "replaces":
			base[name] = ino
		case "unlike": // no other file has its number
		default:
			base["of-"+name] = ino
			want[ino] = []string{`of-` + name, name}
		}
	}
	if err := os.Link(filepath.Join(h.uppers.Path(upper), "y"), filepath.Join(h.uppers.Path(upper), "y2")); err != nil {
		t.Fatal(err)
	}
	for ino, paths := range want {
		if paths[1] == "y" {
			want[ino] = append(paths, "y2")
		}
	}
	beneath(t, h, "w", base)
	sameTwins(t, "upper", twinsOf(t, h), map[string]map[uint64][]string{"workspace w": want})
	s, err := h.Snapshot(t.Context(), SnapshotRequest{Workspace: "w", NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	both := map[string]map[uint64][]string{"workspace w": want, "snapshot " + s.ID: want}
	sameTwins(t, "sealed", twinsOf(t, h), both)
	if err := h.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	put(t, h, "w", "more")
	if err := h.Delete(t.Context(), RefRequest{Ref: "more"}); err != nil {
		t.Fatal(err)
	}
	if err := h.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	sameTwins(t, "stored", twinsOf(t, h), both)
}

// TestManyTwins holds that what Check tells of one tree is bounded.
func TestManyTwins(t *testing.T) {
	h := openSpaces(t, filepath.Join(t.TempDir(), "home"))
	if _, err := h.Create(t.Context(), CreateRequest{Name: "w"}); err != nil {
		t.Fatal(err)
	}
	upper := h.catalog.Workspace("w").Upper
	base := flatTree{}
	for i := range 3 * maxTwinNames {
		at := filepath.Join(h.uppers.Path(upper), fmt.Sprintf("new%d", i))
		if err := os.WriteFile(at, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		var st unix.Stat_t
		if err := unix.Stat(at, &st); err != nil {
			t.Fatal(err)
		}
		base[fmt.Sprintf("old%d", i)] = uppers.InoBase(upper) | st.Ino
	}
	beneath(t, h, "w", base)
	r, err := h.Check(t.Context(), CheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Problems) != maxTwinNames/2+1 {
		t.Errorf("%d problems, want %d", len(r.Problems), maxTwinNames/2+1)
	}
	last := r.Problems[len(r.Problems)-1].What
	if want := fmt.Sprintf("files share %d inode numbers, of which %d are told", 3*maxTwinNames, maxTwinNames/2); !strings.HasPrefix(last, want) {
		t.Errorf("got %q, want %q …", last, want)
	}
}
