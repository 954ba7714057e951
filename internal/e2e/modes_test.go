package e2e

import (
	"testing"

	"snapfs/internal/testseed"
	"snapfs/internal/twin"
)

// TestTwinPrivileges has several users write to each other's files in a workspace and in a directory of the host: what
// that takes from mode and attributes is the same, and each sees it at once.
func TestTwinPrivileges(t *testing.T) {
	seed := testseed.Of(t)
	steps := 400
	if long {
		steps = 20000
	}
	h := newHome(t)
	var pairs []*pair
	for i, transport := range transports(t) {
		for j, more := range [][]string{nil, {"--writeback"}} {
			name := transport + itoa(j)
			options := append([]string{"--transport", transport}, more...)
			config := twin.Config{Seed: seed + uint64(10*i+j), Privileges: true}
			pairs = append(pairs, newPair(h, name, "", "", config, options...))
		}
	}
	for range 2 {
		together(t, pairs, steps, nil)
		for _, p := range pairs {
			p.actor.Compare()
			p.reopened(func() { h.ok("snapshot", p.name); h.ok("umount", p.name) })
			p.actor.Compare()
		}
	}
	for _, p := range pairs {
		p.end()
	}
}
