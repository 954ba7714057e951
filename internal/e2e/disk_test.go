package e2e

import (
	"testing"

	"golang.org/x/sys/unix"
)

// disk is a file system of its own, in a file, with a home on it.
type disk struct {
	*home
	dir string
}

// newDisk makes one of ext4 with so many MiB. Two of them give the same inode numbers to what is made in them in the
// same order.
func newDisk(t *testing.T, size int) *disk {
	t.Helper()
	h := newHome(t)
	d := &disk{home: h, dir: h.path("disk")}
	t.Cleanup(func() { // before the home's, which ends the daemon if this does not
		h.run("stop")
		if t.Failed() {
			t.Logf("daemon.log:\n%s", tail(h.log()))
		}
		_ = unix.Unmount(d.dir, unix.MNT_DETACH)
	})
	shell(t, soon, h.tmp, `truncate -s "$1M" disk.img && mkfs.ext4 -q -b 4096 disk.img && mkdir disk && mount -o loop disk.img disk`, itoa(size))
	h.dir = h.path("disk/home")
	h.env[0] = "SNAPFS_HOME=" + h.dir
	return d
}
