package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// standAlone has this process run a copy of its program in memory if the program lies in a FUSE file system, which may be
// one that it is to serve: it would wait for itself when it needs a page of its program. It returns if there is no need, or
// an error if the program cannot be copied or run.
func standAlone() error {
	f, err := standingAlone("/proc/self/exe")
	if f == nil || err != nil {
		return err
	}
	return fmt.Errorf("run a copy of this program in memory: %w", execFile(f, os.Args))
}

// standingAlone is a copy in memory of a program that lies in a FUSE file system; nil for another one.
func standingAlone(path string) (_ *os.File, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil || st.Type != unix.FUSE_SUPER_MAGIC {
		return nil, err
	}
	program, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = program.Close() }()
	fd, err := unix.MemfdCreate("snapfs", unix.MFD_CLOEXEC|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3
		fd, err = unix.MemfdCreate("snapfs", unix.MFD_CLOEXEC)
	}
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), path)
	if _, err := io.Copy(f, program); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// execFile runs the program in a file in the place of this one. It returns only if that fails.
func execFile(f *os.File, args []string) error {
	return unix.Exec(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), args, os.Environ())
}
