package fs_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/internal/testmount"
)

// TestFullDisk checks that a full host shows as ENOSPC, and that removing makes room again.
func TestFullDisk(t *testing.T) {
	disk := smallDisk(t, 16<<20)
	fs := testmount.Start(t, testmount.Config{Dir: filepath.Join(disk, "ws")})
	fill := filepath.Join(fs.Dir, "fill")
	f, err := os.Create(fill)
	if err != nil {
		t.Fatal(err)
	}
	block := make([]byte, 64<<10)
	for err == nil {
		_, err = f.Write(block)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("got %v, want %v", err, syscall.ENOSPC)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if err := os.Remove(fill); err != nil {
		t.Fatal(err)
	}
	// The room is there once the kernel's FORGET of the file was handled, which no call waits for.
	err = syscall.ENOSPC
	end := time.Now().Add(time.Minute)
	for errors.Is(err, syscall.ENOSPC) && time.Now().Before(end) {
		time.Sleep(time.Millisecond)
		err = os.WriteFile(fill, block, 0o600)
	}
	if err != nil {
		t.Errorf("after removing: %v", err)
	}
}

// TestLargeDirectory lists a directory of 100,000 names and finds the server small afterwards.
func TestLargeDirectory(t *testing.T) {
	n := 20_000
	if os.Getenv("SNAPFS_LONG") != "" {
		n = 100_000
	}
	lower := t.TempDir()
	for i := range n {
		fd, err := unix.Open(filepath.Join(lower, fmt.Sprintf("name-%06d", i)), unix.O_CREAT|unix.O_WRONLY, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Close(fd); err != nil {
			t.Fatal(err)
		}
	}
	fs := testmount.Start(t, testmount.Config{Sealed: []string{lower}})
	entries, err := os.ReadDir(fs.Dir)
	if err != nil || len(entries) != n {
		t.Errorf("%d entries, %v", len(entries), err)
	}
	for i := range 100 {
		if err := os.Remove(filepath.Join(fs.Dir, fmt.Sprintf("name-%06d", i*7))); err != nil {
			t.Fatal(err)
		}
	}
	entries, err = os.ReadDir(fs.Dir)
	if err != nil || len(entries) != n-100 {
		t.Errorf("%d entries, %v", len(entries), err)
	}
}

// raceEnabled says that the race detector is on, under which pools drop what they are given.
var raceEnabled bool

// unraced leaves a long test that makes one call after the other to the run without the race detector, under which it
// takes several times as long.
func unraced(t *testing.T) {
	t.Helper()
	if raceEnabled {
		t.Skip("one call after the other")
	}
}

// TestRequestMemory checks that handling requests leaves no garbage to speak of.
func TestRequestMemory(t *testing.T) {
	fs := testmount.Start(t, testmount.Config{})
	name := filepath.Join(fs.Dir, "f")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // read below
	data := make([]byte, 4096)
	if _, err := f.WriteAt(data, 0); err != nil {
		t.Fatal(err)
	}
	const rounds = 5000
	before := fs.Memory()
	for range rounds {
		if _, err := f.WriteAt(data, 0); err != nil {
			t.Fatal(err)
		}
	}
	after := fs.Memory()
	perWrite := float64(after.Mallocs-before.Mallocs) / rounds
	bytes := float64(after.Bytes-before.Bytes) / rounds
	t.Logf("per 4 KiB write: %.1f allocations, %.0f bytes", perWrite, bytes)
	if !raceEnabled && (perWrite > 6 || bytes > 2500) {
		t.Errorf("per write: %.1f allocations, %.0f bytes", perWrite, bytes)
	}
}
