package layers

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"snapfs/internal/testseed"
)

// TestCaptureChangesRandom works on a kernel overlayfs, and compares what it shows with layers of what has changed since the
// last capture, one on the other, and with what they are merged into.
func TestCaptureChangesRandom(t *testing.T) {
	seed := testseed.Of(t)
	for i := range 4 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel() // it waits for the disk
			captureChangesRandom(t, rand.New(rand.NewPCG(seed, uint64(i))))
		})
	}
}

func captureChangesRandom(t *testing.T, rng *rand.Rand) {
	k := newKernelUpper(t, randomTree(t, rng))
	if !k.exact() {
		t.Skip("change times of this file system cannot be relied on")
	}
	kept := keptFiles(t, k)
	on, same := 0, 0
	for range 25 {
		for range rng.IntN(8) {
			kernelEdit(t, k, rng)
		}
		if rng.IntN(2) == 0 {
			sameAgain(t, kept[rng.IntN(len(kept))], byte('a'+rng.IntN(26)))
		}
		if rng.IntN(4) == 0 {
			age()
		}
		onLast, told := k.captureChanges()
		if !told.Quiet || told.TornFiles > 0 {
			t.Errorf("nobody wrote: %+v", told)
		}
		if onLast {
			on++
		}
		if told.Same {
			same++
		}
		want := shown(t, k.at)
		samePicture(t, fmt.Sprintf("%d layers", len(k.stack)), shownBy(t, k.stack), want)
		if len(k.stack) > 3 && rng.IntN(3) == 0 {
			m, err := Merge(t.Context(), k.store, k.stack, len(k.stack)-1, StoreOptions{Home: 5}, nil)
			if err != nil {
				t.Fatal(err)
			}
			k.stack = []*Lower{k.stored(m), k.base}
			samePicture(t, "merged", shownBy(t, k.stack), want)
		}
		if t.Failed() {
			return
		}
	}
	t.Logf("%d of 25 were layers over the last, %d the same", on, same)
	if on == 0 {
		t.Error("all were captured whole")
	}
}

// TestCaptureChanges tells what a layer has.
func TestCaptureChanges(t *testing.T) {
	lower := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []string{"copied/deep", "renamed/deep", "replaced/deep"} {
		must(os.MkdirAll(filepath.Join(lower, d), 0o755))
		must(os.WriteFile(filepath.Join(lower, d, "file"), []byte("lower"), 0o644))
	}
	k := newKernelUpper(t, lower)
	if !k.exact() {
		t.Skip("change times of this file system cannot be relied on")
	}
	at := func(name string) string { return filepath.Join(k.at, name) }
	write := func(name, text string) { t.Helper(); must(os.WriteFile(at(name), []byte(text), 0o644)) }
	for d := range 5 {
		must(os.MkdirAll(at(fmt.Sprint("own/", d)), 0o755))
		for f := range 10 {
			write(fmt.Sprint("own/", d, "/", f), strings.Repeat("text", f))
		}
	}
	must(os.Link(at("own/1/1"), at("own/2/link")))
	f, err := os.OpenFile(at("own/0/9"), os.O_RDWR, 0)
	must(err)
	mapped, err := unix.Mmap(int(f.Fd()), 0, 36, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	must(errors.Join(err, f.Close()))
	defer func() { must(unix.Munmap(mapped)) }()
	age()
	for _, c := range []struct {
		what  string
		do    func()
		whole bool
		names int // that the layer has, without the root and whiteouts
	}{
		{"all", func() {}, true, 57},
		{"nothing", func() {}, false, 0},
		{"a file", func() { write("own/3/3", "edit") }, false, 3},
		{"a mapping", func() { mapped[3] = 'x' }, false, 3},
		{"a mapping again", func() { mapped[3] = 'y' }, false, 3},
		{"a file is made", func() { write("own/3/new", "edit") }, false, 3},
		{"a file goes", func() { must(os.Remove(at("own/3/4"))) }, false, 2},
		{"a lower file goes", func() { must(os.Remove(at("copied/deep/file"))) }, false, 2},
		{"one is written below", func() { write("replaced/deep/file", "upper") }, false, 3},
		{"a file with two names", func() { write("own/2/link", "both") }, false, 5},
		{"one of its names goes", func() { must(os.Remove(at("own/1/1"))) }, false, 4},
		{"a directory is moved", func() { must(os.Rename(at("own/4"), at("own/3/moved"))) }, false, 13},
		{"another in its place", func() { must(os.RemoveAll(at("own/2"))); must(os.Mkdir(at("own/2"), 0o700)) }, false, 2},
		{"in place of a lower one", func() { must(os.RemoveAll(at("replaced"))); must(os.Mkdir(at("replaced"), 0o700)) }, false, 1},
		{"a mode", func() { must(os.Chmod(at("own/0"), 0o711)) }, false, 2},
		{"a lower directory is renamed", func() { must(os.Rename(at("renamed"), at("new"))) }, true, 0},
	} {
		c.do()
		if !isFine(filepath.Dir(k.upper)) {
			age()
		}
		onLast, told := k.captureChanges()
		want := c.what == "nothing"
		if told.Same != want || !want && onLast == c.whole {
			t.Errorf("%s: same %v, over the last: %v", c.what, told.Same, onLast)
		}
		samePicture(t, c.what, shownBy(t, k.stack), shown(t, k.at))
		if c.names > 0 {
			if got := len(picture(t, k.stack[:1])) - 1; got != c.names {
				t.Errorf("%s: the layer has %d names, want %d: %q", c.what, got, c.names, picture(t, k.stack[:1]))
			}
		}
		if t.Failed() {
			return
		}
	}
}
