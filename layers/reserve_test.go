package layers

import (
	"math"
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
