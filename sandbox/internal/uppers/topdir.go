package uppers

import (
	"os"

	"golang.org/x/sys/unix"
)

// topDirFlag is FS_TOPDIR_FL of include/uapi/linux/fs.h, the T of chattr(1).
const topDirFlag = 0x00020000

// keepApart asks the host to keep what is made in dir apart on the disk, as ext4 does with the directories in its root:
// each directory in it, and what is made in that, gets block groups of its own. Else new uppers come to lie where old
// ones have just been removed, and an ext4 without journal looks at each inode deleted within the last minute or five
// before it makes a new one there: ten times the price of a file. It is best effort: other file systems know no such
// flag, and dir may belong to another user.
func keepApart(dir string) {
	d, err := os.Open(dir)
	if err != nil {
		return
	}
	defer d.Close() //nolint:errcheck // nothing is written to it
	fd := int(d.Fd())
	var fs unix.Statfs_t
	if unix.Fstatfs(fd, &fs) != nil || fs.Type != unix.EXT4_SUPER_MAGIC {
		return
	}
	if flags, err := unix.IoctlGetInt(fd, unix.FS_IOC_GETFLAGS); err == nil && flags&topDirFlag == 0 {
		_ = unix.IoctlSetPointerInt(fd, unix.FS_IOC_SETFLAGS, flags|topDirFlag) // see above
	}
}
