package layers

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// someCaps and otherCaps are capabilities in the kernel's form: version 2, effective, then what is permitted.
const (
	someCaps  = "\x01\x00\x00\x02\x00\x20\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	otherCaps = "\x01\x00\x00\x02\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
)

// wantCaps compares what a file has, as callers see it and on the host.
func (r *rig) wantCaps(name, what, want string) {
	r.t.Helper()
	err := r.on(name, func(n NodeID) error {
		got, err := r.o.GetXattr(n, xattrCapability)
		if errors.Is(err, unix.ENODATA) {
			err = nil
		}
		names, lerr := r.o.ListXattr(n)
		if listed := slices.Contains(names, xattrCapability); string(got) != want || listed != (want != "") {
			r.t.Errorf("%s: %s has %x, listed %v; want %x", what, name, got, listed, want)
		}
		return errors.Join(err, lerr)
	})
	if err != nil {
		r.t.Error(err)
	}
	buf := make([]byte, 100)
	n, _ := unix.Lgetxattr(filepath.Join(r.upper(), name), xattrCapability, buf) // not in the upper, or without
	if got := string(buf[:max(n, 0)]); got != want {
		r.t.Errorf("%s: on the host %s has %x, want %x", what, name, got, want)
	}
}

func (r *rig) setCaps(name, value string) {
	r.t.Helper()
	if err := r.on(name, func(n NodeID) error { return r.o.SetXattr(n, xattrCapability, []byte(value), 0) }); err != nil {
		r.t.Fatal(err)
	}
}

