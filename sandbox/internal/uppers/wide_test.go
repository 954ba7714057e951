package uppers

import (
	"testing"
)

// TestWideHost has a host whose inode numbers have more than 32 bits: each upper half gets a space of its own, the same
// for good.
func TestWideHost(t *testing.T) {
	dir := t.TempDir()
	s, _, stop := openSet(t, dir)
	seen := map[uint64]bool{}
	was := map[uint64]uint64{}
	s.mu.Lock()
	s.next = 2 << 8 // of an old home
	s.mu.Unlock()
	base := []uint64{InoBase(1)}
	for range 2 {
		n, err := s.number(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		base = append(base, InoBase(n))
	}
	for _, b := range base {
		if seen[b] {
			t.Errorf("base %#x twice", b)
		}
		seen[b] = true
		for _, high := range []uint64{1, 0xff, 0x100, 1 << 20, 1<<32 - 1} {
			got, err := s.WideIno(b, high)
			if err != nil {
				t.Fatal(err)
			}
			if seen[got] || got&(1<<SpaceBits-1) != 0 || got >= 1<<63 {
				t.Errorf("upper of %#x: inodes from %#x on have the numbers from %#x on", b, high<<32, got)
			}
			seen[got] = true
			was[b^high] = got
		}
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = s.WideIno(base[1], 1<<20) }); n != 0 {
		t.Errorf("%v allocations for a number that is known", n)
	}
	stop()
	s, _, _ = openSet(t, dir)
	for _, b := range base {
		for _, high := range []uint64{1, 0x100, 1<<32 - 1} {
			if got, err := s.WideIno(b, high); err != nil || got != was[b^high] {
				t.Errorf("opened again: got %#x, %v, want %#x", got, err, was[b^high])
			}
		}
	}
}
