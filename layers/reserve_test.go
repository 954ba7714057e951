package layers

import (
	"math"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// TestReserveUntold holds that a host that does not tell how much it has, or not how many inodes, is written to as if there
// was no reserve: it says itself when it is full.
func TestReserveUntold(t *testing.T) {
	const gib = 1 << 30 / 4096
	for _, c := range []struct {
		name          string
		st            unix.Statfs_t
		bytes, inodes int64 // that are reserved
	}{
		{"all is told", unix.Statfs_t{Frsize: 4096, Blocks: gib, Bavail: gib / 2, Files: 6400, Ffree: 6000}, 16 << 20, 100},
		{"zeros", unix.Statfs_t{Frsize: 4096}, 0, 0},
		{"inodes without end", unix.Statfs_t{Frsize: 4096, Blocks: gib, Bavail: gib / 2, Files: 6400, Ffree: math.MaxUint64}, 16 << 20, 0},
		{"blocks without end", unix.Statfs_t{Frsize: 4096, Blocks: math.MaxUint64, Bavail: math.MaxUint64}, reserveMost, 0},
		{"many inodes", unix.Statfs_t{Frsize: 4096, Blocks: gib, Bavail: gib / 2, Files: 1 << 62, Ffree: 1 << 61}, 16 << 20, reserveInodes},
		{"more free than there is", unix.Statfs_t{Frsize: 4096, Blocks: gib, Bavail: math.MaxUint64 - 5}, 0, 0},
	} {
		least, free := leastOf(&c.st), freeOf(&c.st)
		if least != (Usage{c.bytes, c.inodes}) {
			t.Errorf("%s: the reserve is %+v", c.name, least)
		}
		if rest := roomOver(free, least); rest < 1<<20 {
			t.Errorf("%s: %+v are free, and %d may be taken", c.name, free, rest)
		}
	}
}

// TestReserveNearlyFull holds that of a host on which little is free only a part of that is reserved, and more when
// more is.
func TestReserveNearlyFull(t *testing.T) {
	const gib = 1 << 30
	for _, c := range []struct {
		blocks, free  int64 // bytes
		files, ffree  int64
		bytes, inodes int64 // that are reserved
	}{
		{1000 * gib, 100 * gib, 1 << 26, 1 << 25, gib, reserveInodes},
		{1000 * gib, 2 * gib, 1 << 26, 1 << 17, gib / 2, 1 << 15},
		{1000 * gib, gib / 8, 1 << 26, 5000, leastBytes, leastInodes},
		{1000 * gib, 0, 1 << 26, 0, leastBytes, leastInodes},
		{gib, gib / 8, 6400, 10, 16 << 20, 100}, // a small one
	} {
		st := unix.Statfs_t{
			Frsize: 4096, Blocks: uint64(c.blocks / 4096), Bavail: uint64(c.free / 4096),
			Files: uint64(c.files), Ffree: uint64(c.ffree),
		}
		if got := leastOf(&st); got != (Usage{c.bytes, c.inodes}) {
			t.Errorf("%+v: the reserve is %+v", c, got)
		}
	}
	var n atomic.Int64
	for _, to := range []int64{5, 3, 7} {
		raise(&n, to)
	}
	if n.Load() != 7 {
		t.Error(n.Load())
	}
}

// TestReserveOneGrowth holds that of a growth that begins while the host is calm only what it takes of the tight zone is
// weighed against what it leaves: a file that is allocated at once may be as large as one that is written bit by bit.
func TestReserveOneGrowth(t *testing.T) {
	for _, c := range []struct {
		n, free, least, want int64
	}{
		{50, 1000, 100, 0}, {800, 1000, 100, 0}, {850, 1000, 100, 50}, {20, 200, 100, 20}, {20, 150, 100, 20}, {20, 50, 100, 20},
	} {
		if got := tightOf(c.n, c.free, c.least); got != c.want {
			t.Errorf("%+v: got %d", c, got)
		}
	}
	r, err := NewReserve(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	free, least, ok := r.free()
	if !ok || least.Bytes == 0 || free.Bytes < 4*least.Bytes {
		t.Skip("the host is tight, or does not tell")
	}
	r.tight.Store(true)
	all := free.Bytes - 2*least.Bytes
	if u := (Usage{Bytes: all + least.Bytes/4}); !r.grow(&crowd{}, u) {
		t.Errorf("%+v is refused: %d are free, %d reserved", u, free.Bytes, least.Bytes)
	}
	if u := (Usage{Bytes: all + 3*least.Bytes/4}); r.grow(&crowd{}, u) {
		t.Errorf("%+v is granted: %d are free, %d reserved", u, free.Bytes, least.Bytes)
	}
}
