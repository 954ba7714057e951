package layers

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestWhiteoutLinks: whiteouts are links of one device, and a new one is made when that can have no further link.
func TestWhiteoutLinks(t *testing.T) {
	r := newRig(t)
	for _, name := range []string{"a", "b", "c"} {
		r.create(name, "text")
	}
	r.seal()
	inode := func(name string) (ino, links uint64) {
		t.Helper()
		var st unix.Stat_t
		if err := unix.Lstat(filepath.Join(r.upper(), name), &st); err != nil {
			t.Fatal(err)
		}
		if !isWhiteoutDevice(st.Mode, st.Rdev) {
			t.Fatalf("%s is no whiteout: mode %o", name, st.Mode)
		}
		return st.Ino, uint64(st.Nlink)
	}
	remove := func(name string) {
		t.Helper()
		if err := r.unlink(name); err != nil {
			t.Fatal(err)
		}
	}
	remove("a")
	remove("b")
	a, _ := inode("a")
	b, links := inode("b")
	if a != b || links != 3 { // the third is in the work directory
		t.Errorf("inodes %d and %d with %d links, want one with 3", a, b, links)
	}
	// What is gone can no more be linked to than what has too many links.
	if err := os.Remove(filepath.Join(r.work(), r.o.upper.device)); err != nil {
		t.Fatal(err)
	}
	remove("c")
	if c, _ := inode("c"); c == a {
		t.Error("the third whiteout is a link of the first")
	}
	r.reopen()
	for _, name := range []string{"a", "b", "c"} {
		if _, err := r.find(name); err == nil {
			t.Errorf("%s shows", name)
		}
	}
}
