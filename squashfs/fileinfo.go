package squashfs

import (
	"io/fs"
	"time"

	"golang.org/x/sys/unix"
)

// fileInfo is a fs.FileInfo.
type fileInfo struct {
	name string
	n    *Inode
}

func (i fileInfo) Name() string      { return i.name }
func (i fileInfo) Size() int64       { return i.n.attr.Size }
func (i fileInfo) Mode() fs.FileMode { return fileMode(i.n.attr.Mode) }
func (i fileInfo) IsDir() bool       { return i.n.raw.basic() == typeDir }
func (i fileInfo) Sys() any          { return i.n }
func (i fileInfo) String() string    { return fs.FormatFileInfo(i) }

func (i fileInfo) ModTime() time.Time {
	return time.Unix(i.n.attr.Mtime.Sec, int64(i.n.attr.Mtime.Nsec))
}

// fileMode converts a st_mode.
func fileMode(mode uint32) fs.FileMode {
	m := fs.FileMode(mode & 0o777)
	switch mode & unix.S_IFMT {
	case unix.S_IFDIR:
		m |= fs.ModeDir
	case unix.S_IFLNK:
		m |= fs.ModeSymlink
	case unix.S_IFBLK:
		m |= fs.ModeDevice
	case unix.S_IFCHR:
		m |= fs.ModeDevice | fs.ModeCharDevice
	case unix.S_IFIFO:
		m |= fs.ModeNamedPipe
	case unix.S_IFSOCK:
		m |= fs.ModeSocket
	}
	for bit, flag := range map[uint32]fs.FileMode{
		unix.S_ISUID: fs.ModeSetuid, unix.S_ISGID: fs.ModeSetgid, unix.S_ISVTX: fs.ModeSticky,
	} {
		if mode&bit != 0 {
			m |= flag
		}
	}
	return m
}
