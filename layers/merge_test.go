package layers

import (
	"context"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/chunkstore"
	"snapfs/internal/testseed"
	"snapfs/internal/treewalk"
	"snapfs/squashfs"
)

// randomRounds runs a test with so many seeds in a row, 300 under SNAPFS_LONG, up to the first that fails.
func randomRounds(t *testing.T, rounds int, round func(t *testing.T, seed uint64)) {
	t.Helper()
	seed := testseed.Of(t)
	if os.Getenv("SNAPFS_LONG") != "" {
		rounds = 300
	}
	for i := range rounds {
		if !t.Run(strconv.Itoa(i), func(t *testing.T) { round(t, seed+uint64(i)) }) {
			t.Fatalf("SNAPFS_SEED=%d", seed+uint64(i))
		}
	}
}

// TestMergeRandom makes random changes in several layers, merges random runs of them, also of layers that were merged
// before, and compares the trees, by our own overlay and by the kernel's.
func TestMergeRandom(t *testing.T) {
	randomRounds(t, 3, mergeRound)
}

// TestMergeOfDirectories holds that only images are merged: of a directory's partial file the layer has no whole
// contents.
func TestMergeOfDirectories(t *testing.T) {
	s := openStore(t)
	r := newRig(t)
	r.seal()
	r.seal()
	if m, err := Merge(t.Context(), s, r.lowers, 2, StoreOptions{}, nil); err == nil {
		t.Fatalf("got %+v, want an error", m)
	}
}

// mergeRound makes six layers and merges some of them twice.
func mergeRound(t *testing.T, seed uint64) {
	const layerCount, stepsPerLayer = 6, 60
	rng := rand.New(rand.NewPCG(seed, 2))
	s := openStore(t)
	base, err := StoreTree(t.Context(), s, randomLower(t, rng, true), StoreOptions{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := newRigOver(t, openStored(t, s, "base", base))
	for range layerCount {
		for range stepsPerLayer {
			r.do(randomStep(rng))
		}
		r.seal()
	}
	want := picture(t, r.lowers)
	wantNoTwins(t, r.lowers)
	stack := storeAll(t, s, r.lowers)
	samePicture(t, "stored", picture(t, stack), want)
	wantNoTwins(t, stack)
	kernel := kernelWalk(t, stack)
	for range 3 {
		from := rng.IntN(len(stack) - 1)
		n := 2 + rng.IntN(len(stack)-from-1)
		m, err := Merge(t.Context(), s, stack[from:], n, StoreOptions{}, nil)
		if err != nil {
			t.Fatalf("merge %d of %d from %d: %v", n, len(stack), from, err)
		}
		merged := openStored(t, s, "merged"+strconv.Itoa(from)+"+"+strconv.Itoa(n), m)
		t.Cleanup(func() { _ = merged.Close() }) // read only
		next := append(append(append([]*Lower{}, stack[:from]...), merged), stack[from+n:]...)
		samePicture(t, "merged", picture(t, next), want)
		for _, d := range treewalk.Diff(kernelWalk(t, next), kernel, treewalk.Options{IgnoreExtents: true}) {
			t.Errorf("the kernel sees another tree: %.300s", d)
		}
		if t.Failed() || len(next) < 3 {
			return
		}
		stack = next
	}
}

// storeAll stores a stack's sealed layers as images; the test closes them.
func storeAll(t *testing.T, s *chunkstore.Store, lowers []*Lower) []*Lower {
	t.Helper()
	stack := []*Lower{lowers[len(lowers)-1]}
	for i := len(lowers) - 2; i >= 0; i-- {
		m, err := Store(t.Context(), s, lowers[i], stack, StoreOptions{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		l := openStored(t, s, lowers[i].Key(), m)
		t.Cleanup(func() { _ = l.Close() }) // read only
		stack = append([]*Lower{l}, stack...)
	}
	return stack
}

// kernelWalk unpacks every layer of a stack, mounts them with the kernel's overlayfs and lists the tree.
func kernelWalk(t *testing.T, stack []*Lower) []treewalk.Node {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	work := t.TempDir()
	var dirs []string
	for i, l := range stack {
		src, err := Delta(l, stack[i+1:])
		if err != nil {
			t.Fatal(err)
		}
		image, dir := filepath.Join(work, "image"), filepath.Join(work, strconv.Itoa(i))
		f, err := os.Create(image)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := squashfs.WriteShip(ctx, f, src, squashfs.ShipOptions{Compression: "lz4"}); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(ctx, "unsquashfs", "-quiet", "-no-progress", "-force", "-dest", dir, image)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("unsquashfs: %v: %s", err, out)
		}
		dirs = append(dirs, dir)
	}
	if len(dirs) == 1 {
		empty := filepath.Join(work, "empty") // the kernel wants two
		if err := os.Mkdir(empty, 0o755); err != nil {
			t.Fatal(err)
		}
		dirs = append(dirs, empty)
	}
	mount := t.TempDir()
	opts := "redirect_dir=follow,metacopy=on,lowerdir=" + strings.Join(dirs, ":")
	if err := unix.Mount("overlay", mount, "overlay", unix.MS_RDONLY, opts); err != nil {
		t.Fatal("mount: ", err)
	}
	nodes, err := treewalk.Walk(mount)
	if e := unix.Unmount(mount, unix.MNT_DETACH); e != nil {
		t.Error(e)
	}
	if err != nil {
		t.Fatal(err)
	}
	for i := range nodes {
		nodes[i].Ino = 0 // the kernel makes them up
	}
	return nodes
}
