package sandbox

import (
	"errors"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"snapfs/chunkstore"
	"snapfs/layers"
	"snapfs/sandbox/internal/uppers"
	"snapfs/squashfs"
)

// openSpaces opens a home.
func openSpaces(t *testing.T, dir string) *Home {
	t.Helper()
	return openFewSpaces(t, dir, 0)
}

// openFewSpaces opens a home that gives out the spaces of inode numbers up to last.
func openFewSpaces(t *testing.T, dir string, last uint64) *Home {
	t.Helper()
	h, err := Open(t.Context(), dir, Options{lastSpace: last})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

// put writes a file into a workspace that is not mounted, as its overlay would, and takes a snapshot.
func put(t *testing.T, h *Home, workspace, name string) Snapshot {
	t.Helper()
	dir := h.uppers.Path(h.catalog.Workspace(workspace).Upper)
	if err := os.WriteFile(filepath.Join(dir, name), []byte(workspace+name), 0o644); err != nil {
		t.Fatal(err)
	}
	s, err := h.Snapshot(t.Context(), SnapshotRequest{Workspace: workspace, Name: name, WaitStored: true, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// numbers gives the inode numbers of a snapshot by path.
func numbers(t *testing.T, h *Home, snapshot string) map[string]uint64 {
	t.Helper()
	tree, err := h.openLayers(t.Context(), h.catalog.Snapshot(snapshot).Top, "")
	if err != nil {
		t.Fatal(err)
	}
	defer tree.close()
	src, err := layers.Merged(tree.lowers)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = src.(io.Closer).Close() }() // it cannot fail
	found := map[string]uint64{}
	var walk func(at string, e *squashfs.Entry)
	walk = func(at string, e *squashfs.Entry) {
		found[at] = e.Attr.Ino
		if e.Attr.Mode&0o170000 != 0o040000 {
			return
		}
		names, err := src.Names(t.Context(), e)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			c, err := src.Entry(t.Context(), e, name)
			if err != nil {
				t.Fatal(err)
			}
			walk(path.Join(at, name), c)
		}
	}
	root, err := src.Root(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	walk("", root)
	return found
}

// firstSpace is the first space that a home gives out.
const firstSpace = 1<<8 + 1

// nextSpace is the record of the space that comes next.
func nextSpace(t *testing.T, h *Home) (next string) {
	t.Helper()
	err := h.store.View(t.Context(), func(tx *chunkstore.Tx) error {
		v, err := tx.Get("meta", keyNextUpper)
		next = string(v)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return next
}

// keyNextUpper is the key of that record.
const keyNextUpper = "next-upper"

// distinct fails if two paths have one number.
func distinct(t *testing.T, what string, n map[string]uint64) {
	t.Helper()
	seen := map[uint64]string{}
	for p, ino := range n {
		if q, ok := seen[ino]; ok {
			t.Errorf("%s: %q and %q are both inode %d", what, p, q, ino)
		}
		seen[ino] = p
	}
}

// TestSpacesComeAgain uses up a few spaces of inode numbers again and again. What is still in use is never given out.
func TestSpacesComeAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "home")
	h := openFewSpaces(t, dir, firstSpace+24)
	create := func(name string) error {
		_, err := h.Create(t.Context(), CreateRequest{Name: name})
		return err
	}
	if err := create("kept"); err != nil {
		t.Fatal(err)
	}
	put(t, h, "kept", "a")
	kept := put(t, h, "kept", "b")
	want := numbers(t, h, kept.ID)
	for i := range 12 {
		if i == 6 { // what is known of the spaces outlives the daemon
			if err := h.Close(); err != nil {
				t.Fatal(err)
			}
			h = openFewSpaces(t, dir, firstSpace+24)
		}
		name := "w" + strconv.Itoa(i)
		if err := create(name); err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
		s := put(t, h, name, "f")
		n := numbers(t, h, s.ID)
		distinct(t, name, n)
		for p, ino := range n {
			for q, other := range want {
				if ino == other && p != "" {
					t.Errorf("round %d: %q has inode %d of %q", i, p, ino, q)
				}
			}
		}
		_, err := h.Destroy(t.Context(), DestroyRequest{Ref: name, Now: true})
		if err := errors.Join(h.Delete(t.Context(), RefRequest{Ref: s.ID}), err); err != nil {
			t.Fatal(err)
		}
		if err := h.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if next := nextSpace(t, h); !strings.HasSuffix(next, " wrapped") {
		t.Errorf("the spaces did not run out: next is %q", next)
	}
	if got := numbers(t, h, kept.ID); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for i := 0; ; i++ {
		err := create("full" + strconv.Itoa(i))
		if errors.Is(err, ErrUnavailable) {
			break
		}
		if err != nil || i > 30 {
			t.Fatalf("workspace %d: %v, want %v", i, err, ErrUnavailable)
		}
	}
}

// TestNumbersOfOldHome opens a home of a version that counted uppers, over images with numbers of another home.
func TestNumbersOfOldHome(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "home")
	h := openSpaces(t, dir)
	if _, err := h.Create(t.Context(), CreateRequest{Name: "w"}); err != nil {
		t.Fatal(err)
	}
	s := put(t, h, "w", "foreign")
	// create makes an upper and gives the space that its number tells.
	create := func() uint64 {
		t.Helper()
		n, err := h.uppers.Create(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := h.uppers.Remove(n); err != nil {
			t.Fatal(err)
		}
		return uppers.InoBase(n) >> uppers.SpaceBits
	}
	if err := h.store.Update(t.Context(), true, func(tx *chunkstore.Tx) error {
		return tx.Put("meta", keyNextUpper, []byte("7"))
	}); err != nil {
		t.Fatal(err)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	h = openSpaces(t, dir)
	if n := create(); n != 7<<8+1 {
		t.Errorf("after upper 6 comes space %#x", n)
	}
	// The image has numbers that come next when the spaces have run out, which the old version would have given out.
	space := numbers(t, h, s.ID)["foreign"] >> uppers.SpaceBits
	if space != firstSpace {
		t.Fatalf("space %d", space)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	h = openFewSpaces(t, dir, 7<<8+1) // it has been reached
	if n := create(); n <= space || n > 7<<8+1 {
		t.Errorf("got space %#x: the numbers of an image", n)
	}
	if next := nextSpace(t, h); !strings.HasSuffix(next, " wrapped") {
		t.Errorf("the spaces did not run out: next is %q", next)
	}
}

// TestNumbersOfImports holds that what comes from another home gets numbers of its own, and what comes back keeps those
// that it has.
func TestNumbersOfImports(t *testing.T) {
	tmp := t.TempDir()
	here, there := openSpaces(t, filepath.Join(tmp, "here")), openSpaces(t, filepath.Join(tmp, "there"))
	if _, err := here.Create(t.Context(), CreateRequest{Name: "w"}); err != nil {
		t.Fatal(err)
	}
	put(t, here, "w", "a")
	s := put(t, here, "w", "b")
	want := numbers(t, here, s.ID)
	distinct(t, "made here", want)
	for _, compression := range []string{"none", "zstd"} {
		file := filepath.Join(tmp, compression+".sqsh")
		if _, err := here.Export(t.Context(), ExportRequest{Snapshot: s.ID, Path: file, Compression: compression}); err != nil {
			t.Fatal(err)
		}
		back := imported(t, here, "back-"+compression, file)
		if got := numbers(t, here, back); !maps.Equal(got, want) {
			t.Errorf("%s: back home: got %v, want %v", compression, got, want)
		}
		away := numbers(t, there, imported(t, there, "away-"+compression, file))
		distinct(t, "imported", away)
		for p, ino := range away {
			if ino>>uppers.SpaceBits != 0 {
				t.Errorf("%s: imported %q is inode %#x", compression, p, ino)
			}
		}
		// The claim of a home alone proves nothing: these numbers are those of the first upper to come.
		liar := openSpaces(t, filepath.Join(tmp, "liar-"+compression))
		liar.number = here.number
		for p, ino := range numbers(t, liar, imported(t, liar, "lie", file)) {
			if ino>>uppers.SpaceBits != 0 {
				t.Errorf("%s: %q, of a false home, is inode %#x", compression, p, ino)
			}
		}
	}
}

// imported takes a snapshot of a workspace created from an image.
func imported(t *testing.T, h *Home, name, file string) string {
	t.Helper()
	if _, err := h.Create(t.Context(), CreateRequest{Name: name, Source: file}); err != nil {
		t.Fatal(err)
	}
	s, err := h.Snapshot(t.Context(), SnapshotRequest{Workspace: name, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	return s.ID
}

// TestNumbersNeverEnd opens homes that have given out nearly all numbers of uppers, those of earlier versions included:
// what nothing uses any more comes again, and what is in use does not.
func TestNumbersNeverEnd(t *testing.T) {
	for _, next := range []string{"16777215", "16777216", "space 2147483646", "space 2147483648", "space 2147483600 wrapped"} {
		t.Run(next, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "home")
			h := openSpaces(t, dir)
			if _, err := h.Create(t.Context(), CreateRequest{Name: "w"}); err != nil {
				t.Fatal(err)
			}
			put(t, h, "w", "early")
			if err := h.store.Update(t.Context(), true, func(tx *chunkstore.Tx) error {
				return tx.Put("meta", keyNextUpper, []byte(next))
			}); err != nil {
				t.Fatal(err)
			}
			if err := h.Close(); err != nil {
				t.Fatal(err)
			}
			h = openSpaces(t, dir)
			given := map[uint64]bool{}
			for range 300 { // more than are left
				n, err := h.uppers.Create(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if space := uppers.InoBase(n) >> uppers.SpaceBits; given[space] || space >= 1<<31 {
					t.Fatalf("space %d was given out before, or is none", space)
				} else {
					given[space] = true
				}
				if err := h.uppers.Remove(n); err != nil {
					t.Fatal(err)
				}
			}
			var last Snapshot
			for i := range 3 {
				last = put(t, h, "w", "late"+strconv.Itoa(i))
			}
			distinct(t, "all files", numbers(t, h, last.ID))
			if after := nextSpace(t, h); !strings.HasSuffix(after, " wrapped") {
				t.Errorf("the spaces did not run out: next is %q", after)
			}
			if err := h.Close(); err != nil {
				t.Fatal(err)
			}
			h = openSpaces(t, dir)
			distinct(t, "opened again", numbers(t, h, last.ID))
		})
	}
}
