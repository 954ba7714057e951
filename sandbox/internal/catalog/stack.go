package catalog

import (
	"fmt"
	"math"
	"slices"

	"snapfs/sandbox/api"
)

// noRecord says that a layer which something names has no record.
func noRecord(layer string) error {
	return fmt.Errorf("%w: layer %s has no record", api.ErrCorrupt, layer)
}

// Head is the upper end of a stack, with figures of the whole stack.
type Head struct {
	Layers []*Layer // topmost first
	Depth  int      // layers of the stack
	Sealed int      // so many of them are not stored
}

// Head gives the stack whose topmost layer is top, with at most most of its layers; api.ErrCorrupt if one of the stack
// has no record.
func (c *Catalog) Head(top string, most int) (Head, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if top == "" {
		return Head{}, nil
	}
	n := c.index.nodes[top]
	if n == nil || n.depth == 0 {
		return Head{}, c.index.missing(top)
	}
	h := Head{Depth: n.depth, Sealed: n.sealed}
	h.Layers = make([]*Layer, 0, min(most, n.depth))
	for ; n != nil && len(h.Layers) < most; n = n.parent {
		h.Layers = append(h.Layers, n.layer)
	}
	return h, nil
}

// Stack lists the layers from top down to the root of the tree.
func (c *Catalog) Stack(top string) ([]*Layer, error) {
	h, err := c.Head(top, math.MaxInt)
	return h.Layers, err
}

// missing says which layer of a stack has no record.
func (x *index) missing(top string) error {
	met := map[string]bool{}
	id := top
	for l := x.layer(id); l != nil && !met[id]; l = x.layer(id) {
		met[id] = true
		id = l.Parent
	}
	return noRecord(id)
}

// SealedOf lists the layers of a stack that are not stored, topmost first.
func (c *Catalog) SealedOf(top string) ([]*Layer, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if top == "" {
		return nil, nil
	}
	n := c.index.nodes[top]
	if n == nil || n.depth == 0 {
		return nil, c.index.missing(top)
	}
	var list []*Layer
	for ; n != nil && n.sealed > 0; n = n.parent {
		if n.layer.State != api.Stored {
			list = append(list, n.layer)
		}
	}
	return list, nil
}

// Common is the topmost layer that two stacks have both; "" if there is none.
func (c *Catalog) Common(a, b string) string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	m, n := c.index.nodes[a], c.index.nodes[b]
	if m == nil || n == nil || m.depth == 0 || n.depth == 0 {
		return ""
	}
	for m != n {
		if m.depth < n.depth {
			m, n = n, m
		}
		if m = m.parent; m == nil {
			return ""
		}
	}
	return m.id
}

// Own lists the layers from top down that are there for one holder alone: they go when it does.
func (c *Catalog) Own(top string, who Holder) []*Layer {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var own []*Layer
	for n := c.index.nodes[top]; n != nil && n.layer != nil && n.held() == 1 && n.holds(who); n = n.parent {
		own = append(own, n.layer)
		who = Holder{'l', n.id}
	}
	return own
}

// SnapshotsOver lists the ids of the snapshots whose stacks have any of these layers, oldest first; of complete stacks
// only.
func (c *Catalog) SnapshotsOver(layers ...string) []string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var found []string
	var queue []*node
	met := map[*node]bool{}
	for _, id := range layers {
		if n := c.index.nodes[id]; n != nil {
			queue = append(queue, n)
		}
	}
	for len(queue) > 0 {
		n := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		if met[n] || n.depth == 0 {
			continue
		}
		met[n] = true
		for id := range n.snapshots.all() {
			found = append(found, id)
		}
		queue = append(queue, n.children...)
	}
	slices.Sort(found)
	return found
}

// WorkspacesOver lists the names of workspaces whose stacks have a layer, most of them at most.
func (c *Catalog) WorkspacesOver(layer string, most int) []string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var found []string
	var queue []*node
	if n := c.index.nodes[layer]; n != nil {
		queue = append(queue, n)
	}
	met := map[*node]bool{}
	for len(queue) > 0 {
		n := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		if met[n] || n.depth == 0 {
			continue
		}
		met[n] = true
		for name := range n.workspaces.all() {
			if c.index.workspaces[name] != nil && len(found) < most { // else it is staged
				found = append(found, name)
			}
		}
		if len(found) == most {
			break
		}
		queue = append(queue, n.children...)
	}
	slices.Sort(found)
	return found
}
