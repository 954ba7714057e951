package e2e

import (
	"encoding/binary"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"snapfs/internal/testseed"
	"snapfs/sandbox"
)

// TestHostile takes images apart at random and gives them to the daemon, which makes something of each or says in one
// line why not, stays alive, and needs no memory for it.
func TestHostile(t *testing.T) {
	seed := testseed.Of(t)
	rng := newRand(seed)
	h := newHome(t)
	var images [][]byte
	add := func(names ...string) {
		for _, name := range names {
			data, err := os.ReadFile(name)
			require.NoError(t, err)
			images = append(images, data)
		}
	}
	// Most of them with metadata that are not compressed, so that a change is one of what they say.
	dir := plainTree(h, "tree", seed, 400)
	shell(t, soon, h.tmp, `mksquashfs "$1" plain.sqsh -noappend -quiet -no-progress -noI -noId -noX
		mksquashfs "$1" packed.sqsh -noappend -quiet -no-progress -b 4096`, dir)
	h.ok("create", "own", "--from", dir)
	h.ok("snapshot", "own", "--name", "whole")
	h.ok("export", "whole", "own.sqsh")
	add(h.path("plain.sqsh"), h.path("plain.sqsh"), h.path("own.sqsh"), h.path("own.sqsh"), h.path("packed.sqsh"))
	broken, err := filepath.Glob("../../testdata/broken/*.sqsh")
	require.NoError(t, err)
	for range 4 {
		add(broken[rng.IntN(len(broken))])
	}
	pid, took := h.pid(), 0
	for i := range rounds(15, 100) {
		image := mutate(rng, images[rng.IntN(len(images))])
		file := h.path("image.sqsh")
		require.NoError(t, os.WriteFile(file, image, 0o644))
		begin := time.Now()
		if hostile(h, "ws"+itoa(i), file) {
			took++
		}
		if d := time.Since(begin); d > 5*time.Second {
			t.Logf("image %d took %v", i, d)
		}
		if t.Failed() || h.pid() != pid || peak(t, pid) > 512<<10 {
			t.Fatalf("SNAPFS_SEED=%d, image %d: daemon %d and %d, %d KiB", seed, i, pid, h.pid(), peak(t, pid))
		}
	}
	t.Logf("%d images were taken; %d KiB", took, peak(t, pid))
	require.Empty(t, decode[sandbox.CheckResult](h, "check", "--read-data").Problems)
}

// hostile does with an image what people do, and reports whether a workspace could be made from it.
func hostile(h *home, name, image string) bool {
	h.t.Helper()
	clean := func(args ...string) bool {
		h.t.Helper()
		r := h.runFor(time.Minute, args...)
		if r.code != 0 && (r.code > 7 || strings.Count(r.err, "\n") != 1 || strings.Contains(r.err, "panic")) {
			h.t.Errorf("snapfs %q ended with %d: %s", args, r.code, tail(r.err))
		}
		return r.code == 0
	}
	if !clean("create", name, "--from", image) {
		return false
	}
	if clean("mount", name, h.makeDir("hostile")) {
		// What cannot be read gives an error; nothing waits.
		process(h.t, time.Minute, h.tmp, nil, "bash", "-c", `cd hostile || exit; find . -type f -exec cat {} + ; find . -exec getfattr -h -d -m - {} +; find . -ls; echo new > new
			for f in *; do chmod 600 "$f"; if [ -f "$f" ]; then echo more >> "$f"; fi; mv "$f" "$f.moved"; rm -rf "$f.moved"; done 2>&1; true`)
		if clean("snapshot", name, "--name", name, "--wait", "stored") {
			clean("export", name, "exported.sqsh")
		}
		clean("check")
		clean("umount", name)
	}
	h.ok("destroy", name)
	clean("delete", name+":"+name)
	return true
}

// mutate changes some bytes or numbers of an image, mostly of its metadata, puts one part in the place of another, or
// cuts it off.
func mutate(rng *rand.Rand, image []byte) []byte {
	b := append([]byte(nil), image...)
	start := min(int(binary.LittleEndian.Uint64(b[64:])), len(b)-9)
	if start < 0 || rng.IntN(10) == 0 {
		start = 0
	}
	at := func() int { return start + rng.IntN(len(b)-8-start) }
	numbers := []uint64{
		0, 1, 2, 0x7f, 0xff, 0x7fff, 0x8000, 0xffff, 0x7fffffff, 0x80000000, 0xffffffff, 1 << 40, 1<<63 - 1, 1 << 63,
		1<<64 - 1, uint64(len(b)),
	}
	for range 1 + rng.IntN(4) {
		n := numbers[rng.IntN(len(numbers))]
		if rng.IntN(2) == 0 {
			n = uint64(rng.IntN(2 * len(b)))
		}
		switch rng.IntN(12) {
		case 0, 1, 2:
			b[at()] = byte(rng.IntN(256))
		case 3:
			b[at()] ^= 1 << rng.IntN(8)
		case 4, 5:
			binary.LittleEndian.PutUint16(b[at():], uint16(n))
		case 6, 7:
			binary.LittleEndian.PutUint32(b[at()&^3:], uint32(n))
		case 8:
			binary.LittleEndian.PutUint64(b[at()&^7:], n)
		case 9: // the superblock
			binary.LittleEndian.PutUint32(b[4*rng.IntN(24):], uint32(n))
		case 10:
			from, to, length := at(), at(), 1+rng.IntN(64)
			copy(b[to:], b[from:min(from+length, len(b))])
		case 11:
			if rng.IntN(3) == 0 && len(b) > 8192 {
				b = b[:96+rng.IntN(len(b)-96)]
				if len(b) < start+64 {
					return b
				}
			}
		}
	}
	return b
}
