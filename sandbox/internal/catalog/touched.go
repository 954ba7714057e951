package catalog

// touchLocked notes that a layer's record, or what names it, has changed: merges of it and of the layers above, whose
// stacks it is in, may have become due. The caller holds mu.
func (c *Catalog) touchLocked(layer string) {
	if layer != "" {
		c.touched[layer] = true
	}
}

// takeTouched gives the touched layers, which are not touched any more.
func (c *Catalog) takeTouched() map[string]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	touched := c.touched
	c.touched = map[string]bool{}
	return touched
}
