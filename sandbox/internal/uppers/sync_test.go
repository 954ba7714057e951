package uppers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
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
)

// syncDisk is a file system of its own, with the uppers of a Set.
type syncDisk struct {
	t         *testing.T
	image, at string
	set       *Set
	points    map[string]int
}

func shell(t *testing.T, script string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", append([]string{"-ec", script, "sh"}, args...)...)
	cmd.WaitDelay = time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", script, err, out)
	}
}

// newSyncDisk makes one of type $SNAPFS_DISK, which writes as little as possible by itself.
func newSyncDisk(t *testing.T) *syncDisk {
	t.Helper()
	dir := t.TempDir()
	d := &syncDisk{t: t, image: filepath.Join(dir, "image"), at: filepath.Join(dir, "disk"), points: map[string]int{}}
	script := `mkdir "$2"; truncate -s 1G "$1"; mkfs.ext4 -q -m 0 -E lazy_itable_init=0 "$1"; mount -o loop,commit=300 "$1" "$2"`
	if os.Getenv("SNAPFS_DISK") == "xfs" {
		script = `mkdir "$2"; truncate -s 1G "$1"; mkfs.xfs -q "$1"; mount -o loop "$1" "$2"`
	}
	shell(t, script, d.image, d.at)
	t.Cleanup(func() {
		if err := unix.Unmount(d.at, 0); err != nil {
			t.Errorf("unmount: %v", err)
			_ = unix.Unmount(d.at, unix.MNT_DETACH)
		}
	})
	store, err := chunkstore.Open(filepath.Join(dir, "store"), chunkstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := os.Mkdir(filepath.Join(d.at, "uppers"), 0o700); err != nil {
		t.Fatal(err)
	}
	d.set, err = Open(t.Context(), Options{
		Dir: filepath.Join(d.at, "uppers"), Store: store, Records: &records{},
		Yield: func(context.Context) {}, Logger: slog.New(slog.DiscardHandler),
		Points: func(point string) { d.points[point]++ },
	})
	if err != nil {
		t.Fatal(err)
	}
	if !d.set.ordered {
		t.Error("the log of the file system is not made use of")
	}
	return d
}

// upper makes an upper.
func (d *syncDisk) upper() uint64 {
	d.t.Helper()
	n, err := d.set.Create(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	return n
}

// sync makes an upper durable as a snapshot does.
func (d *syncDisk) sync(n uint64, below ...uint64) {
	d.t.Helper()
	if err := d.set.Flush(n); err != nil {
		d.t.Fatal(err)
	}
	d.set.Leave(n)
	if err := d.set.SyncUpper(n, below); err != nil {
		d.t.Fatal(err)
	}
}

// written gives how many bytes were written to the disk.
func (d *syncDisk) written() int64 {
	d.t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(d.at, &st); err != nil {
		d.t.Fatal(err)
	}
	at := fmt.Sprintf("/sys/dev/block/%d:%d/stat", unix.Major(st.Dev), unix.Minor(st.Dev))
	b, err := os.ReadFile(at)
	if err != nil {
		d.t.Fatal(err)
	}
	const sectors = 6 // of 512 bytes, written
	n, err := strconv.ParseInt(strings.Fields(string(b))[sectors], 10, 64)
	if err != nil {
		d.t.Fatal(err)
	}
	return n * 512
}

// afterLoss runs look on what a loss of power would leave of an upper's root now.
func (d *syncDisk) afterLoss(n uint64, look func(root string)) {
	d.t.Helper()
	image, at, options := d.image+".lost", d.at+".lost", "loop"
	if os.Getenv("SNAPFS_DISK") == "xfs" {
		options += ",nouuid" // the disk itself is mounted, too
	}
	script := `while cp --sparse=always "$1" "$2"; ! cmp -s "$1" "$2"; do :; done; mkdir -p "$3"; mount -o "$4" "$2" "$3"`
	shell(d.t, script, d.image, image, at, options)
	look(filepath.Join(at, "uppers", strconv.FormatUint(n, 10), "upper"))
	if err := errors.Join(unix.Unmount(at, 0), os.Remove(image)); err != nil {
		d.t.Fatal(err)
	}
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, data, 0o644)); err != nil {
		t.Fatal(err)
	}
}

func noise(seed uint64, n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(seed)})
	_, _ = r.Read(b) // cannot fail
	return b
}