// TestCapabilities: a file's capabilities go when a program changes its contents, and stay when the kernel writes its
// pages back or data is copied up, whether the file is copied as a whole or by blocks.
func TestCapabilities(t *testing.T) {
	low := t.TempDir()
	rnd := rand.New(rand.NewPCG(1, 1))
	for name, size := range map[string]int64{"small": 10_000, "big": 2 << 20} {
		if err := os.WriteFile(filepath.Join(low, name), randomData(rnd, size), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	who := Caller{UID: 1, GID: 1}
	for _, c := range []struct {
		what string
		do   func(r *rig, n NodeID) error
		stay bool
	}{
		{"pages", func(r *rig, n NodeID) error { _, err := r.o.WriteBack(n, []byte("x"), 5); return err }, true},
		{"pages, twice", func(r *rig, n NodeID) error {
			_, first := r.o.WriteBack(n, []byte("x"), 5)
			_, err := r.o.WriteBack(n, []byte("x"), 9000)
			return errors.Join(first, err)
		}, true},
		{"completed", func(r *rig, n NodeID) error {
			_, err := r.o.Write(n, []byte("x"), 5, nil)
			return errors.Join(err, r.o.SetXattr(n, xattrCapability, []byte(someCaps), 0), r.o.Complete(t.Context()))
		}, true},
		{"write", func(r *rig, n NodeID) error { _, err := r.o.Write(n, []byte("x"), 5, nil); return err }, false},
		{"another user's write", func(r *rig, n NodeID) error { _, err := r.o.Write(n, []byte("x"), 5, &who); return err }, false},
		{"fallocate", func(r *rig, n NodeID) error { return r.o.Fallocate(n, 0, 0, 100) }, false},
		{"punch", func(r *rig, n NodeID) error {
			return r.o.Fallocate(n, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 8192)
		}, false},
		{"copy", func(r *rig, n NodeID) error { _, err := r.o.CopyRange(n, 0, n, 5000, 100); return err }, false},
		{"truncate", func(r *rig, n NodeID) error {
			_, err := r.o.SetAttr(Caller{}, n, SetAttr{Valid: SetSize, Size: 5000})
			return err
		}, false},
		{"empty", func(r *rig, n NodeID) error {
			_, err := r.o.SetAttr(Caller{}, n, SetAttr{Valid: SetSize})
			return err
		}, false},
		{"remove", func(r *rig, n NodeID) error { return r.o.RemoveXattr(n, xattrCapability) }, false},
		{"kill", func(r *rig, n NodeID) error { _, err := r.o.SetAttr(who, n, SetAttr{Valid: KillPriv}); return err }, false},
	} {
		r := newRig(t, low)
		for _, name := range []string{"small", "big"} {
			r.setCaps(name, someCaps)
			if err := r.on(name, func(n NodeID) error { return c.do(r, n) }); err != nil {
				t.Fatalf("%s of %s: %v", c.what, name, err)
			}
			want := ""
			if c.stay {
				want = someCaps
			}
			r.wantCaps(name, c.what, want)
		}
	}
}

// TestCapabilitiesSettled: what a partial file has lost with the power comes back without costing its capabilities.
func TestCapabilitiesSettled(t *testing.T) {
	r, data := bigLower(t, 2<<20)
	if err := r.write("f", "x", 5); err != nil {
		t.Fatal(err)
	}
	data[5] = 'x'
	r.setCaps("f", someCaps)
	host := r.hostFileOf("f")
	if err := unix.Fallocate(int(host.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 8192, 4096); err != nil {
		t.Fatal(err)
	}
	// The hole has cost them
	if err := unix.Fsetxattr(int(host.Fd()), xattrCapability, []byte(someCaps), 0); err != nil {
		t.Fatal(err)
	}
	boot := bootID
	defer func() { bootID = boot }()
	bootID = func() uint64 { return 12345 }
	r.reopen()
	r.wantContents("f", data)
	r.wantCaps("f", "after a loss of power", someCaps)
}

// TestCapabilitiesMeanwhile has pages written back while capabilities are set, changed and removed: nobody ever sees
// others than were set last, and what was removed does not come back.
func TestCapabilitiesMeanwhile(t *testing.T) {
	r := newRig(t)
	r.create("f", "text")
	e, err := r.find("f")
	if err != nil {
		t.Fatal(err)
	}
	defer r.o.Forget(e.Node, 1)
	n := e.Node
	var writers sync.WaitGroup
	var stop atomic.Bool
	for i := range 2 {
		writers.Add(1)
		go func() {
			defer writers.Done()
			page := make([]byte, 4096)
			for !stop.Load() {
				if _, err := r.o.WriteBack(n, page, int64(i)*4096); err != nil {
					t.Error(err)
					return
				}
			}
		}()
	}
	for i := range 3000 {
		value := []byte([]string{someCaps, otherCaps}[i%2])
		if err := r.o.SetXattr(n, xattrCapability, value, 0); err != nil {
			t.Fatal(err)
		}
		if err := r.o.SetXattr(n, xattrCapability, value, unix.XATTR_CREATE); !errors.Is(err, unix.EEXIST) {
			t.Fatalf("set once more, as the first: %v", err)
		}
		for range 3 {
			got, err := r.o.GetXattr(n, xattrCapability)
			names, lerr := r.o.ListXattr(n)
			if err != nil || lerr != nil || !bytes.Equal(got, value) || !slices.Contains(names, xattrCapability) {
				t.Fatalf("round %d: %x, %v of %q, %v; want %x", i, got, err, names, lerr, value)
			}
		}
		if i%4 == 0 {
			continue // the next one replaces it
		}
		if i%4 == 1 {
			_, err = r.o.SetAttr(Caller{UID: 1, GID: 1}, n, SetAttr{Valid: KillPriv})
		} else {
			err = r.o.RemoveXattr(n, xattrCapability)
		}
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if got, err := r.o.GetXattr(n, xattrCapability); !errors.Is(err, unix.ENODATA) {
				t.Fatalf("round %d: removed, and there is %x, %v", i, got, err)
			}
			if size, err := unix.Lgetxattr(filepath.Join(r.upper(), "f"), xattrCapability, nil); !errors.Is(err, unix.ENODATA) {
				t.Fatalf("round %d: removed, and the host has %d bytes, %v", i, size, err)
			}
		}
	}
	stop.Store(true)
	writers.Wait()
	if len(r.o.caps.m) > 0 {
		t.Errorf("%d files are left in the table", len(r.o.caps.m))
	}
}
