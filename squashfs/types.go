package squashfs

import "errors"

// ErrCorrupt is the class of all errors for images that violate the format.
var ErrCorrupt = errors.New("corrupt squashfs image")

// Time is a Linux timespec since 1970.
type Time struct {
	Sec  int64
	Nsec uint32
}

// Attr holds the attributes of an inode. Ino, nanoseconds, Ctime and Btime come from the extension section. Without
// one, Ino is the squashfs inode number, and the other times are Mtime.
type Attr struct {
	Ino                 uint64
	Mode                uint32 // st_mode: type and permissions
	UID, GID            uint32
	Nlink               uint32
	Rdev                uint64 // st_rdev as golang.org/x/sys/unix.Mkdev makes it
	Size                int64  // bytes; of a symlink its target's length
	Mtime, Ctime, Btime Time   // Btime zero: unknown
}

// Xattr is one extended attribute under its full name ("user.x", "trusted.overlay.opaque", "system.posix_acl_access").
type Xattr struct {
	Name  string
	Value []byte
}

// Extent is a range of a file that holds data; what lies between extents is a hole.
type Extent struct{ Off, Len int64 }

// Ref is an inode's location in the inode table, as directory entries have it.
type Ref uint64

// DirEntry is one name in a directory.
type DirEntry struct {
	Name string
	Ref  Ref
	Mode uint32 // type bits only
	Ino  uint64
}
