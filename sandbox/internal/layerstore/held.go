package layerstore

import (
	"cmp"
	"slices"

	"snapfs/chunkstore"
)

// Hold says what a Lower is in use for that may last long.
type Hold struct {
	Workspace string
	Deleted   bool // by deleted files that programs have open; else by the stack beneath the mount
}

// Held are images that no record names and somebody uses.
type Held struct {
	Hold                   // the zero value: calls under way
	Images []chunkstore.ID // in ascending order
}

// Held lists who uses images that no record names any more: the store keeps what is in them. Sealed directories are not
// among them.
func (c *Cache) Held() []Held {
	c.mu.Lock()
	defer c.mu.Unlock()
	by := map[Hold][]chunkstore.ID{}
	for l := range c.outdated {
		if l.manifest == 0 {
			continue
		}
		rest := l.users
		for h, n := range l.holds {
			rest -= n
			by[h] = append(by[h], l.manifest)
		}
		if rest > 0 {
			by[Hold{}] = append(by[Hold{}], l.manifest)
		}
	}
	held := make([]Held, 0, len(by))
	for h, images := range by {
		slices.Sort(images)
		held = append(held, Held{Hold: h, Images: images})
	}
	slices.SortFunc(held, func(a, b Held) int {
		if a.Workspace == b.Workspace && a.Deleted != b.Deleted {
			if b.Deleted {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.Workspace, b.Workspace)
	})
	return held
}
