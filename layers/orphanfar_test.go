package layers

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestOrphanFar: a file without a name whose data is in a layer below is there after seals for each successor, also if its
// attributes leave no room for where that is.
func TestOrphanFar(t *testing.T) {
	for name, remove := range map[string]func(r *rig, path string) error{
		"unlink":      (*rig).unlink,
		"rename over": func(r *rig, path string) error { return r.rename("other", path, 0) },
		"no pins": func(r *rig, path string) error {
			r.o.orphans.limit = -1
			return r.unlink(path)
		},
	} {
		t.Run(name, func(t *testing.T) {
			lower := t.TempDir()
			dir := strings.Repeat("l", 250)
			if err := os.Mkdir(filepath.Join(lower, dir), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(lower, dir, "f"), []byte("text"), 0o644); err != nil {
				t.Fatal(err)
			}
			r := newLiveRig(t, lower)
			r.create("other", "other")
			e, err := r.find(dir + "/f")
			if err != nil {
				t.Fatal(err)
			}
			if err := r.o.SetXattr(e.Node, "user.a", make([]byte, 2990), 0); err != nil {
				t.Fatal(err)
			}
			for i := range 20 { // ext4 has room for a number, but for no path
				err := r.o.SetXattr(e.Node, "user."+strings.Repeat("b", i+1), make([]byte, 10), 0)
				if err != nil && !errors.Is(err, unix.ENOSPC) {
					t.Fatal(err)
				}
			}
			want := r.state(e.Node)
			if err := remove(r, dir+"/f"); err != nil {
				t.Fatal(err)
			}
			want = strings.Replace(want, " 4 1[", " 4 0[", 1)
			for range 3 {
				if got := r.state(e.Node); got != want {
					t.Fatalf("it is %.100s, want %.100s", got, want)
				}
				old := r.upper() + sideSuffix
				r.seal()
				if err := os.RemoveAll(old); err != nil {
					t.Fatal(err)
				}
				r.killed()
			}
			r.o.Forget(e.Node, 1)
			r.o.reaper.drain()
			names, err := os.ReadDir(filepath.Join(r.work(), orphanDir))
			if err != nil || len(names) > 0 {
				t.Errorf("%v is left, %v", names, err)
			}
			// A redirect without its file, as a kill may leave it.
			if err := unix.Mknod(filepath.Join(r.work(), orphanDir, farPrefix+"1"), unix.S_IFREG|0o600, 0); err != nil {
				t.Fatal(err)
			}
			r.killed()
			if names, err = os.ReadDir(filepath.Join(r.work(), orphanDir)); err != nil || len(names) > 0 {
				t.Errorf("%v is left, %v", names, err)
			}
		})
	}
}
