package sandbox

import (
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMountReader: a mount is in a table that is asked for after it was made, and is not after it has ended, however many
// ask at the same time.
func TestMountReader(t *testing.T) {
	var r mountReader
	defer func() {
		if err := r.close(); err != nil {
			t.Error(err)
		}
	}()
	point := t.TempDir()
	has := func() bool {
		table, err := r.read()
		if err != nil {
			t.Error(err)
		}
		return slices.ContainsFunc(table, func(e mountEntry) bool { return e.point == point })
	}
	end := make(chan bool)
	var others sync.WaitGroup
	for range 2 * manyReaders {
		others.Go(func() {
			for {
				select {
				case <-end:
					return
				default:
					_, _ = r.read()
				}
			}
		})
	}
	defer others.Wait()
	defer close(end)
	for range 20 {
		if err := unix.Mount("none", point, "tmpfs", 0, "size=4k"); err != nil {
			t.Skip(err)
		}
		if !has() {
			t.Error("a mount that was made is not there")
		}
		if err := unix.Unmount(point, unix.MNT_DETACH); err != nil {
			t.Fatal(err)
		}
		if has() {
			t.Error("a mount that has ended is still there")
		}
	}
}
