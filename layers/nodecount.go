package layers

import "sync/atomic"

// allNodes counts the nodes of all overlays but their roots.
var allNodes atomic.Int64

// count notes that the table has n nodes more.
func (t *table) count(n int) {
	t.own.Add(int64(n))
	allNodes.Add(int64(n))
}

// Nodes tells how many nodes the overlay has in memory, because the kernel refers to them or to what is below them, and
// how many all overlays of the process have. Roots do not count.
func (o *Overlay) Nodes() (own, all int64) { return o.nodes.own.Load(), allNodes.Load() }

// Recorded tells how many nodes a successor would know; 0 without Options.Live.
func (o *Overlay) Recorded() int64 {
	t := &o.nodes
	if t.live == nil {
		return 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return int64(t.live.nodes.Len())
}

// Idle gives up to most nodes, any, that are in memory for the kernel alone: it may forget them, and look them up
// again. Directories of which anything is known, and what has no name any more, are not among them.
func (o *Overlay) Idle(most int) []NodeID {
	t := &o.nodes
	t.mu.Lock()
	defer t.mu.Unlock()
	var ids []NodeID
	looks := 4 * most        // it takes a lock that requests need
	for id, n := range t.m { // begins anywhere
		if looks--; len(ids) == most || looks < 0 {
			break
		}
		if n.holds == 0 && n.lookups > 0 && id != RootNode {
			ids = append(ids, id)
		}
	}
	return ids
}
