// Package hostspace tells what is free of a file system for who writes to a directory: what statfs(2) says, or less where
// the directory is in a subvolume of btrfs with a limit, of which statfs(2) says nothing. The limits of projects on ext4
// and XFS are in what statfs(2) says of their directories.
package hostspace

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Statfs is statfs(2) of a directory within the limits of its subvolume. It may be called concurrently.
func Statfs(dir string) (st unix.Statfs_t, err error) {
	if err := unix.Statfs(dir, &st); err != nil || st.Type != unix.BTRFS_SUPER_MAGIC {
		return st, err
	}
	group, err := groupOf(dir)
	if err != nil {
		return st, nil //nolint:nilerr // there is no limit that could be known
	}
	within(&st, group)
	return st, nil
}

// Writable is EDQUOT where even what is allocated to files in a directory cannot be written, and a memory map of them ends
// the process: in a subvolume of btrfs whose limit leaves less than so many bytes.
func Writable(dir string, n int64) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil || st.Type != unix.BTRFS_SUPER_MAGIC {
		return err
	}
	group, err := groupOf(dir)
	if err != nil {
		return nil //nolint:nilerr // there is no limit that could be known
	}
	all := st.Blocks
	within(&st, group)
	if st.Blocks < all && int64(st.Bavail)*st.Frsize < n {
		return fmt.Errorf("%s: less than %d bytes are left of its subvolume's limit: %w", dir, n, unix.EDQUOT)
	}
	return nil
}

// Fstatfs is Statfs of an open directory, which may be open as O_PATH.
func Fstatfs(fd int) (unix.Statfs_t, error) { return Statfs("/proc/self/fd/" + strconv.Itoa(fd)) }

// The calls of btrfs by which a directory is found in /sys/fs/btrfs, and the number of a subvolume's root.
const (
	infoCall, infoSize     = 0x8400941f, 1024
	lookupCall, lookupSize = 0xd0009412, 4096
	rootNumber             = 256
)

// groupOf is where the kernel tells the limits of the subvolume of a directory. It is not there without quotas.
func groupOf(dir string) (string, error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer func() { _ = unix.Close(fd) }() // it is only read
	var info [infoSize]byte
	var lookup [lookupSize]byte
	binary.NativeEndian.PutUint64(lookup[8:], rootNumber)
	if err := ioctl(fd, infoCall, info[:]); err != nil {
		return "", err
	}
	if err := ioctl(fd, lookupCall, lookup[:]); err != nil {
		return "", err
	}
	id := info[16:32]
	return fmt.Sprintf("/sys/fs/btrfs/%x-%x-%x-%x-%x/qgroups/0_%d", id[:4], id[4:6], id[6:8], id[8:10], id[10:],
		binary.NativeEndian.Uint64(lookup[:])), nil
}

func ioctl(fd int, call uintptr, arg []byte) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), call, uintptr(unsafe.Pointer(&arg[0]))); errno != 0 {
		return errno
	}
	return nil
}

// within lowers what a file system says to the limits in a directory of the kernel's.
func within(st *unix.Statfs_t, group string) {
	read := func(name string) uint64 {
		b, _ := os.ReadFile(filepath.Join(group, name)) // what is not there is 0
		n, _ := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
		return n
	}
	unit := uint64(st.Frsize)
	for _, kind := range []string{"referenced", "exclusive"} {
		limit := read("max_" + kind)
		if limit == 0 || unit == 0 {
			continue
		}
		used := read(kind) + read("rsv_data") + read("rsv_meta_pertrans") + read("rsv_meta_prealloc")
		left := (limit - min(limit, used)) / unit
		st.Blocks = min(st.Blocks, limit/unit)
		st.Bfree, st.Bavail = min(st.Bfree, left), min(st.Bavail, left)
	}
}
