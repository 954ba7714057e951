package layers

import (
	"slices"
)

// MaxPath is the longest path in a diff, in bytes: the host's programs cannot name a longer one.
const MaxPath = 4095

// Things know their paths by the directories that they are in, so that a deep tree costs memory in proportion to its depth.

func (t *thing) child(name string, h hit) *thing {
	c := &thing{up: t, name: name, size: len(name), parts: h.parts, attr: h.attr}
	if t.up != nil {
		c.size += t.size + 1
	}
	return c
}

// way lists what leads from the root to t, without the root.
func (t *thing) way(room []*thing) []*thing {
	for ; t.up != nil; t = t.up {
		room = append(room, t)
	}
	slices.Reverse(room)
	return room
}

func (t *thing) path() string {
	b := make([]byte, t.size)
	for at := len(b); t.up != nil; t = t.up {
		at -= copy(b[at-len(t.name):], t.name)
		if t.up.up != nil {
			at--
			b[at] = '/'
		}
	}
	return string(b)
}

// comparePaths orders things as their paths are ordered as strings.
func comparePaths(a, b *thing) int {
	var rooms [2][32]*thing
	x, y := a.way(rooms[0][:0]), b.way(rooms[1][:0])
	for i := 0; i < len(x) && i < len(y); i++ {
		if x[i] == y[i] || x[i].name == y[i].name {
			continue
		}
		s, t := x[i].name, y[i].name
		for k := 0; ; k++ {
			p, q := after(s, k, i < len(x)-1), after(t, k, i < len(y)-1)
			if p != q {
				return p - q
			}
			if p < 0 {
				break
			}
		}
	}
	return len(x) - len(y)
}

// after gives byte k of a name in a path: a slash behind it if more follows, or else -1.
func after(name string, k int, more bool) int {
	switch {
	case k < len(name):
		return int(name[k])
	case k == len(name) && more:
		return '/'
	default:
		return -1
	}
}

func samePath(a, b *thing) bool {
	for ; a != b; a, b = a.up, b.up {
		if a == nil || b == nil || a.size != b.size || a.name != b.name {
			return false
		}
	}
	return true
}

// said is a change: what became of x, which is now y; either may be nil.
type said struct {
	kind Kind
	x, y *thing
}

// at is the thing whose path the change is told under.
func (s *said) at() *thing {
	if s.y != nil {
		return s.y
	}
	return s.x
}

func (s *said) change() Change {
	c := Change{Kind: s.kind, Path: s.at().path()}
	if x := s.x; x != nil {
		c.Mode, c.OldMode, c.OldSize = x.attr.Mode, x.attr.Mode, x.attr.contentSize()
	}
	if y := s.y; y != nil {
		if s.x != nil && !samePath(s.x, y) {
			c.OldPath = s.x.path()
		}
		c.Mode, c.Size = y.attr.Mode, y.attr.contentSize()
	}
	return c
}

// say notes what became of x, which is now y; either may be nil.
func (d *differ) say(kind Kind, x, y *thing) {
	s := said{kind, x, y}
	if s.at().size <= MaxPath && (x == nil || x.size <= MaxPath) {
		d.out = append(d.out, s)
		return
	}
	t := s.at()
	for t.size > MaxPath {
		t = t.up
	}
	if last := len(d.deep) - 1; last < 0 || d.deep[last] != t {
		d.deep = append(d.deep, t)
	}
}

// tell gives the changes in order.
func (d *differ) tell(fn func(Change) error) error {
	slices.SortStableFunc(d.out, func(a, b said) int { return comparePaths(a.at(), b.at()) })
	slices.SortFunc(d.deep, comparePaths)
	var last *thing
	next := func(s said) error {
		if err := d.ctx.Err(); err != nil {
			return err
		}
		last = s.at()
		return fn(s.change())
	}
	for _, s := range d.out {
		for len(d.deep) > 0 && comparePaths(d.deep[0], s.at()) <= 0 {
			t := d.deep[0]
			d.deep = d.deep[1:]
			if !samePath(t, s.at()) && (last == nil || !samePath(t, last)) {
				if err := next(said{Modified, t, t}); err != nil {
					return err
				}
			}
		}
		if err := next(s); err != nil {
			return err
		}
	}
	for _, t := range d.deep {
		if last == nil || !samePath(t, last) {
			if err := next(said{Modified, t, t}); err != nil {
				return err
			}
		}
	}
	return nil
}
