package squashfs_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"snapfs/internal/treewalk"
)

// long says whether the full cross products run.
func long() bool { return os.Getenv("SNAPFS_LONG") != "" }

// TestReadMksquashfs reads what mksquashfs writes.
func TestReadMksquashfs(t *testing.T) {
	root := makeTree(t)
	want, err := treewalk.Walk(root)
	must(t, err)
	compressors := []string{"gzip", "zstd", "lz4", "xz", "lzo", "lzma"}
	blocks := []string{"4K", "128K", "1M"}
	variants := []string{
		"", "-no-fragments", "-always-use-fragments", "-no-xattrs", "-tailends", "-noI -noD -noF -noX", "-noD", "-noF -noId",
		"-no-exports -no-duplicates", "-nopad", "-no-sparse", "-xattrs", "-all-time 7",
	}
	var combos [][3]string
	for i, c := range compressors {
		for j, b := range blocks {
			for k, v := range variants {
				// In short runs each compressor and block size occurs, and each variant once.
				if long() || (k == 0 && (i+j)%3 == 0) || (i == k%len(compressors) && j == k%len(blocks)) {
					combos = append(combos, [3]string{c, b, v})
				}
			}
		}
	}
	combos = append(combos,
		[3]string{"xz", "128K", "-Xbcj x86,arm,armthumb,powerpc,sparc,ia64"},
		[3]string{"lz4", "128K", "-Xhc"},
		[3]string{"gzip", "64K", "-Xwindow-size 10 -Xstrategy huffman_only,run_length_encoded,fixed"},
		[3]string{"lzo", "64K", "-Xalgorithm lzo1x_1"},
		[3]string{"zstd", "256K", "-Xcompression-level 22"},
	)
	for _, c := range combos {
		t.Run(strings.TrimSpace(strings.Join(c[:], " ")), func(t *testing.T) {
			t.Parallel()
			img := filepath.Join(t.TempDir(), "img.sqsh")
			args := []string{root, img, "-noappend", "-no-progress", "-quiet", "-comp", c[0], "-b", c[1], "-processors", "1"}
			run(t, "mksquashfs", append(args, strings.Fields(c[2])...)...)
			sound(t, img)
			got, err := walkImage(openImage(t, img))
			must(t, err)
			sameTree(t, want, got, treewalk.Options{
				IgnoreExtents: true, IgnoreXattrs: strings.Contains(c[2], "no-xattrs"), IgnoreMtime: strings.Contains(c[2], "all-time"),
			})
		})
	}
}
