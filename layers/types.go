package layers

import "snapfs/squashfs"

// Time is a Linux timespec since 1970.
type Time = squashfs.Time

// Attr is what stat shows. Ino is stable across copy-up, rename, remount, seal, restore and branch.
type Attr struct {
	Ino, Size, Blocks uint64
	Mode              uint32
	Nlink             uint32
	UID, GID          uint32
	Rdev              uint64
	Blksize           uint32
	Atime             Time
	Mtime             Time
	Ctime             Time
	Btime             Time
}

// Entry is the answer of a look-up; it holds one reference that Forget gives back.
type Entry struct {
	Node NodeID
	Gen  uint64
	Attr Attr
	// Fleeting says that the name is to be looked up again before it is used: somebody else may change the file. As long as it
	// has that generation, its size and times are what was told.
	Fleeting bool
}

// Valid bits of SetAttr.
const (
	SetMode = 1 << iota
	SetUID
	SetGID
	SetSize
	SetAtime
	SetMtime
	SetAtimeNow
	SetMtimeNow
	KillPriv // clear setuid, setgid and capabilities, as the kernel asks with a size change or chown
)

// SetAttr is a change of attributes; Valid says which fields count.
type SetAttr struct {
	Valid        uint32
	Mode         uint32
	UID, GID     uint32
	Size         uint64
	Atime, Mtime Time
}

// DirEntry is one name of a directory listing. Cookie resumes the listing after this name.
type DirEntry struct {
	Name   string
	Ino    uint64
	Mode   uint32 // type bits
	Cookie uint64
}

// Statfs is what statfs(2) shows, counted on the file system of the upper.
type Statfs struct {
	Blocks, Bfree, Bavail, Files, Ffree uint64
	Bsize, NameLen, Frsize              uint32
}
