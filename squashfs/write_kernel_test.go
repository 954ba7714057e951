package squashfs_test

import (
	"bytes"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"snapfs/squashfs"
)

// TestKernelReadsExtremes: the longest attribute and the largest device number that fit, in every form, as the kernel
// sees them. The ship form's bytes depend neither on the number of workers nor on that of processors.
func TestKernelReadsExtremes(t *testing.T) {
	big := bytes.Repeat([]byte("0123456789abcdef"), 4096)
	file := fileEntry("file", 3, 10)
	file.Xattrs = []squashfs.Xattr{
		{Name: "user.big", Value: big},
		{Name: "trusted.overlay.opaque", Value: []byte("y")},
		{Name: "security.other", Value: []byte{0, 1, 2}},
	}
	dev := fileEntry("dev", 4, 0)
	dev.Attr.Mode, dev.Attr.Rdev = unix.S_IFBLK|0o640, unix.Mkdev(4095, 1<<20-1)
	dev.Xattrs = file.Xattrs[1:2]
	src := oneDir(file, dev)

	images := map[string]string{}
	images["store"], _ = store(t, src)
	for _, c := range []string{"none", "zstd", "gzip", "xz", "lz4"} {
		images[c] = ship(t, src, squashfs.ShipOptions{Compression: c, Workers: 1})
		before := runtime.GOMAXPROCS(4)
		again := ship(t, src, squashfs.ShipOptions{Compression: c, Workers: 7})
		runtime.GOMAXPROCS(before)
		sameBytes(t, images[c], again)
	}
	for form, image := range images {
		t.Run(form, func(t *testing.T) {
			sound(t, image)
			dir := mountImage(t, image)
			value := make([]byte, len(big)+1)
			n, err := unix.Lgetxattr(filepath.Join(dir, "file"), "user.big", value)
			if err != nil || !bytes.Equal(value[:n], big) {
				t.Errorf("attribute of %d bytes, %v", n, err)
			}
			n, err = unix.Lgetxattr(filepath.Join(dir, "dev"), "trusted.overlay.opaque", value)
			if err != nil || string(value[:n]) != "y" {
				t.Errorf("attribute of a device: %q, %v", value[:max(n, 0)], err)
			}
			var st unix.Stat_t
			must(t, unix.Lstat(filepath.Join(dir, "dev"), &st))
			if st.Rdev != dev.Attr.Rdev {
				t.Errorf("device %#x, want %#x", st.Rdev, dev.Attr.Rdev)
			}
		})
	}
}
