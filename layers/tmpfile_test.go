package layers

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// TestTmpfile: a file without a name lives through a seal, and gets its name in whatever upper there is then.
func TestTmpfile(t *testing.T) {
	r := newRig(t)
	if err := r.mkdir("d", 0o2755); err != nil {
		t.Fatal(err)
	}
	if err := r.setattr("d", SetAttr{Valid: SetGID, GID: 77}); err != nil {
		t.Fatal(err)
	}
	r.seal()
	var e Entry
	err := r.on("d", func(n NodeID) (err error) {
		e, err = r.o.Tmpfile(Caller{UID: 5, GID: 6, Umask: 0o022}, n, unix.S_IFREG|0o666)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if a := e.Attr; a.Nlink != 0 || a.Mode != unix.S_IFREG|0o644 || a.UID != 5 || a.GID != 77 {
		t.Errorf("nlink %d, mode %o, owner %d:%d", a.Nlink, a.Mode, a.UID, a.GID)
	}
	if changed, err := r.o.Changed(); err != nil || changed {
		t.Errorf("a file without a name changes the tree: %v, %v", changed, err)
	}
	write := func(s string, off int64) {
		t.Helper()
		if _, err := r.o.Write(e.Node, []byte(s), off, nil); err != nil {
			t.Fatal(err)
		}
	}
	write("before ", 0)
	r.seal()
	write("after", 7)
	link := func(name string) {
		t.Helper()
		err := r.in(name, func(p NodeID, name string) error {
			named, err := r.o.Link(e.Node, p, name)
			if err == nil && (named.Node != e.Node || named.Attr.Ino != e.Attr.Ino) {
				t.Errorf("linked as node %d, inode %d; was %d, %d", named.Node, named.Attr.Ino, e.Node, e.Attr.Ino)
			}
			return r.made(named, err)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	link("d/named")
	link("second")
	write("AFTER", 7)
	r.o.Forget(e.Node, 1)
	check := func() {
		t.Helper()
		for _, name := range []string{"d/named", "second"} {
			if got := r.read(name); got != "before AFTER" {
				t.Errorf("%s: got %q", name, got)
			}
			if a := r.attr(name); a.Ino != e.Attr.Ino || a.Nlink != 2 {
				t.Errorf("%s: inode %d with %d links, want %d with 2", name, a.Ino, a.Nlink, e.Attr.Ino)
			}
		}
	}
	check()
	r.wantNodes(1)
	r.reopen()
	check()
	if got := r.walk(); len(got) != 4 {
		t.Errorf("%d files, want 4", len(got))
	}
}

// TestTmpfileForgotten: what never got a name is gone with the last reference.
func TestTmpfileForgotten(t *testing.T) {
	r := newRig(t)
	e, err := r.o.Tmpfile(Caller{}, RootNode, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	r.o.Forget(e.Node, 1)
	if _, err := r.o.GetAttr(e.Node); !errors.Is(err, unix.ESTALE) {
		t.Errorf("got %v, want %v", err, unix.ESTALE)
	}
	r.wantNodes(1)
}

// TestTmpfileACL: a file without a name inherits the default ACL of the directory it was opened in.
func TestTmpfileACL(t *testing.T) {
	r := newRig(t)
	if err := r.mkdir("acl", 0o755); err != nil {
		t.Fatal(err)
	}
	// struct posix_acl_xattr: version 2; user::rwx, user:7:rwx, group::r-x, mask::rwx, other::---
	acl := []byte("\x02\x00\x00\x00\x01\x00\x07\x00\xff\xff\xff\xff\x02\x00\x07\x00\x07\x00\x00\x00\x04\x00\x05\x00\xff\xff\xff\xff" +
		"\x10\x00\x07\x00\xff\xff\xff\xff\x20\x00\x00\x00\xff\xff\xff\xff")
	if err := r.on("acl", func(n NodeID) error { return r.o.SetXattr(n, xattrDefaultACL, acl, 0) }); err != nil {
		t.Fatal(err)
	}
	r.seal()
	err := r.on("acl", func(n NodeID) error {
		e, err := r.o.Tmpfile(Caller{Umask: 0o077}, n, 0o666)
		if err != nil {
			return err
		}
		defer r.o.Forget(e.Node, 1)
		if e.Attr.Mode&0o777 != 0o660 {
			t.Errorf("mode %o, want 660", e.Attr.Mode&0o777)
		}
		_, err = r.o.GetXattr(e.Node, "system.posix_acl_access")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
