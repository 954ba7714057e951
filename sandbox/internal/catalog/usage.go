package catalog

import (
	"slices"

	"snapfs/sandbox/api"
)

// Usage counts a session's snapshots and, if wanted, the bytes of the images of their layers, shared ones once. Snapshots past their
// time do not count.
func (c *Catalog) Usage(session string, wantBytes bool) (snapshots int, bytes int64) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	now := c.ids.now()
	seen := map[string]bool{}
	for _, s := range c.snapshots {
		if s.Session != session || s.Expired(now) {
			continue
		}
		snapshots++
		for id := s.Top; wantBytes && id != "" && !seen[id]; {
			l := c.layers[id]
			if l == nil {
				break // Check reports it
			}
			seen[id] = true
			bytes += l.Size
			id = l.Parent
		}
	}
	return snapshots, bytes
}

// Union lists the layers from all of the tops down, each once.
func (c *Catalog) Union(tops []string) []*Layer {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var all []*Layer
	met := map[string]bool{}
	for _, id := range tops {
		for l := c.layers[id]; l != nil && !met[l.ID]; l = c.layers[l.Parent] {
			met[l.ID] = true
			all = append(all, l)
		}
	}
	return all
}

// OwnOf lists the layers that nothing but these holders needs: those that go when they do.
func (c *Catalog) OwnOf(who map[Holder]bool) []*Layer {
	var own []*Layer
	mine := map[string]bool{}
	all := c.Layers()
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, l := range slices.Backward(all) { // what lies on a layer before the layer
		mine[l.ID] = len(c.holders[l.ID]) > 0
		for h := range c.holders[l.ID] {
			mine[l.ID] = mine[l.ID] && (who[h] || h.kind == 'l' && mine[h.id])
		}
		if mine[l.ID] {
			own = append(own, l)
		}
	}
	return own
}

// Counts are the numbers of records.
type Counts struct{ Workspaces, Snapshots, Layers, Sealed int }

// Count counts the records.
func (c *Catalog) Count() Counts {
	c.mu.RLock()
	defer c.mu.RUnlock()
	n := Counts{Workspaces: len(c.workspaces), Snapshots: len(c.snapshots), Layers: len(c.layers)}
	for _, l := range c.layers {
		if l.State == api.Sealed {
			n.Sealed++
		}
	}
	return n
}
