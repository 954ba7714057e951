package catalog

import (
	"cmp"
	"maps"
	"slices"
)

// touch is touchLocked for callers that do not hold mu.
func (c *Catalog) touch(layer string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.touchLocked(layer)
}

// touchLocked notes that a layer's record, or what names it, has changed: merges of it and of the layers above, whose
// stacks it is in, may have become due. Of a layer that was touched before all those above were, too: a new one is
// touched when it is put. The caller holds mu.
func (c *Catalog) touchLocked(layer string) {
	for queue := []string{layer}; len(queue) > 0; {
		id := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		if id == "" || c.touched[id] {
			continue
		}
		c.touched[id] = true
		if n := c.index.nodes[id]; n != nil {
			for _, child := range n.children {
				queue = append(queue, child.id)
			}
		}
	}
}

// takeTouched moves the touched layers into a set.
func (c *Catalog) takeTouched(into map[string]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.Copy(into, c.touched)
	clear(c.touched)
}

// layersOf lists those of a set that are still there, in the order of Layers.
func (c *Catalog) layersOf(set map[string]bool) []*Layer {
	c.mu.RLock()
	defer c.mu.RUnlock()
	list := make([]*Layer, 0, len(set))
	for id := range set {
		if l := c.index.layer(id); l != nil {
			list = append(list, l)
		}
	}
	slices.SortFunc(list, func(a, b *Layer) int { return cmp.Compare(a.ID, b.ID) })
	return list
}
