package catalog

// Usage counts a session's snapshots, and the bytes of the images of their layers, shared ones once. Snapshots past
// their time do not count.
func (c *Catalog) Usage(session string) (snapshots int, bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.index.lapse(c.ids.now())
	s := c.index.sessions[session]
	if s == nil {
		return 0, 0
	}
	return s.counted, s.bytes
}

// WorkspacesOf is how many workspaces a session has.
func (c *Catalog) WorkspacesOf(session string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.index.sessions[session]; s != nil {
		return len(s.workspaces)
	}
	return 0
}

// Counts are the numbers of records.
type Counts struct{ Workspaces, Snapshots, Layers, Sealed int }

// Count counts the records.
func (c *Catalog) Count() Counts {
	c.mu.RLock()
	defer c.mu.RUnlock()
	x := c.index
	return Counts{Workspaces: len(x.workspaces), Snapshots: len(x.snapshots), Layers: len(x.layers), Sealed: x.sealed}
}

// Holding is what a session owns, and the layers on which that stands.
type Holding struct {
	Uppers    []uint64 // of the workspaces
	Snapshots int
	Layers    []*Layer // each once
	Own       []*Layer // those that nothing else needs: they go with what the session owns
}

// Holding gives what a session owns.
func (c *Catalog) Holding(session string) Holding {
	c.mu.RLock()
	defer c.mu.RUnlock()
	s := c.index.sessions[session]
	if s == nil {
		return Holding{}
	}
	return c.holdingLocked(s.workspaces, s.snapshots)
}

// HoldingOf gives what a workspace and its snapshots stand on; false if there is no such workspace.
func (c *Catalog) HoldingOf(workspace string) (Holding, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.index.workspaces[workspace] == nil {
		return Holding{}, false
	}
	return c.holdingLocked([]string{workspace}, c.index.ofWorkspace[workspace]), true
}

// holdingLocked gives what workspaces and snapshots stand on. mu is held.
func (c *Catalog) holdingLocked(workspaces, snapshots []string) Holding {
	x := c.index
	var h Holding
	met := map[*node]bool{}
	held := map[*node]int{} // by how many of what is the session's own
	stand := func(top string) {
		for n := x.nodes[top]; n != nil && n.layer != nil && !met[n]; n = n.parent {
			met[n] = true
			h.Layers = append(h.Layers, n.layer)
		}
	}
	hold := func(top string) {
		for n := x.nodes[top]; n != nil && n.layer != nil; n = n.parent {
			if held[n]++; held[n] < n.held() {
				break
			}
			h.Own = append(h.Own, n.layer)
		}
	}
	for _, name := range workspaces {
		w := x.workspaces[name]
		h.Uppers = append(h.Uppers, w.Upper)
		stand(w.Base)
		hold(w.Base)
		if next := c.staged[name]; next != nil && next.Base != w.Base {
			hold(next.Base)
		}
	}
	for _, id := range snapshots {
		stand(x.snapshots[id].Top)
		hold(x.snapshots[id].Top)
	}
	h.Snapshots = len(snapshots)
	return h
}
