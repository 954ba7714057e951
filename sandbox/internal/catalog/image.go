package catalog

// chain notes by which chain id a layer is found, now that a record has taken the place of the one before; nil is none.
func (x *index) chain(before, now *Layer) {
	if before != nil && before.Chain != "" {
		all := x.chains[before.Chain]
		if all.drop(before.ID); len(all) == 0 {
			delete(x.chains, before.Chain)
		} else {
			x.chains[before.Chain] = all
		}
	}
	if now != nil && now.Chain != "" {
		all := x.chains[now.Chain]
		all.add(now.ID)
		x.chains[now.Chain] = all
	}
}

// ChainLayer finds the layer of a container image with a chain id that lies on the layer below; nil if there is none.
func (c *Catalog) ChainLayer(chain, below string) *Layer {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, id := range c.index.chains[chain] {
		if l := c.index.layer(id); l != nil && l.Parent == below {
			return l
		}
	}
	return nil
}

// ImageLayer finds the empty layer of a container image on the layer below; nil if there is none.
func (c *Catalog) ImageLayer(id, below string) *Layer {
	c.mu.RLock()
	defer c.mu.RUnlock()
	n := c.index.nodes[below]
	if n == nil {
		return nil
	}
	for _, child := range n.children {
		if l := child.layer; l != nil && l.Image != nil && l.Image.ID == id {
			return l
		}
	}
	return nil
}
