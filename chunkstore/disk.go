// Package disk asks and takes space of the file system that a store lies on, and makes names durable.
package chunkstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// freeBytes is what can be written to dir's file system.
func freeBytes(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("statfs %s: %w", dir, err)
	}
	return int64(st.Bavail) * st.Bsize, nil
}

// haveRoom fails unless n bytes are free for dir.
func haveRoom(dir string, n int64) error {
	free, err := freeBytes(dir)
	if err == nil && free < n {
		err = fmt.Errorf("%s: %d bytes free, the index needs %d: %w", dir, free, n, unix.ENOSPC)
	}
	return err
}

// canAllocate finds by trying whether n bytes can be had beyond what statfs says: of the blocks that ext4 keeps for root, it
// says nothing. Programs of root may have filled a disk into these, and left no more than them when they end.
func canAllocate(dir string, n int64) bool {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(fd) }() // its blocks go with it
	for {
		if err = unix.Fallocate(fd, 0, 0, n); !errors.Is(err, unix.EINTR) {
			return err == nil
		}
	}
}

// allocate takes n bytes of the disk for a file, from off on, without changing its length. Where the file system cannot do
// that, the write itself will tell whether there is room.
func allocate(f *os.File, off, n int64) error {
	for {
		err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, off, n)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EOPNOTSUPP):
			return nil
		}
		return err
	}
}

// allocateFile allocates n bytes for a file without changing its length.
func allocateFile(path string, flag int, n int64) error {
	f, err := os.OpenFile(path, os.O_RDWR|flag, 0o600)
	if err != nil {
		return err
	}
	if err = allocate(f, 0, n); err != nil {
		err = fmt.Errorf("allocate %s: %w", filepath.Base(path), err)
	}
	return errors.Join(err, f.Close())
}

// syncDir makes a directory's names durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
