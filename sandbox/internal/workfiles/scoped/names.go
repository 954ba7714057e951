package scoped

import (
	"encoding/binary"
	"errors"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// below is how a name is looked up in a directory that a search has come to: it leads nowhere else.
const below = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV

var lists = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// names calls fn for each name in a directory, with its type as of getdents64(2).
func names(fd int, fn func(name string, kind uint8) error) error {
	room := lists.Get().(*[32 << 10]byte)
	defer lists.Put(room)
	for {
		n, err := unix.Getdents(fd, room[:])
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ENOENT): // it was removed
			return nil
		case err != nil || n == 0:
			return err
		}
		// struct linux_dirent64: ino u64, off u64, reclen u16, type u8, name NUL-terminated
		for p := room[:n]; len(p) > 0; {
			size := binary.NativeEndian.Uint16(p[16:])
			name, _, _ := strings.Cut(string(p[19:size]), "\x00")
			kind := p[18]
			p = p[size:]
			if name == "." || name == ".." {
				continue
			}
			if err := fn(name, kind); err != nil {
				return err
			}
		}
	}
}
