package fs_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"snapfs/internal/testmount"
)

// hasCaps reports whether a file has capabilities.
func hasCaps(t *testing.T, path string) bool {
	t.Helper()
	_, err := unix.Getxattr(path, "security.capability", nil)
	if err != nil && !errors.Is(err, unix.ENODATA) {
		t.Fatal(err)
	}
	return err == nil
}

// TestCapabilitiesOfDirtyPages: capabilities that a program sets stay when the kernel writes pages that were written
// before, or stored through a mapping, and go with the next write; as on the host file system.
func TestCapabilitiesOfDirtyPages(t *testing.T) {
	nobody := otherUsers(t)[0]
	for _, writeback := range []bool{false, true} {
		base := openDir(t)
		native, low := filepath.Join(base, "native"), filepath.Join(base, "low")
		if err := errors.Join(os.Mkdir(native, 0o755), os.Mkdir(low, 0o755)); err != nil {
			t.Fatal(err)
		}
		names := map[string]int{"small": 3 * page, "part": 2 << 20, "new": 3 * page}
		write := func(dir string, low bool) {
			for name, size := range names {
				if low && name == "new" {
					continue
				}
				path := filepath.Join(dir, name)
				contents := bytes.Repeat([]byte("snap"), size/4)
				if err := errors.Join(os.WriteFile(path, contents, 0o755), unix.Chmod(path, 0o777)); err != nil {
					t.Fatal(err)
				}
			}
		}
		write(native, false)
		write(low, true)
		fs := testmount.Start(t, testmount.Config{
			Dir: filepath.Join(base, "ws"), Mount: filepath.Join(base, "mnt"), Sealed: []string{low}, Writeback: writeback,
		})
		name := filepath.Join(fs.Dir, "new")
		contents := bytes.Repeat([]byte("snap"), 3*page/4)
		if err := errors.Join(os.WriteFile(name, contents, 0o755), unix.Chmod(name, 0o777)); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(base+"/ws", 0o755); err != nil {
			t.Fatal(err)
		}
		for name := range names {
			want := dirtyHistory(t, nobody, filepath.Join(native, name), "")
			got := dirtyHistory(t, nobody, filepath.Join(fs.Dir, name), filepath.Join(fs.Upper, name))
			if got != want {
				t.Errorf("%s (write-back %v):\n%s\nwant\n%s", name, writeback, got, want)
			}
		}
	}
}

// dirtyHistory tells what becomes of a file's capabilities, here and on the host.
func dirtyHistory(t *testing.T, nobody *user, path, host string) string {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m, err := unix.Mmap(int(f.Fd()), 0, page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(m) }()
	step := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	history := ""
	tell := func(what string) {
		t.Helper()
		had := hasCaps(t, path)
		history += fmt.Sprintf("%s: %v\n", what, had)
		if host != "" && hasCaps(t, host) != had {
			t.Errorf("%s: %s: the host says otherwise", path, what)
		}
	}
	setcap := func() { step(unix.Setxattr(path, "security.capability", []byte(noCaps), 0)) }
	write := func() { step(wrote(unix.Pwrite(int(f.Fd()), []byte("snap"), page))) }

	write()
	setcap()
	step(f.Sync())
	tell("written before, synced after")
	m[0]++
	setcap()
	step(unix.Msync(m, unix.MS_SYNC))
	tell("stored before, synced after")
	m[1]++
	step(unix.Msync(m, unix.MS_SYNC))
	tell("stored and synced after")
	m[2]++
	write()
	tell("written, stored before")
	step(f.Sync())
	tell("synced")
	setcap()
	m[3]++
	if errno := nobody.do(t, order{"write", path, ""}); errno != 0 {
		t.Fatal(errno)
	}
	tell("written by another user, stored before")
	m[4]++
	step(f.Sync())
	tell("synced")
	write()
	setcap()
	if errno := nobody.do(t, order{"mmap", path, ""}); errno != 0 {
		t.Fatal(errno)
	}
	step(f.Sync())
	tell("stored by another user")
	step(f.Truncate(page))
	tell("truncated")
	return history
}
