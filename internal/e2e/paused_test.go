package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"snapfs/internal/testseed"
	"snapfs/internal/twin"
)

// TestTwinPaused pauses workspaces in which many programs write, so that each of those waits. Others work as if nothing
// was, and nothing is lost in those that waited.
func TestTwinPaused(t *testing.T) {
	seed := testseed.Of(t)
	for _, transport := range transports(t) {
		t.Run(transport, func(t *testing.T) {
			h := newHome(t)
			rng := newRand(seed)
			var pairs []*pair
			for i := range 2 {
				config := twin.Config{Seed: seed + uint64(i)}
				pairs = append(pairs, newPair(h, "other"+itoa(i), "", "", config, "--transport", transport))
			}
			var crowds []*crowd
			var paused []string
			for i := range 2 + rng.IntN(2) {
				name := "crowd" + itoa(i)
				h.makeDir(name)
				h.ok("create", name)
				h.ok("mount", name, h.path(name), "--transport", transport)
				t.Cleanup(func() { h.run("resume", name) }) // before the crowd's end
				crowds = append(crowds, startCrowd(t, "writers", h.path(name), 20+rng.IntN(150), seed+uint64(i)))
				t.Cleanup(func() { h.run("resume", name) })
				paused = append(paused, name)
			}
			for round := range rounds(1, 4) {
				for i, c := range crowds {
					c.more(1)
					h.ok("pause", paused[i])
				}
				for _, c := range crowds {
					c.stalls()
				}
				together(t, pairs, 100, func() {
					h.ok("snapshot", pairs[0].name)
					name := "fresh" + itoa(round)
					require.Zero(t, h.runFor(time.Minute, "up", name, h.path(name), "--transport", transport).code)
					shell(t, soon, h.path(name), `echo here > file; sync file; grep -q here file`)
					h.ok("fork", paused[0], h.path(name+"-fork"))
					h.ok("umount", name)
				})
				for _, i := range rng.Perm(len(crowds)) {
					h.ok("resume", paused[i])
				}
				for _, c := range crowds {
					c.more(10)
				}
				for _, p := range pairs {
					p.actor.Compare()
				}
			}
			for _, p := range pairs {
				p.end()
			}
		})
	}
}
