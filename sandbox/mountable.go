package sandbox

import (
	"slices"

	"golang.org/x/sys/unix"
)

// mountableTypes are the types of file systems on whose directories a user may mount: those for files, and none by which
// the kernel and programs talk, such as /proc and control groups. fusermount3 has the same.
var mountableTypes = []uint32{
	0x61756673, // aufs
	0xca451a4e, // bcachefs
	0x01161970, // gfs2
	0x47504653, // gpfs
	0x0000482b, // hfsplus
	0x3153464a, // jfs
	0x0bd00bd0, // lustre
	0x5346544e, // ntfs
	0x7366746e, // ntfs3
	0x5346414f, // openafs
	0xaad7aaea, // panfs
	0x24051905, // ubifs
	0x2fc12fc1, // zfs
	unix.AUTOFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.CEPH_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC,
	unix.ECRYPTFS_SUPER_MAGIC, unix.EXFAT_SUPER_MAGIC, unix.EXT4_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC,
	unix.FUSE_SUPER_MAGIC, unix.JFFS2_SUPER_MAGIC, unix.MSDOS_SUPER_MAGIC, unix.NCP_SUPER_MAGIC,
	unix.NFS_SUPER_MAGIC, unix.NILFS_SUPER_MAGIC, unix.OVERLAYFS_SUPER_MAGIC, unix.RAMFS_MAGIC,
	unix.REISERFS_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.SQUASHFS_MAGIC, unix.TMPFS_MAGIC, unix.XFS_SUPER_MAGIC,
}

// mountable reports whether a user may mount on directories of a file system, as statfs(2) describes it.
func mountable(fs unix.Statfs_t) bool { return slices.Contains(mountableTypes, uint32(fs.Type)) }
