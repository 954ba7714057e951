package disk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"snapfs/internal/hostspace"
)

// Free gives the bytes that can be written to dir's file system, by what it says itself.
func Free(dir string) (int64, error) {
	st, err := hostspace.Statfs(dir)
	if err != nil {
		return 0, fmt.Errorf("statfs %s: %w", dir, err)
	}
	return int64(st.Bavail) * st.Bsize, nil
}

// Require fails with ENOSPC unless n bytes are free on dir's file system.
func Require(dir string, n int64) error {
	free, err := Free(dir)
	if err == nil && free < n {
		err = fmt.Errorf("%s: %d bytes free, %d are needed: %w", dir, free, n, unix.ENOSPC)
	}
	return err
}

// RequireInodes fails with ENOSPC unless n files can be created on dir's file system. Not all have a bound.
func RequireInodes(dir string, n int64) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fmt.Errorf("statfs %s: %w", dir, err)
	}
	if st.Files > 0 && st.Ffree < uint64(n) {
		return fmt.Errorf("%s: %d inodes free, %d are needed: %w", dir, st.Ffree, n, unix.ENOSPC)
	}
	return nil
}

// CanAllocate reports whether n bytes can be allocated on dir's file system, by trying: it may take all that is free for
// a moment. What statfs has for everybody does not count the blocks that ext4 reserves for root; a disk that root's
// programs have filled may have no others.
func CanAllocate(dir string, n int64) bool {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(fd) }() // its blocks go with it
	var st unix.Statfs_t
	if unix.Fstatfs(fd, &st) == nil && int64(st.Bfree)*st.Bsize < n {
		return false // trying would take, for a moment, what others need
	}
	for {
		if err = unix.Fallocate(fd, 0, 0, n); !errors.Is(err, unix.EINTR) {
			return err == nil
		}
	}
}

// Allocate reserves n bytes for a file from off on, without changing its length. Where the file system cannot do that
// it does nothing: a later write may fail with ENOSPC.
func Allocate(f *os.File, off, n int64) error {
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

// AllocateFile opens a file with additional flags and allocates its first n bytes, without changing its length.
func AllocateFile(path string, flag int, n int64) error {
	f, err := os.OpenFile(path, os.O_RDWR|flag, 0o600)
	if err != nil {
		return err
	}
	if err = Allocate(f, 0, n); err != nil {
		err = fmt.Errorf("allocate %s: %w", filepath.Base(path), err)
	}
	return errors.Join(err, f.Close())
}

// SyncDir makes the names in a directory durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
