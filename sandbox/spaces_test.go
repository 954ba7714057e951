package sandbox

import (
	"errors"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"testing"

	"snapfs/chunkstore"
	"snapfs/layers"
	"snapfs/squashfs"
)

// openSpaces opens a home whose checks find nothing in the end.
func openSpaces(t *testing.T, dir string) *Home {
	t.Helper()
	h, err := Open(t.Context(), dir, Options{})
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
	dir := h.uppers.path(h.catalog.workspace(workspace).Upper)
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
	tree, err := h.openLayers(t.Context(), h.catalog.snapshot(snapshot).Top, "")
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
	h := openSpaces(t, dir)
	h.uppers.mu.Lock()
	h.uppers.last = firstSpace + 24
	h.uppers.mu.Unlock()
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
			h = openSpaces(t, dir)
			h.uppers.mu.Lock()
			h.uppers.last = firstSpace + 24
			h.uppers.mu.Unlock()
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
		if err := errors.Join(h.Delete(t.Context(), RefRequest{Ref: s.ID}), h.Destroy(t.Context(), RefRequest{Ref: name})); err != nil {
			t.Fatal(err)
		}
		if err := h.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	h.uppers.mu.Lock()
	wrapped := h.uppers.wrapped
	h.uppers.mu.Unlock()
	if !wrapped {
		t.Error("the spaces did not run out")
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

// TestWideHost has a host whose inode numbers have more than 32 bits: each upper half gets a space of its own, the same for good.
func TestWideHost(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "home")
	h := openSpaces(t, dir)
	seen := map[uint64]bool{}
	was := map[uint64]uint64{}
	h.uppers.mu.Lock()
	h.uppers.next = 2 << 8 // of an old home
	h.uppers.mu.Unlock()
	base := []uint64{inoBase(1)}
	for range 2 {
		n, err := h.uppers.number(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		base = append(base, inoBase(n))
	}
	for _, b := range base {
		if seen[b] {
			t.Errorf("base %#x twice", b)
		}
		seen[b] = true
		for _, high := range []uint64{1, 0xff, 0x100, 1 << 20, 1<<32 - 1} {
			got, err := h.uppers.wideIno(b, high)
			if err != nil {
				t.Fatal(err)
			}
			if seen[got] || got&(1<<spaceBits-1) != 0 || got >= 1<<63 {
				t.Errorf("upper of %#x: inodes from %#x on have the numbers from %#x on", b, high<<32, got)
			}
			seen[got] = true
			was[b^high] = got
		}
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = h.uppers.wideIno(base[1], 1<<20) }); n != 0 {
		t.Errorf("%v allocations for a number that is known", n)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	h = openSpaces(t, dir)
	for _, b := range base {
		for _, high := range []uint64{1, 0x100, 1<<32 - 1} {
			if got, err := h.uppers.wideIno(b, high); err != nil || got != was[b^high] {
				t.Errorf("opened again: got %#x, %v, want %#x", got, err, was[b^high])
			}
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
	next := func(version string) uint64 {
		t.Helper()
		if err := h.store.Update(t.Context(), true, func(tx *chunkstore.Tx) error {
			return tx.Put(bucketMeta, keyNextUpper, []byte(version))
		}); err != nil {
			t.Fatal(err)
		}
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
		h = openSpaces(t, dir)
		n, err := h.uppers.number(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		h.uppers.made(n)
		return n
	}
	if n := next("7"); n != spaceUppers+7<<8+1 {
		t.Errorf("after upper 6 comes %#x", n)
	}
	// The image has numbers that come next in this home, which the old version would have given out.
	space := numbers(t, h, s.ID)["foreign"] >> spaceBits
	if space&0xff != firstSpace&0xff {
		t.Fatalf("space %d", space)
	}
	h.uppers.mu.Lock()
	h.uppers.next, h.uppers.survey = space, true
	h.uppers.mu.Unlock()
	if n, err := h.uppers.number(t.Context()); err != nil || n <= spaceUppers+space {
		t.Errorf("got %#x, %v: the numbers of an image", n, err)
	}
}

// TestNumbersOfImports holds that what comes from another home gets numbers of its own, and what comes back keeps those that it has.
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
			if ino>>spaceBits != 0 {
				t.Errorf("%s: imported %q is inode %#x", compression, p, ino)
			}
		}
		// The claim of a home alone proves nothing: these numbers are those of the first upper to come.
		liar := openSpaces(t, filepath.Join(tmp, "liar-"+compression))
		liar.number = here.number
		for p, ino := range numbers(t, liar, imported(t, liar, "lie", file)) {
			if ino>>spaceBits != 0 {
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
