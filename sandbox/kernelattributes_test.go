package sandbox

import (
	"path/filepath"
	"strings"
	"testing"

	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/mountns"
)

// attributesShown prints the modes and all extended attributes of a tree.
const attributesShown = `cd "$1"; find . -printf '%p %M %U %G %s %y %l\n' | sort; find . -print0 | sort -z | xargs -0 getfattr -h -d -m - -e hex`

// TestKernelAttributes: what is below a mount of the kernel engine shows the same attributes as by the fuse engine, also
// when it is copied up and when another process serves it. Where nothing has any, the kernel asks once.
func TestKernelAttributes(t *testing.T) {
	t.Cleanup(mountns.Enable())
	t.Setenv("GORACE", "atexit_sleep_ms=0") // of the processes that mount, as in package testchild
	s := newSuccession(t)
	tree := `mkdir -p SRC/d/e SRC/plain; cd SRC; for f in user acl cap setuid d/low plain/f; do echo $f >$f; done; ln -s user link; ln user hard; chmod 6755 setuid; `
	s.sh(strings.ReplaceAll(tree, "SRC", "none"))
	s.sh(strings.ReplaceAll(tree, "SRC", "some") + `
		setfattr -n user.a -v b user; setfattr -n trusted.t -v u d/low; setfattr -n trusted.overlay.opaque -v y plain
		setfacl -m u:1234:rw acl; setfacl -d -m u:1234:rx d; setfacl -m u:4321:x d/e
		setfattr -n security.capability -v 0x0100000200040000000000000000000000000000 cap`)
	mount := func(name, engine string) {
		t.Helper()
		_, err := s.home.Mount(s.ctx, MountRequest{
			Workspace: name, Mountpoint: filepath.Join(s.work, "at-"+name), MakeMountpoint: true,
			MountOptions: MountOptions{Engine: engine},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	unmount := func(name string) {
		t.Helper()
		if _, err := s.home.Unmount(s.ctx, UnmountRequest{Workspace: name}); err != nil {
			t.Fatal(err)
		}
	}
	show := func(name string) string { return s.sh("set -- at-" + name + "\n" + attributesShown) }
	asked := func(name string) (n uint64) {
		t.Helper()
		o, err := s.home.Show(s.ctx, RefRequest{Ref: s.home.catalog.Workspace(name).Kernel.View})
		if err != nil {
			t.Fatal(err)
		}
		return o.Workspace.Requests["GETXATTR"]
	}
	want := map[string]string{}
	for _, name := range []string{"none", "some"} {
		_, err := s.home.Create(s.ctx, CreateRequest{Name: name, Source: filepath.Join(s.work, name), WaitImported: true})
		if err != nil {
			t.Fatal(err)
		}
		mount(name, api.EngineFUSE)
		want[name] = show(name)
		unmount(name)
		mount(name, api.EngineKernel)
		if got := show(name); got != want[name] {
			t.Errorf("%s: the kernel engine shows\n%s\nwhere the other shows\n%s", name, got, want[name])
		}
	}
	for _, text := range []string{
		"user.a=", "trusted.t=", "trusted.overlay.opaque=", "system.posix_acl_access=", "system.posix_acl_default=",
		"security.capability=", "-rwsr-sr-x",
	} {
		if !strings.Contains(want["some"], text) {
			t.Errorf("there is no %s in\n%s", text, want["some"])
		}
	}
	if n := asked("none"); n > 1 {
		t.Errorf("the kernel has asked for attributes %d times, of which there are none", n)
	}
	s.next(Options{})
	for name, was := range want {
		s.sh(`echo 2 >/proc/sys/vm/drop_caches`)
		if got := show(name); got != was {
			t.Errorf("%s: served by another process, it shows\n%s\nand before\n%s", name, got, was)
		}
	}
	if n := asked("none"); n > 0 {
		t.Errorf("the kernel asks the next process for attributes, %d times", n)
	}
	change := `cd "$1"; touch user cap setuid acl d/low d/e plain; mv d moved; setfattr -n user.new -v x moved/e plain/f; setfacl -m u:77:r moved/low`
	for name := range want {
		s.sh("set -- at-" + name + "\n" + change)
		got := show(name)
		unmount(name)
		mount(name, api.EngineFUSE)
		if same := show(name); got != same {
			t.Errorf("%s: changed by the kernel engine it shows\n%s\nand by the other\n%s", name, got, same)
		}
		unmount(name)
		if !strings.Contains(got, "user.new=") || !strings.Contains(got, "system.posix_acl_access=") {
			t.Errorf("%s: what was set is missing in\n%s", name, got)
		}
	}
}
