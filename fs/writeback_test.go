package fs_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"snapfs/internal/testmount"
)

// TestWriteback: with the kernel's write-back cache many small writes arrive as few, and everything that close, fsync
// and msync promise holds.
func TestWriteback(t *testing.T) {
	fs := testmount.Start(t, testmount.Config{Writeback: true})
	line := []byte("one hundred bytes, of which a page holds forty and something; " +
		"filled up to make it a hundred: ......\n")
	const lines = 2000
	want := bytes.Repeat(line, lines)
	write := func(name string) *os.File {
		t.Helper()
		f, err := os.OpenFile(filepath.Join(fs.Dir, name), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		for range lines {
			if _, err := f.Write(line); err != nil {
				t.Fatal(err)
			}
		}
		return f
	}
	arrived := func(name string) {
		t.Helper()
		if got, err := os.ReadFile(filepath.Join(fs.Upper, name)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes arrived, %v; want %d", name, len(got), err, len(want))
		}
	}
	before := fs.Requests()["WRITE"]
	if err := write("closed").Close(); err != nil {
		t.Fatal(err)
	}
	arrived("closed")
	if n := fs.Requests()["WRITE"] - before; n > lines/10 {
		t.Errorf("%d small writes arrived as %d", lines, n)
	}
	f := write("synced")
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	arrived("synced")

	// What lies in the kernel is what programs see, and truncation reaches it.
	if err := f.Truncate(10); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("tail"); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(f.Name())
	if err != nil || string(got) != string(line[:10])+"tail" {
		t.Errorf("read %q, %v", got, err)
	}
	old := unix.Timespec{Sec: 1e9, Nsec: 5}
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, f.Name(), []unix.Timespec{old, old}, 0); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Lstat(filepath.Join(fs.Upper, "synced"), &st); err != nil || st.Mtim != old || st.Size != 14 {
		t.Errorf("after utimes and close: mtime %v, size %d, %v", st.Mtim, st.Size, err)
	}
}
