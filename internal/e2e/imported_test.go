package e2e

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"snapfs/internal/testseed"
	"snapfs/internal/treewalk"
	"snapfs/internal/twin"
	"snapfs/sandbox"
)

// TestTwinImported carries trees from one home to another and back. The homes are on equal disks and number their files
// alike, and no file becomes another: not when it is written, nor when the kernel forgets it, nor in a snapshot or in
// the home that it came from.
func TestTwinImported(t *testing.T) {
	seed := testseed.Of(t)
	rng := newRand(seed)
	homes := []*disk{newDisk(t, 256), newDisk(t, 256)}
	h := homes[0]
	tree := plainTree(h.home, "tree", seed, 300)
	p := newPair(h.home, "ws", tree, tree, twin.Config{Seed: seed})
	for round := range rounds(2, 6) {
		alike(p, round)
		p.actor.Steps(150)
		for range rng.IntN(3) {
			h.ok("snapshot", p.name)
			p.actor.Steps(30)
		}
		p.compare()
		id := h.ok("snapshot", p.name, "--wait", "stored")
		p.reopened(func() {}) // closes what is open: what has no name stays behind
		p.actor.Stop()
		here := walk(t, p.mount)
		// Home now has the files; the other one gets them, and edits them.
		image := h.path("image" + itoa(round) + ".sqsh")
		args := []string{"export", id, image}
		if rng.IntN(2) == 0 {
			args = append(args, "--compression", "zstd", "--level", "1")
		}
		h.ok(args...)
		from := p.ref
		h = homes[(round+1)%2]
		next := newPair(h.home, "ws"+itoa(round), image, from, twin.Config{Seed: seed + uint64(round) + 1})
		same(t, "imported", here, walk(t, next.mount), treewalk.Options{IgnoreRoot: true})
		require.NoError(t, os.Remove(image))
		p = next
		alike(p, round+100)
		p.unique()
		switch rng.IntN(4) {
		case 0:
			require.NoError(t, os.WriteFile("/proc/sys/vm/drop_caches", []byte("2"), 0))
		case 1:
			p.reopened(func() { h.ok("stop") })
		case 2:
			p.reopened(func() { h.ok("umount", p.name) })
		case 3:
			p.reopened(func() {
				id := h.ok("snapshot", p.name)
				h.ok("umount", p.name)
				p.name = h.ok("restore", id)
			})
		}
		p.compare()
	}
	p.end()
	for _, h := range homes {
		require.Empty(t, decode[sandbox.CheckResult](h.home, "check", "--read-data").Problems)
	}
}

// alike makes files and changes all that are there, in a workspace and in its twin; two homes that do it number their
// files alike.
func alike(p *pair, round int) {
	p.h.t.Helper()
	for _, dir := range []string{p.mount, p.ref} {
		shell(p.h.t, soon, dir, `mkdir -p many
			for f in many/*; do [ ! -f "$f" ] || echo "edited $1" >> "$f"; done
			for i in $(seq 80); do echo "$1 $i" > "many/$1-$i"; done
			for i in $(seq 1 7 80); do ln "many/$1-$i" "many/$1-$i-too"; done
			find many -exec touch -d @1000000000 {} +`, itoa(round))
	}
	want, got := walk(p.h.t, p.ref+"/many"), walk(p.h.t, p.mount+"/many")
	same(p.h.t, "with many files", want, got, treewalk.Options{IgnoreExtents: true})
}
