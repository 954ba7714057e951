package layers

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// TestWideNumbers: on a host with long inode numbers, who makes an inode asks what its number begins with, and not who
// looks it up with everybody waiting for him.
func TestWideNumbers(t *testing.T) {
	narrow = 1
	defer func() { narrow = 32 }()
	low := t.TempDir()
	for _, name := range []string{"f", "g", "sub/f", "sub/g"} {
		name = filepath.Join(low, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte("stored"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, whiteouts := range []string{"char", "xattr"} {
		t.Run(whiteouts, func(t *testing.T) {
			l, err := OpenSealed("low", low, 0)
			if err != nil {
				t.Fatal(err)
			}
			r := newRigOver(t, l)
			if err := r.o.Close(); err != nil {
				t.Fatal(err)
			}
			var mu sync.Mutex
			known := map[uint64]uint64{}
			wide := func(base, high uint64) (uint64, error) {
				mu.Lock()
				defer mu.Unlock()
				if known[high] == 0 {
					switch {
					case r.o == nil: // it is being opened
					case r.o.tree.TryLock():
						r.o.tree.Unlock()
					default:
						t.Errorf("asked for %x with the tree held", high)
					}
					known[high] = base | uint64(len(known)+1)<<20
				}
				return known[high], nil
			}
			r.o = nil
			o, err := New(r.upper(), r.work(), r.lowers, Options{InoBase: r.base(), WideIno: wide, Whiteouts: whiteouts})
			if err != nil {
				t.Fatal(err)
			}
			r.o = o
			for _, s := range []step{
				{kind: "mkdir", a: "d"},
				{kind: "create", a: "d/f"},
				{kind: "symlink", a: "d/l", data: "x"},
				{kind: "list", a: "d"},
				{kind: "unlink", a: "sub/f"},
				{kind: "list", a: "sub"},
				{kind: "chmod", a: "sub/g", n: 0o600},
				{kind: "list", a: "sub"},
				{kind: "write", a: "f"},
				{kind: "rename", a: "f", b: "d/g"},
				{kind: "list", a: "."},
				{kind: "create", a: "c"},
				{kind: "unlink", a: "g"},
				{kind: "list", a: "."},
				{kind: "unlink", a: "c"},
			} {
				if s.kind == "rename" && whiteouts == "xattr" {
					continue // it runs alone
				}
				if s.a == "." {
					r.list("")
					continue
				}
				if got := r.do(s); !strings.HasPrefix(got, "ok ") {
					t.Errorf("%s: %s", s, got)
				}
			}
			e, err := r.o.Tmpfile(Caller{}, RootNode, unix.S_IFREG|0o600)
			if err != nil {
				t.Fatal(err)
			}
			r.o.Forget(e.Node, 1)
			r.walk()
			if len(known) < 3 {
				t.Errorf("%d spaces", len(known))
			}
		})
	}
}
