package catalog

import (
	"strconv"

	"snapfs/chunkstore"
	"snapfs/sandbox/api"
)

// Every layer that a snapshot names is kept, so a stack is as deep as its history. Every TierFan-th layer or so gets
// a tier, an image of itself and the layers below it, made like the carries of a counter: of TierFan layers, then of
// TierFan such tiers, and so on. A history of a thousand layers opens as some forty lowers at most.
//
//	layers    d d d d d d d d d d d d d d d d d d d d   (topmost first)
//	TierFan 4   └──t──┘ └────────t of t────────┘ base
const (
	TierFan  = 16
	tierMost = 1 << 30 // bytes of images that a tier may stand for: making it reads them all
	// BaseShare: the lowest layer of a stack is merged when what lies on it is at least one of so many parts of it.
	BaseShare = 4
	// mergeMin is how many bytes of images must lie on a layer before it is merged without being asked for: less would
	// free little.
	mergeMin = 1 << 20
)

// Form is a layer as it is opened: by itself, or with what its tier stands for.
type Form struct {
	*Layer
	AsTier bool
}

// Form is the layer as it is opened.
func (r *Layer) Form(asTier bool) Form { return Form{r, asTier} }

// Key names the form in the cache; it is the key of the Lower, too.
func (f Form) Key() string {
	if f.AsTier {
		return f.ID + "~" + strconv.FormatUint(uint64(f.Tier.Manifest), 10)
	}
	return f.ID
}

// Image is the form's manifest; 0 for a layer that is not stored.
func (f Form) Image() chunkstore.ID {
	if f.AsTier {
		return f.Tier.Manifest
	}
	return f.Manifest
}

// Below is the layer on which the form lies.
func (f Form) Below() string {
	if f.AsTier {
		return f.Tier.Down
	}
	return f.Parent
}

// size is that of the form's image.
func (f Form) size() int64 {
	if f.AsTier {
		return f.Tier.Size
	}
	return f.Size
}

// Span is how many layers the form stands for.
func (f Form) Span() int {
	if f.AsTier {
		return f.Tier.Span
	}
	return 1
}

// Forms lists what shows the tree of the layer top, topmost first, with as few forms as tiers allow. A tier that
// reaches from above the layer stop to below its top is not used.
func (c *Catalog) Forms(top, stop string) ([]Form, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var list []Form
	for id := top; id != ""; {
		l := c.index.layer(id)
		if l == nil || len(list) > len(c.index.layers) {
			return nil, noRecord(id)
		}
		f := l.Form(l.Tier != nil && !c.index.crosses(l, stop))
		list = append(list, f)
		id = f.Below()
	}
	return list, nil
}

// FormsTo lists forms of the layers from top down to the first that end names, topmost first; the root of the tree of
// layers, "", ends it, too. tier decides whether the tier of a layer is used as the form with index i.
func (c *Catalog) FormsTo(top string, tier func(i int, f Form) bool, end func(layer string) bool) ([]Form, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var list []Form
	for id := top; ; {
		l := c.index.layer(id)
		if l == nil || len(list) > len(c.index.layers) {
			return nil, noRecord(id)
		}
		f := l.Form(false)
		if l.Tier != nil && tier(len(list), l.Form(true)) {
			f = l.Form(true)
		}
		list = append(list, f)
		if id = f.Below(); id == "" || end(id) {
			return list, nil
		}
	}
}

// Crosses reports whether layer is one of those for which l's tier stands, l itself not counted. l must have a tier.
func (c *Catalog) Crosses(l *Layer, layer string) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.index.crosses(l, layer)
}

// crosses is Crosses for callers that hold Catalog.mu; false if stop is "".
func (x *index) crosses(l *Layer, stop string) bool {
	if stop == "" || l.ID == stop {
		return false
	}
	for id, n := l.Parent, 1; id != "" && id != l.Tier.Down && n < l.Tier.Span; n++ {
		if id == stop {
			return true
		}
		below := x.layer(id)
		if below == nil {
			break
		}
		id = below.Parent
	}
	return false
}

// tierOf says how many forms, a stored layer and those below it, its tier is to stand for; 0 if it needs none.
func tierOf(forms []Form) int {
	n, level := 1, 1
	size := forms[0].size()
	for {
		first := n
		for n < len(forms) && tierLevel(forms[n]) == level-1 && forms[n].State == api.Stored &&
			size+forms[n].size() <= tierMost {
			if forms[n].Below() == "" && size*BaseShare < forms[n].size() {
				break
			}
			size += forms[n].size()
			n++
		}
		if n-first < TierFan-1 {
			if first == 1 {
				return 0
			}
			return first
		}
		level++
	}
}

// tierLevel counts how often TierFan goes into the layers that a form stands for.
func tierLevel(f Form) int {
	level := 0
	for n := f.Span(); n >= TierFan; n /= TierFan {
		level++
	}
	return level
}
