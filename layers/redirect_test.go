package layers

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestFarRedirect renames directories and files whose paths are longer than what the host keeps in an attribute, and
// beyond PATH_MAX, out of a layer: no rename ends in EXDEV, and all is found again live, sealed, opened anew and
// stored.
func TestFarRedirect(t *testing.T) {
	const depth = 24
	name := strings.Repeat("n", 254)
	deep := strings.Repeat(name+"/", depth)
	r := newRig(t)
	for i := range depth {
		if err := r.mkdir(deep[:i*255]+name, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"one", "two"} {
		if err := r.mkdir(deep+dir, 0o755); err != nil {
			t.Fatal(err)
		}
		r.create(deep+dir+"/f", "in "+dir)
		r.create(deep+dir+"/meta", "metadata of "+dir)
	}
	if err := r.link(deep+"two/meta", deep+"hard"); err != nil {
		t.Fatal(err)
	}
	base := r.seal()
	ino := r.attr(deep + "one").Ino
	for _, err := range []error{
		r.rename(deep+"one", "one", 0),
		r.rename(deep+"two", "one/two", 0),
		r.setattr("one/two/meta", SetAttr{Valid: SetMode, Mode: 0o600}),
		r.rename("one/two/meta", "meta", 0),
		r.rename(deep+"hard", "hard", 0),
		r.write("one/two/f", "IN", 0),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	check := func(what string, r *rig) {
		t.Helper()
		for path, want := range map[string]string{
			"one/f": "in one", "one/meta": "metadata of one", "one/two/f": "IN two", "meta": "metadata of two", "hard": "metadata of two",
		} {
			if got := r.read(path); got != want {
				t.Errorf("%s: %s: got %q, want %q", what, path, got, want)
			}
		}
		if got := r.attr("one").Ino; got != ino {
			t.Errorf("%s: inode number %d became %d", what, ino, got)
		}
		if a, b := r.attr("meta"), r.attr("hard"); a.Ino != b.Ino || a.Nlink != 2 || a.Mode != unix.S_IFREG|0o600 {
			t.Errorf("%s: meta is inode %d with %d links, hard %d", what, a.Ino, a.Nlink, b.Ino)
		}
		if n := len(r.list(strings.TrimSuffix(deep, "/"))); n != 0 {
			t.Errorf("%s: %d names are left", what, n)
		}
	}
	check("live", r)
	top := r.seal()
	check("sealed", r)
	r.reopen()
	check("opened anew", r)
	if err := r.rename("one/two", "two", 0); err != nil {
		t.Fatal(err)
	}
	if err := r.rename("two", "one/two", unix.RENAME_NOREPLACE); err != nil {
		t.Fatal(err)
	}
	check("moved again", r)
	s := openStore(t)
	below, err := Store(t.Context(), s, base, nil, StoreOptions{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	above, err := Store(t.Context(), s, top, []*Lower{base}, StoreOptions{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	check("stored", newRigOver(t, openStored(t, s, "top", above), openStored(t, s, "base", below)))
}
