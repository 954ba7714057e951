package catalog

import (
	"fmt"
	"testing"

	"snapfs/sandbox/api"
)

// TestTouched holds that what a snapshot has merges looked for in does not grow with the stack.
func TestTouched(t *testing.T) {
	c := newCatalog(nil, Options{})
	const depth = 50
	top := ""
	grow := func(i int) {
		l := &Layer{ID: fmt.Sprintf("%03d", i), Parent: top, State: api.Sealed, Upper: uint64(i)}
		c.apply(&Change{
			PutLayers:     []*Layer{l},
			PutWorkspaces: []*Workspace{{ID: "w", Base: l.ID, Upper: uint64(i + 1)}},
			PutSnapshots:  []*Snapshot{{ID: "snapshot " + l.ID, Top: l.ID, ParentTop: top}},
		})
		top = l.ID
	}
	for i := range depth {
		grow(i + 1)
	}
	g := c.Merges()
	for {
		if _, ok := g.Next(BaseShare); !ok {
			break
		}
	}
	grow(depth + 1)
	g.take()
	g.above()
	if n := max(len(g.rows.in), len(g.tiers.in)); n == 0 || n > 2 {
		t.Errorf("a snapshot of a workspace with %d layers touched %d, want the new one and the one below", depth+1, n)
	}
}
