package squashfs_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"snapfs/internal/treewalk"
)

// long says whether the full cross products run.
func long() bool { return os.Getenv("SNAPFS_LONG") != "" }

// TestReadMksquashfs reads what mksquashfs writes.
func TestReadMksquashfs(t *testing.T) {
	root := makeTree(t)
	want, err := treewalk.Walk(root)
	must(t, err)
	compressors := []string{"gzip", "lz4", "lzo", "zstd", "xz", "lzma"}
	blocks := []string{"4K", "128K", "1M"}
	variants := []string{
		"", "-no-fragments", "-always-use-fragments", "-no-xattrs", "-tailends", "-noI -noD -noF -noX", "-noD",
		"-noF -noId",
		"-no-exports -no-duplicates", "-nopad", "-no-sparse", "-xattrs", "-all-time 7",
	}
	var combos [][3]string
	for i, c := range compressors {
		for j, b := range blocks {
			for k, v := range variants {
				// In short runs each compressor and block size occurs, and each variant once, with a compressor that is
				// fast.
				if long() || (k == 0 && (i+j)%3 == 0) || (i == k%3 && j == k%len(blocks)) {
					combos = append(combos, [3]string{c, b, v})
				}
			}
		}
	}
	combos = append(combos,
		[3]string{"xz", "128K", "-Xbcj x86,arm"},
		[3]string{"lz4", "128K", "-Xhc"},
		[3]string{"gzip", "64K", "-Xwindow-size 10 -Xstrategy huffman_only,run_length_encoded,fixed"},
		[3]string{"lzo", "64K", "-Xalgorithm lzo1x_1"},
		[3]string{"zstd", "256K", "-Xcompression-level 3"},
	)
	for _, c := range combos {
		t.Run(strings.TrimSpace(strings.Join(c[:], " ")), func(t *testing.T) {
			t.Parallel()
			img := filepath.Join(t.TempDir(), "img.sqsh")
			args := []string{
				root, img, "-noappend", "-no-progress", "-quiet", "-comp", c[0], "-b", c[1], "-processors",
				"1",
			}
			run(t, "mksquashfs", append(args, strings.Fields(c[2])...)...)
			sound(t, img)
			got, err := walkImage(openImage(t, img))
			must(t, err)
			sameTree(t, want, got, treewalk.Options{
				IgnoreExtents: true, IgnoreXattrs: strings.Contains(c[2], "no-xattrs"),
				IgnoreMtime: strings.Contains(c[2], "all-time"),
			})
		})
	}
}

// TestReadGensquashfs reads what squashfs-tools-ng writes. It links nothing, leaves out empty xattrs and the root's
// time.
func TestReadGensquashfs(t *testing.T) {
	root := makeTree(t)
	dropEmptyXattrs(t, root)
	want, err := treewalk.Walk(root)
	must(t, err)
	for i, args := range [][]string{
		{"-c", "gzip"},
		{"-c", "zstd", "-b", "4K", "-e"},
		{"-c", "lz4", "-b", "1M"},
		{"-c", "xz", "-X", "x86,arm"},
		{"-c", "lzma", "-T"},
		{"-c", "lzo"},
	} {
		if i > 2 && !long() {
			break
		}
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			t.Parallel()
			img := filepath.Join(t.TempDir(), "img.sqsh")
			run(t, "gensquashfs", append(args, "-D", root, "-k", "-x", "-q", "-j", "1", img)...)
			sound(t, img)
			got, err := walkImage(openImage(t, img))
			must(t, err)
			sameTree(t, want, got, treewalk.Options{IgnoreExtents: true, IgnoreNlink: true, IgnoreRoot: true})
		})
	}
}

// TestReadHugeDirectory looks up and lists names of a directory of 100,000.
func TestReadHugeDirectory(t *testing.T) {
	const count = 100_000
	name := func(i int) string { return fmt.Sprintf("entry-%06d", i) }
	mode := func(i int) uint32 { return unix.S_IFREG | 0o600 | uint32(i%8)&0o5 }
	src, img := t.TempDir(), filepath.Join(t.TempDir(), "img.sqsh")
	// quicker to fill and to drop than a disk
	run(t, "mount", "-t", "tmpfs", "-o", "size=256m,nr_inodes=200k", "none", src)
	t.Cleanup(func() { run(t, "umount", src) })
	for i := range count {
		must(t, unix.Mknod(filepath.Join(src, name(i)), mode(i), 0))
	}
	run(t, "mksquashfs", src, img, "-noappend", "-no-progress", "-quiet", "-comp", "lz4")
	sound(t, img)
	im := openImage(t, img)
	root, err := im.Inode(im.Root())
	must(t, err)
	for _, i := range []int{0, 1, 255, 256, 257, count / 2, count - 2, count - 1} {
		e, err := root.Lookup(name(i))
		must(t, err)
		n, err := im.Inode(e.Ref)
		must(t, err)
		if got := n.Attr().Mode; got != mode(i) {
			t.Errorf("%s has mode %o", name(i), got)
		}
	}
	for _, missing := range []string{"a", "entry-", "entry-050000x", "z"} {
		if _, err := root.Lookup(missing); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", missing, err)
		}
	}
	for _, from := range []int{-1, 0, 99, 50_000, count - 1} {
		after := ""
		if from >= 0 {
			after = name(from)
		}
		next := from + 1
		for e, err := range root.ReadDir(after) {
			must(t, err)
			if e.Name != name(next) {
				t.Fatalf("after %q: got %s, want %s", after, e.Name, name(next))
			}
			next++
		}
		if next != count {
			t.Errorf("after %q: listing ends at %d", after, next)
		}
	}
}