// TestSyncAlone checks that what an upper has survives a loss of power, and that nothing of a neighbour is written for
// it.
func TestSyncAlone(t *testing.T) {
	const neighbour = 64 << 20 // less than what the kernel begins to write by itself
	d := newSyncDisk(t)
	first := d.upper()
	d.sync(first)
	if d.points["file system synced"] != 1 {
		t.Error("the first sync of a process must be of all that was before")
	}
	write(t, filepath.Join(d.at, "neighbour"), noise(1, neighbour))

	n := d.upper()
	root := d.set.Path(n)
	want := map[string][]byte{"a": noise(2, 3<<20), "b/c/d": noise(3, 5000), "b/e": []byte("x"), "sparse": nil, "empty": {}}
	for name, data := range want {
		write(t, filepath.Join(root, name), data)
	}
	sparse := append(make([]byte, 1<<20), "end"...)
	want["sparse"] = sparse
	f, err := os.OpenFile(filepath.Join(root, "sparse"), os.O_RDWR, 0)
	if err == nil {
		_, err = f.WriteAt([]byte("end"), 1<<20)
	}
	if err != nil {
		t.Fatal(err)
	}
	before := d.written()
	d.sync(n, first)
	// In place, in a file whose blocks the disk has, after the flush of another snapshot.
	if _, err := f.WriteAt([]byte("END"), 1<<20); err != nil {
		t.Fatal(err)
	}
	copy(sparse[1<<20:], "END")
	if err := errors.Join(
		f.Close(), os.Rename(filepath.Join(root, "a"), filepath.Join(root, "b", "moved")),
		os.Symlink("target", filepath.Join(root, "link")), unix.Mknod(filepath.Join(root, "gone"), unix.S_IFCHR, 0),
		unix.Setxattr(filepath.Join(root, "b"), "user.x", []byte("y"), 0), os.Chmod(filepath.Join(root, "empty"), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	want["b/moved"] = want["a"]
	delete(want, "a")
	d.sync(n, first)
	if wrote := d.written() - before; wrote > neighbour/2 {
		t.Errorf("%d bytes were written for an upper of 4 MB", wrote)
	}
	if d.points["file system synced"] != 1 {
		t.Error("the whole file system was synced")
	}
	d.afterLoss(n, func(root string) {
		for name, data := range want {
			if b, err := os.ReadFile(filepath.Join(root, name)); err != nil || !bytes.Equal(b, data) {
				t.Errorf("%s: %d bytes, %d were written; %v", name, len(b), len(data), err)
			}
		}
		if to, err := os.Readlink(filepath.Join(root, "link")); err != nil || to != "target" {
			t.Error(to, err)
		}
		x := make([]byte, 8)
		if k, err := unix.Getxattr(filepath.Join(root, "b"), "user.x", x); err != nil || string(x[:k]) != "y" {
			t.Error(string(x), err)
		}
		var st unix.Stat_t
		if err := unix.Lstat(filepath.Join(root, "gone"), &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR {
			t.Error(st.Mode, err)
		}
		if err := unix.Lstat(filepath.Join(root, "a"), &st); !errors.Is(err, unix.ENOENT) {
			t.Error(err)
		}
	})
}

// TestSyncBelow checks that a snapshot that lies on what is not durable makes that durable, too, and that one of very
// many files syncs all.
func TestSyncBelow(t *testing.T) {
	d := newSyncDisk(t)
	d.sync(d.upper())
	below := d.upper()
	write(t, filepath.Join(d.set.Path(below), "file"), []byte("data"))
	d.set.Leave(below)
	all := func() int { return d.points["file system synced"] }
	was := all()
	d.sync(d.upper())
	if all() != was {
		t.Error("what is not below was synced")
	}
	d.sync(d.upper(), below)
	if all() != was+1 {
		t.Error("what is below was not synced")
	}
	d.afterLoss(below, func(root string) {
		if b, err := os.ReadFile(filepath.Join(root, "file")); err != nil || string(b) != "data" {
			t.Errorf("%q, %v", b, err)
		}
	})
	d.sync(d.upper(), below)
	if err := d.set.SyncSealed([]uint64{below}); err != nil || all() != was+1 {
		t.Error("what is below was synced twice", err)
	}
	many := d.upper()
	for i := range mostSynced {
		write(t, filepath.Join(d.set.Path(many), strconv.Itoa(i)), []byte{1})
	}
	d.sync(many)
	if all() == was+1 {
		t.Error("very many files were synced one by one")
	}
	d.afterLoss(many, func(root string) {
		if b, err := os.ReadFile(filepath.Join(root, strconv.Itoa(mostSynced-1))); err != nil || len(b) != 1 {
			t.Errorf("%q, %v", b, err)
		}
	})
}

// TestWritesRanges: kernels that are too old, or not known, sync the whole file system.
func TestWritesRanges(t *testing.T) {
	for release, want := range map[string]bool{
		"4.4.0": false, "4.19.0-25-amd64": false, "5.1.21": false, "5.2.0": true, "5.10.0-rc1+": true, "6.18.44": true,
		"10.0": true, "": false, "linux": false, "6": false,
	} {
		if got := writesRanges(release); got != want {
			t.Errorf("%q: %t, want %t", release, got, want)
		}
	}
}
