package caches

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Flush writes out what is dirty: what is measured next does not wait for that.
func Flush() { unix.Sync() }

// Empty empties the kernel's caches of everything that is not dirty.
func Empty() error {
	unix.Sync()
	if err := os.WriteFile("/proc/sys/vm/drop_caches", []byte("3"), 0); err != nil {
		return fmt.Errorf("drop caches: %w", err)
	}
	return nil
}

// EmptyDentries empties the kernel's caches of names and inodes, and keeps those of contents.
func EmptyDentries() error {
	unix.Sync()
	if err := os.WriteFile("/proc/sys/vm/drop_caches", []byte("2"), 0); err != nil {
		return fmt.Errorf("drop caches: %w", err)
	}
	return nil
}
