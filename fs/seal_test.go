package fs_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"snapfs/internal/testmount"
)

// TestSealWhileOpen checks that whatever is open at a seal goes on, and that what was sealed does not change.
func TestSealWhileOpen(t *testing.T) {
	fs := testmount.Start(t, testmount.Config{})
	path := func(name string) string { return filepath.Join(fs.Dir, name) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	open := func(name string) *os.File {
		t.Helper()
		f, err := os.OpenFile(path(name), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o644)
		must(err)
		t.Cleanup(func() { _ = f.Close() }) // closed below
		return f
	}
	text := func(f *os.File, s string) {
		t.Helper()
		_, err := f.WriteString(s)
		must(err)
	}
	plain, removed, renamed := open("plain"), open("removed"), open("renamed")
	mapped, err := os.OpenFile(path("mapped"), os.O_CREATE|os.O_RDWR, 0o644)
	must(err)
	defer mapped.Close() //nolint:errcheck // closed at the end
	for _, f := range []*os.File{plain, removed, renamed} {
		text(f, "before ")
	}
	must(mapped.Truncate(8192))
	mem, err := unix.Mmap(int(mapped.Fd()), 0, 8192, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	must(err)
	copy(mem, "before")
	must(unix.Msync(mem, unix.MS_SYNC))
	must(os.Mkdir(path("dir"), 0o755))
	dir, err := os.Open(path("dir"))
	must(err)
	defer dir.Close() //nolint:errcheck // read only
	must(os.Remove(path("removed")))
	ino := func(f *os.File) uint64 {
		var st unix.Stat_t
		must(unix.Fstat(int(f.Fd()), &st))
		return st.Ino
	}
	inoBefore, sealed := ino(plain), fs.Upper

	fs.Seal("first")
	for _, f := range []*os.File{plain, removed} {
		text(f, "after")
	}
	must(os.Rename(path("renamed"), path("moved")))
	text(renamed, "after")
	copy(mem[4096:], "after")
	copy(mem, "AFTER")
	must(unix.Msync(mem, unix.MS_SYNC))
	fd, err := unix.Openat(int(dir.Fd()), "new", unix.O_CREAT|unix.O_WRONLY, 0o644)
	must(err)
	must(unix.Close(fd))

	for name, want := range map[string]string{"plain": "before after", "moved": "before after"} {
		if got, err := os.ReadFile(path(name)); err != nil || string(got) != want {
			t.Errorf("%s: got %q, %v; want %q", name, got, err, want)
		}
	}
	buf := make([]byte, 12)
	if n, err := removed.ReadAt(buf, 0); string(buf[:n]) != "before after" {
		t.Errorf("the removed file reads %q, %v", buf[:n], err)
	}
	if ino(plain) != inoBefore {
		t.Error("the inode number changes with the seal")
	}
	got, err := os.ReadFile(path("mapped"))
	if err != nil || string(got[:6]) != "AFTERe" || string(got[4096:4101]) != "after" {
		t.Errorf("mapped: %.6q, %v", got, err)
	}
	must(unix.Munmap(mem))
	for name, want := range map[string]string{"plain": "before ", "renamed": "before "} {
		if got, err := os.ReadFile(filepath.Join(sealed, name)); err != nil || string(got) != want {
			t.Errorf("sealed %s: got %q, %v; want %q", name, got, err, want)
		}
	}
	got, err = os.ReadFile(filepath.Join(sealed, "mapped"))
	if err != nil || !strings.HasPrefix(string(got), "before\x00") {
		t.Errorf("sealed mapped: %.8q, %v", got, err)
	}
	if _, err := os.Stat(filepath.Join(sealed, "dir/new")); err == nil {
		t.Error("a file made after the seal is in the sealed layer")
	}
	for _, f := range []*os.File{plain, removed, renamed, mapped} {
		must(f.Close())
	}
}
