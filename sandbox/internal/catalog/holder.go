package catalog

import (
	"context"
	"slices"
)

// Holder is what names a layer: a workspace, a snapshot, or the layer above.
type Holder struct {
	kind byte // 'w' workspace, 's' snapshot, 'l' the layer above
	id   string
}

// Pin keeps the record of a layer until Unpin, even if it loses its last name; false if it is gone already.
func (c *Catalog) Pin(layer string) bool {
	c.writer.Lock()
	defer c.writer.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.index.layer(layer) == nil {
		return false
	}
	c.pinned[layer] = true
	return true
}

// Pinned reports whether a layer is being stored: until that ends the cache may have the directory, whatever the record
// says.
func (c *Catalog) Pinned(layer string) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.pinned[layer]
}

// Unpin ends Pin and removes the layer if it lost its last name meanwhile. It gives back the layers that are gone.
func (c *Catalog) Unpin(ctx context.Context, layer string) ([]*Layer, error) {
	return c.Update(ctx, false, func(ch *Change) error {
		c.unpin(layer)
		ch.reconsider = []string{layer}
		return nil
	})
}

// unpin lets merges and collections have a layer. The caller holds writer.
func (c *Catalog) unpin(layer string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pinned, layer)
	c.touchLocked(layer)
}

// SweepLayers removes the layers that nothing names and gives them back.
func (c *Catalog) SweepLayers(ctx context.Context) ([]*Layer, error) {
	return c.Update(ctx, false, func(ch *Change) error {
		ch.reconsider = slices.Clone(c.index.layers)
		return nil
	})
}

// Reconsider removes a layer that may have lost its last name, and gives back the layers that are gone.
func (c *Catalog) Reconsider(ctx context.Context, layer string) ([]*Layer, error) {
	if !c.unnamed(layer) {
		return nil, nil
	}
	return c.Update(ctx, false, func(ch *Change) error {
		ch.reconsider = []string{layer}
		return nil
	})
}

// unnamed reports whether a layer has a record that nothing names.
func (c *Catalog) unnamed(layer string) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	n := c.index.nodes[layer]
	return n != nil && n.layer != nil && n.held() == 0
}

// Named reports whether something names a layer.
func (c *Catalog) Named(layer string) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	n := c.index.nodes[layer]
	return n != nil && n.held() > 0
}

// SnapshotsOn lists the snapshots whose topmost layer is the one given, oldest first.
func (c *Catalog) SnapshotsOn(layer string) []*Snapshot {
	c.mu.RLock()
	defer c.mu.RUnlock()
	n := c.index.nodes[layer]
	if n == nil {
		return nil
	}
	var on ids
	for id := range n.snapshots.all() {
		on = append(on, id)
	}
	slices.Sort(on)
	return c.index.records(on)
}
