package layers

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestModesAndOwners(t *testing.T) {
	r := newRig(t, t.TempDir())
	who := Caller{UID: 1000, GID: 1001, Umask: 0o027}
	mk := func(path string, mode uint32) Attr {
		t.Helper()
		err := r.in(path, func(p NodeID, name string) error {
			var e Entry
			var err error
			if isDir(mode) {
				e, err = r.o.Mkdir(who, p, name, mode)
			} else {
				e, err = r.o.Mknod(who, p, name, mode, 0)
			}
			return r.made(e, err)
		})
		if err != nil {
			t.Fatal(path, err)
		}
		return r.attr(path)
	}
	if a := mk("f", unix.S_IFREG|0o6777); a.Mode&0o7777 != 0o6750 || a.UID != 1000 || a.GID != 1001 {
		t.Errorf("got %o %d:%d", a.Mode, a.UID, a.GID)
	}
	who.Umask = 0
	if a := mk("tmp", unix.S_IFDIR|0o1777); a.Mode&0o7777 != 0o1777 {
		t.Errorf("got %o", a.Mode)
	}
	if err := r.setattr("tmp", SetAttr{Valid: SetMode | SetGID, Mode: 0o2775, GID: 77}); err != nil {
		t.Fatal(err)
	}
	if a := mk("tmp/sub", unix.S_IFDIR|0o755); a.Mode&0o7777 != 0o2755 || a.GID != 77 {
		t.Errorf("got %o gid %d", a.Mode, a.GID)
	}
	if a := mk("tmp/file", unix.S_IFREG|0o644); a.Mode&0o7777 != 0o644 || a.GID != 77 {
		t.Errorf("got %o gid %d", a.Mode, a.GID)
	}

	// default:user::rwx, user:5:rw-, group::r--, mask::rw-, other::---
	acl := []byte{
		2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255, 2, 0, 6, 0, 5, 0, 0, 0, 4, 0, 4, 0, 255, 255, 255, 255,
		16, 0, 6, 0, 255, 255, 255, 255, 32, 0, 0, 0, 255, 255, 255, 255,
	}
	who.Umask = 0o077
	mk("acl", unix.S_IFDIR|0o755)
	err := r.on("acl", func(n NodeID) error { return r.o.SetXattr(n, "system.posix_acl_default", acl, 0) })
	if err != nil {
		t.Fatal(err)
	}
	if a := mk("acl/f", unix.S_IFREG|0o666); a.Mode&0o777 != 0o660 {
		t.Errorf("the umask counted beside a default ACL: %o", a.Mode)
	}
	mk("acl/d", unix.S_IFDIR|0o777)
	err = r.on("acl/d", func(n NodeID) error {
		v, err := r.o.GetXattr(n, "system.posix_acl_default")
		if err == nil && !bytes.Equal(v, acl) {
			t.Errorf("default ACL not inherited: %v", v)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	r.seal()
	if err := r.unlink("acl/f"); err != nil {
		t.Fatal(err)
	}
	if a := mk("acl/f", unix.S_IFREG|0o666); a.Mode&0o777 != 0o660 {
		t.Errorf("over a whiteout: %o", a.Mode)
	}
}

func TestUnlinkedWhileOpen(t *testing.T) {
	base := t.TempDir()
	if err := os.WriteFile(base+"/low", []byte("lower"), 0o644); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, base)
	r.create("up", "upper")
	for _, name := range []string{"low", "up"} {
		e, err := r.find(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.unlink(name); err != nil {
			t.Fatal(err)
		}
		r.seal()
		if _, err := r.o.Write(e.Node, []byte("XX"), 0, nil); err != nil {
			t.Fatal(name, err)
		}
		buf := make([]byte, 9)
		k, err := r.o.Read(e.Node, buf, 0)
		if err != nil || !strings.HasPrefix(string(buf[:k]), "XX") || k != 5 {
			t.Errorf("%s: got %q, %v", name, buf[:k], err)
		}
		if a, err := r.o.GetAttr(e.Node); err != nil || a.Nlink != 0 || a.Ino != e.Attr.Ino {
			t.Errorf("%s: got %+v, %v", name, a, err)
		}
		if err := r.o.Fsync(e.Node, false); err != nil {
			t.Error(err)
		}
		r.o.Forget(e.Node, 1)
	}
	r.wantNodes(1)
}

// TestDeepPaths works where no absolute path can reach, on names of the greatest length.
func TestDeepPaths(t *testing.T) {
	r := newRig(t, t.TempDir())
	name := strings.Repeat("n", maxName)
	at := Entry{Node: RootNode}
	var held []NodeID
	for range 40 {
		e, err := r.o.Mkdir(Caller{}, at.Node, name, 0o755)
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, e.Node)
		at = e
	}
	descriptors.purge(func(fdKey) bool { return true })
	e, err := r.o.Symlink(Caller{}, at.Node, "link", "/absolute")
	if err != nil {
		t.Fatal(err)
	}
	r.seal()
	if err := r.o.SetXattr(e.Node, "trusted.x", []byte("y"), 0); err != nil {
		t.Errorf("attribute of a symlink: %v", err)
	}
	if s, err := r.o.Readlink(e.Node); err != nil || s != "/absolute" {
		t.Errorf("got %q, %v", s, err)
	}
	if _, err := r.o.Lookup(at.Node, name+"n"); !errors.Is(err, unix.ENAMETOOLONG) {
		t.Errorf("got %v", err)
	}
	for _, n := range append(held, e.Node) {
		r.o.Forget(n, 1)
	}
	r.wantNodes(1)
}

// TestAttributeWhiteouts is a host that refuses device 0/0.
func TestAttributeWhiteouts(t *testing.T) {
	base := t.TempDir()
	if err := os.MkdirAll(base+"/d/sub", 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := OpenSealed("base", base, 0)
	if err != nil {
		t.Fatal(err)
	}
	r := newRigOver(t, l)
	if err := r.o.Close(); err != nil {
		t.Fatal(err)
	}
	r.o, err = New(r.upper(), r.work(), r.lowers, Options{InoBase: r.base(), Whiteouts: "xattr"})
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{r.rmdir("d/sub"), r.mkdir("d/sub", 0o700), r.rmdir("d/sub"), r.rename("d", "e", 0)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Join(r.list(""), " "); got != "e" {
		t.Errorf("got %q", got)
	}
	if got := r.list("e"); len(got) != 0 {
		t.Errorf("got %q", got)
	}
	fi, err := os.Lstat(filepath.Join(r.upper(), "d"))
	if err != nil || !fi.Mode().IsRegular() {
		t.Errorf("got %v, %v", fi, err)
	}
}

// TestBareFiles checks that the answer "no extended attributes", which is given from memory, is never a wrong one.
func TestBareFiles(t *testing.T) {
	lower := t.TempDir()
	for _, name := range []string{"with", "without"} {
		if err := os.WriteFile(filepath.Join(lower, name), []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Setxattr(filepath.Join(lower, "with"), "user.u", []byte("v"), 0); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, lower)
	r.create("new", "x")
	has := func(path string, want bool) {
		t.Helper()
		err := r.on(path, func(n NodeID) error {
			names, err := r.o.ListXattr(n)
			if err != nil {
				return err
			}
			_, err = r.o.GetXattr(n, "user.u")
			if got := err == nil; got != want || len(names) > 0 != want {
				t.Errorf("%s: got %v, names %q; want %v", path, err, names, want)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	has("with", true)
	for _, path := range []string{"without", "new"} {
		e, err := r.find(path) // one node all the time
		if err != nil {
			t.Fatal(err)
		}
		has(path, false)
		if err := r.o.SetXattr(e.Node, "user.u", []byte("v"), 0); err != nil {
			t.Fatal(err)
		}
		has(path, true)
		if err := r.o.RemoveXattr(e.Node, "user.u"); err != nil {
			t.Fatal(err)
		}
		has(path, false)
		r.o.Forget(e.Node, 1)
	}
	r.wantNodes(1)
}
