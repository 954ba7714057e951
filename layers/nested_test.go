package layers

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// TestNested checks that an overlay which is the lower of a kernel overlayfs shows what users have stored of overlays of
// their own such that the kernel shows it again, and does not act upon it.
func TestNested(t *testing.T) {
	base := t.TempDir()
	if err := errors.Join(os.MkdirAll(base+"/mine/sub", 0o755), os.WriteFile(base+"/mine/f", []byte("text"), 0o644)); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, base)
	set := func(path, name, value string) {
		t.Helper()
		if err := r.on(path, func(n NodeID) error { return r.o.SetXattr(n, name, []byte(value), 0) }); err != nil {
			t.Fatal(err)
		}
	}
	r.create("mine/data", "data")
	for _, err := range []error{
		r.rename("mine", "moved", 0), r.mkdir("moved/opaque", 0o755), r.mkdir("moved/elsewhere", 0o755),
		r.mknod("moved/white", unix.S_IFCHR|0o600, 0), r.mknod("moved/null", unix.S_IFCHR|0o600, unix.Mkdev(1, 3)),
		r.mknod("moved/empty", unix.S_IFREG|0o600, 0), r.unlink("moved/f"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	set("moved/opaque", xattrOpaque, "y")
	set("moved/elsewhere", xattrRedirect, "/moved/opaque")
	set("moved/data", xattrMetacopy, "")
	set("moved/data", "user.plain", "v")
	set("moved/empty", xattrWhiteout, "y")
	set("moved", xattrOpaque, "x")
	r.seal()
	s := openStore(t)
	m, err := Store(t.Context(), s, r.lowers[0], r.lowers[1:], StoreOptions{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	image := openStored(t, s, "image", m)
	defer func() {
		if err := image.Close(); err != nil {
			t.Error(err)
		}
	}()
	for name, top := range map[string]*Lower{"directory": r.lowers[0], "image": image} {
		t.Run(name, func(t *testing.T) { nested(t, append([]*Lower{top}, r.lowers[1:]...)) })
	}
}

func nested(t *testing.T, stack []*Lower) {
	o, err := New("", "", stack, Options{ReadOnly: true, Nested: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	}()
	e, err := findPath(o, "moved")
	if err != nil {
		t.Fatal(err)
	}
	defer o.Forget(e.Node, 1)
	want := map[string][]string{
		"": {escapeXattr(xattrOpaque)}, "opaque": {escapeXattr(xattrOpaque)}, "elsewhere": {escapeXattr(xattrRedirect)},
		"data": {escapeXattr(xattrMetacopy), "user.plain"}, "empty": {escapeXattr(xattrWhiteout)}, "white": nil, "null": nil, "sub": nil,
	}
	types := map[string]uint32{}
	if err := o.ReadDir(e.Node, cookieDotDot, func(d DirEntry) bool { types[d.Name] = d.Mode; return true }); err != nil {
		t.Fatal(err)
	}
	if len(types) != len(want)-1 {
		t.Errorf("listed are %v", types)
	}
	lower := t.TempDir() // what the kernel is given
	for name, names := range want {
		n, err := findPath(o, filepath.Join("moved", name))
		if err != nil {
			t.Fatal(name, err)
		}
		defer o.Forget(n.Node, 1)
		a := n.Attr
		if again, err := o.GetAttr(n.Node); err != nil || again != a {
			t.Errorf("%s: attributes %+v, %v; of the look-up %+v", name, again, err, a)
		}
		if name != "" && types[name] != a.Mode&unix.S_IFMT {
			t.Errorf("%s: type %o in the listing, %o otherwise", name, types[name], a.Mode)
		}
		p := filepath.Join(lower, "moved", name)
		switch {
		case isDir(a.Mode):
			err = os.MkdirAll(p, 0o755)
		default:
			if err = os.MkdirAll(filepath.Dir(p), 0o755); err == nil {
				err = unix.Mknod(p, a.Mode, int(a.Rdev))
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		got, err := o.ListXattr(n.Node)
		slices.Sort(got)
		if err != nil || !slices.Equal(got, names) {
			t.Errorf("%s: attributes %q, %v; want %q", name, got, err, names)
		}
		for _, x := range got {
			v, err := o.GetXattr(n.Node, x)
			if err != nil {
				t.Error(name, x, err)
			}
			if err := unix.Lsetxattr(p, x, v, 0); err != nil {
				t.Fatal(err)
			}
			if _, err := o.GetXattr(n.Node, unescapeXattr(x)); x != "user.plain" && !errors.Is(err, unix.ENODATA) {
				t.Errorf("%s: %s is shown: %v", name, unescapeXattr(x), err)
			}
		}
	}
	under := t.TempDir()
	for _, err := range []error{os.MkdirAll(under+"/moved/opaque", 0o755), os.WriteFile(under+"/moved/opaque/below", nil, 0o644)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	at := t.TempDir()
	if err := unix.Mount("overlay", at, "overlay", unix.MS_RDONLY, "redirect_dir=on,lowerdir="+lower+":"+under); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Unmount(at, 0); err != nil {
			t.Error(err)
		}
	}()
	for name, names := range want {
		got, err := location{dirfd: unix.AT_FDCWD, name: filepath.Join(at, "moved", name), foreign: true}.listLong()
		slices.Sort(got)
		shown := []string{}
		for _, x := range names {
			shown = append(shown, unescapeXattr(x))
		}
		if err != nil || !slices.Equal(got, shown) {
			t.Errorf("the kernel shows %q of %q, %v; want %q", got, name, err, shown)
		}
	}
	if _, err := os.Lstat(at + "/moved/opaque/below"); err != nil {
		t.Error("the kernel has taken an attribute of a user for its own: ", err)
	}
}

// listLong is listxattr of a path of any length.
func (p location) listLong() ([]string, error) {
	buf := make([]byte, 1<<16)
	n, err := unix.Llistxattr(p.name, buf)
	var names []string
	for rest := buf[:max(n, 0)]; len(rest) > 0; {
		i := slices.Index(rest, 0)
		names = append(names, string(rest[:i]))
		rest = rest[i+1:]
	}
	return names, err
}

// TestAttributeless checks that attributes are found wherever they are, and that those of the overlay itself do not count.
func TestAttributeless(t *testing.T) {
	base := t.TempDir()
	if err := errors.Join(os.MkdirAll(base+"/d/sub", 0o755), os.WriteFile(base+"/d/f", []byte("text"), 0o644)); err != nil {
		t.Fatal(err)
	}
	s := openStore(t)
	// image is a tree of changes on that of base, in a layer of its own.
	image := func(name string, change func(r *rig) error) *Lower {
		r := newRig(t, base)
		if err := change(r); err != nil {
			t.Fatal(name, err)
		}
		r.seal()
		m, err := Store(t.Context(), s, r.lowers[0], r.lowers[1:], StoreOptions{}, nil)
		if err != nil {
			t.Fatal(name, err)
		}
		l := openStored(t, s, name, m)
		t.Cleanup(func() {
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		})
		return l
	}
	set := func(name string) func(r *rig) error {
		return func(r *rig) error {
			return r.on("d/f", func(n NodeID) error { return r.o.SetXattr(n, name, []byte("v"), 0) })
		}
	}
	plain := image("plain", func(r *rig) error { return r.mkdir("new", 0o755) })
	own := image("own", func(r *rig) error {
		return errors.Join(r.unlink("d/f"), r.rename("d", "moved", 0), r.mkdir("d", 0o755))
	})
	user, escaped := image("user", set("user.a")), image("escaped", set(xattrOpaque))
	dir, err := OpenSealed("dir", t.TempDir(), 1<<48)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := dir.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, c := range []struct {
		name   string
		stack  []*Lower
		nested bool
		want   bool
	}{
		{"plain", []*Lower{plain}, true, true},
		{"own", []*Lower{own, plain}, true, true},
		{"own, as a mount of users", []*Lower{own, plain}, false, false},
		{"user", []*Lower{plain, user}, true, false},
		{"escaped", []*Lower{escaped, plain}, true, false},
		{"directory", []*Lower{plain, dir}, true, false},
	} {
		o, err := New("", "", c.stack, Options{ReadOnly: true, Nested: c.nested})
		if err != nil {
			t.Fatal(c.name, err)
		}
		if got := o.Attributeless(); got != c.want {
			t.Errorf("%s: without attributes: %v", c.name, got)
		}
		if err := o.Close(); err != nil {
			t.Error(c.name, err)
		}
	}
}
