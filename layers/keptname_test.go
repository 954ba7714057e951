package layers

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestKeptName: a file whose removal the host has refused is a file like any other, also after a seal.
func TestKeptName(t *testing.T) {
	for what, remove := range map[string]func(r *rig) error{
		"unlink":      func(r *rig) error { return r.unlink("d/f") },
		"rename over": func(r *rig) error { return r.rename("d/g", "d/f", 0) },
	} {
		t.Run(what, func(t *testing.T) {
			r := newRig(t)
			if err := r.mkdir("d", 0o755); err != nil {
				t.Fatal(err)
			}
			r.create("d/f", "before")
			r.create("d/g", "other")
			id := r.nodeOf("d/f")
			defer r.o.Forget(id, 1)
			dir := filepath.Join(r.upper(), "d")
			freeze(t, dir, true)
			err := remove(r)
			freeze(t, dir, false)
			if !errors.Is(err, unix.EPERM) {
				t.Fatalf("removed from an immutable directory: %v", err)
			}
			r.seal()
			if err := r.write("d/f", "behind", 0); err != nil {
				t.Fatal(err)
			}
			if got := r.read("d/f"); got != "behind" {
				t.Errorf("has %q, want %q", got, "behind")
			}
			if got, err := os.ReadFile(filepath.Join(dir, "f")); err != nil || string(got) != "before" {
				t.Errorf("the sealed layer has %q, %v, want %q", got, err, "before")
			}
		})
	}
}

// freeze makes a directory of the host immutable, or mutable again.
func freeze(t *testing.T, dir string, on bool) {
	t.Helper()
	const immutable = 0x10 // FS_IMMUTABLE_FL
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	flags, err := unix.IoctlGetUint32(fd, unix.FS_IOC_GETFLAGS)
	if flags &^= immutable; on {
		flags |= immutable
	}
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.FS_IOC_SETFLAGS, int(flags))
	}
	if err != nil {
		t.Skipf("the host has no immutable directories: %v", err)
	}
}
