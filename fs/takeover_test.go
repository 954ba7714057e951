package fs_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"snapfs/internal/testmount"
)

// TestServerKilled kills the server again and again while a program has files and directories open: it goes on with
// them, unlinked, renamed and linked ones too, and with a listing that it is in the middle of.
func TestServerKilled(t *testing.T) {
	base := t.TempDir()
	if err := errors.Join(os.MkdirAll(base+"/low/sub", 0o755), os.WriteFile(base+"/low/sub/f", []byte("lower"), 0o644),
		os.WriteFile(base+"/low/gone", []byte("gone"), 0o644)); err != nil {
		t.Fatal(err)
	}
	m := testmount.Start(t, testmount.Config{Live: true, Sealed: []string{base}})
	at := func(name string) string { return filepath.Join(m.Dir, name) }
	type open struct {
		f     *os.File
		want  string
		links uint64
	}
	files := map[string]*open{}
	defer func() {
		for _, o := range files {
			_ = o.f.Close() // only read and written
		}
	}()
	hold := func(name string) {
		t.Helper()
		f, err := os.OpenFile(at(name), os.O_RDWR|os.O_CREATE, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		old, err := io.ReadAll(f)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = &open{f, string(old), 1}
	}
	for _, name := range []string{"plain", "unlinked", "replaced", "moved", "linked", "low/sub/f", "low/gone"} {
		hold(name)
	}
	// From the first answer on the kernel does not ask when a file is closed, as it is on the way to the next server.
	if err := os.WriteFile(at("new"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	tmp, err := os.OpenFile(m.Dir, os.O_RDWR|unix.O_TMPFILE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	files["tmp"] = &open{tmp, "", 0}
	check := func() {
		t.Helper()
		for name, o := range files {
			if _, err := o.f.WriteString(" more"); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			o.want += " more"
			buf := make([]byte, len(o.want)+1)
			n, err := o.f.ReadAt(buf, 0)
			if !errors.Is(err, io.EOF) || string(buf[:n]) != o.want {
				t.Errorf("%s: got %q, %v; want %q", name, buf[:n], err, o.want)
			}
			var st unix.Stat_t
			if err := unix.Fstat(int(o.f.Fd()), &st); err != nil || uint64(st.Nlink) != o.links {
				t.Errorf("%s: %d links, %v; want %d", name, st.Nlink, err, o.links)
			}
		}
	}
	check()
	m.Replace()
	check()
	for _, err := range []error{
		os.Remove(at("unlinked")), os.WriteFile(at("new"), nil, 0o644), os.Rename(at("new"), at("replaced")),
		os.Mkdir(at("dir"), 0o755), os.Rename(at("moved"), at("dir/moved")), os.Rename(at("dir"), at("dir2")),
		os.Link(at("linked"), at("dir2/second")), os.Remove(at("linked")), os.Rename(at("low/sub"), at("sub")), os.Remove(at("low/gone")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"unlinked", "replaced", "low/gone"} {
		files[name].links = 0
	}
	for range 3 {
		m.Replace()
		check()
	}
	if data, err := os.ReadFile(at("dir2/moved")); err != nil || string(data) != files["moved"].want {
		t.Errorf("got %q, %v; want %q", data, err, files["moved"].want)
	}
	if err := os.Link(fmt.Sprintf("/proc/self/fd/%d", tmp.Fd()), at("tmp")); err == nil {
		t.Error("a link of a link of /proc") // it needs AT_SYMLINK_FOLLOW
	}
	if err := unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", tmp.Fd()), unix.AT_FDCWD, at("tmp"), unix.AT_SYMLINK_FOLLOW); err != nil {
		t.Error(err)
	}
	files["tmp"].links = 1
	m.Replace()
	check()
}

// TestServerKilledInListing kills the server while a directory is being read.
func TestServerKilledInListing(t *testing.T) {
	m := testmount.Start(t, testmount.Config{Live: true})
	const names = 5000 // more than the C library reads at a time
	for i := range names {
		if err := os.WriteFile(filepath.Join(m.Dir, fmt.Sprintf("%s-%d", strings.Repeat("n", 50), i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d, err := os.Open(m.Dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	seen := map[string]bool{}
	for {
		list, err := d.Readdirnames(900)
		for _, name := range list {
			if seen[name] {
				t.Errorf("%s is listed twice", name)
			}
			seen[name] = true
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		m.Replace()
	}
	if len(seen) != names {
		t.Errorf("%d names, want %d", len(seen), names)
	}
}

// BenchmarkRemoveTree removes 10,000 files with rm -rf, with and without the records that a successor needs.
func BenchmarkRemoveTree(b *testing.B) {
	for _, live := range []bool{false, true} {
		b.Run(fmt.Sprintf("live=%v", live), func(b *testing.B) {
			m := testmount.Start(b, testmount.Config{Live: live, Transport: "dev"})
			for range b.N {
				b.StopTimer()
				for i := range 100 {
					dir := filepath.Join(m.Dir, "tree", fmt.Sprint(i))
					if err := os.MkdirAll(dir, 0o755); err != nil {
						b.Fatal(err)
					}
					for k := range 100 {
						if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(k)), []byte("text"), 0o644); err != nil {
							b.Fatal(err)
						}
					}
				}
				b.StartTimer()
				if out, err := exec.Command("rm", "-rf", filepath.Join(m.Dir, "tree")).CombinedOutput(); err != nil {
					b.Fatalf("%v: %s", err, out)
				}
			}
		})
	}
}
