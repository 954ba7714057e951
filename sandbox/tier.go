package sandbox

import (
	"fmt"
	"strconv"

	"snapfs/chunkstore"
)

// Tiers: every layer that a snapshot names is kept, so a stack is as deep as its history. Every tierFan-th layer or so gets
// a tier, an image of itself and the layers below it, made like the carries of a counter: of tierFan layers, then of
// tierFan such tiers, and so on. A history of a thousand layers opens as some forty lowers at most.
//
//	layers    d d d d d d d d d d d d d d d d d d d d   (topmost first)
//	tierFan 4   └──t──┘ └────────t of t────────┘ base
const (
	tierFan  = 16
	tierMost = 1 << 30 // bytes of images that a tier may stand for: making it reads them all
	// baseShare: the lowest layer of a stack is merged when what lies on it is at least one of so many parts of it.
	baseShare = 4
	// mergeMin is how many bytes of images must lie on a layer before it is merged without being asked for: less would free little.
	mergeMin = 1 << 20
)

// form is a layer as it is opened: by itself, or with what its tier stands for.
type form struct {
	*layerRecord
	tier bool
}

// key names the form in the cache; it is the key of the Lower, too.
func (f form) key() string {
	if f.tier {
		return f.ID + "~" + strconv.FormatUint(uint64(f.Tier.Manifest), 10)
	}
	return f.ID
}

// image is the form's manifest; 0 for a sealed layer.
func (f form) image() chunkstore.ID {
	if f.tier {
		return f.Tier.Manifest
	}
	return f.Manifest
}

// below is the layer on which the form lies.
func (f form) below() string {
	if f.tier {
		return f.Tier.Down
	}
	return f.Parent
}

func (f form) size() int64 {
	if f.tier {
		return f.Tier.Size
	}
	return f.Size
}

func (f form) span() int {
	if f.tier {
		return f.Tier.Span
	}
	return 1
}

// forms lists what shows the tree of the layer top, topmost first, with as few forms as tiers allow. A tier that reaches
// from above the layer stop to below its top is not used.
func (c *catalog) forms(top, stop string) ([]form, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var list []form
	for id := top; id != ""; {
		l := c.layers[id]
		if l == nil || len(list) > len(c.layers) {
			return nil, fmt.Errorf("%w: layer %s has no record", ErrCorrupt, id)
		}
		f := form{l, l.Tier != nil && !c.crossesLocked(l, stop)}
		list = append(list, f)
		id = f.below()
	}
	return list, nil
}

// crossesLocked tells whether stop is one of the layers for which l's tier stands, l itself not counted. mu is held.
func (c *catalog) crossesLocked(l *layerRecord, stop string) bool {
	if stop == "" || l.ID == stop {
		return false
	}
	for id, n := l.Parent, 1; id != "" && id != l.Tier.Down && n < l.Tier.Span; n++ {
		if id == stop {
			return true
		}
		below := c.layers[id]
		if below == nil {
			break
		}
		id = below.Parent
	}
	return false
}

// common is the topmost layer that two stacks have both; "" if there is none.
func (c *catalog) common(a, b string) string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	in := map[string]bool{}
	for id := a; id != "" && !in[id]; {
		in[id] = true
		l := c.layers[id]
		if l == nil {
			return ""
		}
		id = l.Parent
	}
	for id, n := b, 0; id != "" && n <= len(c.layers); n++ {
		if in[id] {
			return id
		}
		l := c.layers[id]
		if l == nil {
			break
		}
		id = l.Parent
	}
	return ""
}

// tierOf says how many forms, a stored layer and those below it, its tier is to stand for; 0 if it needs none.
func tierOf(forms []form) int {
	n, level := 1, 1
	size := forms[0].size()
	for {
		first := n
		for n < len(forms) && tierLevel(forms[n]) == level-1 && forms[n].State == Stored && size+forms[n].size() <= tierMost {
			if forms[n].below() == "" && size*baseShare < forms[n].size() {
				break
			}
			size += forms[n].size()
			n++
		}
		if n-first < tierFan-1 {
			if first == 1 {
				return 0
			}
			return first
		}
		level++
	}
}

// tierLevel counts how often tierFan goes into the layers that a form stands for.
func tierLevel(f form) int {
	level := 0
	for n := f.span(); n >= tierFan; n /= tierFan {
		level++
	}
	return level
}
