package layers

import (
	"slices"
)

// MaxPath is the longest path in a diff, in bytes: the host's programs cannot name a longer one.
const MaxPath = 4095

// Things know their paths by the directories that they are in, so that a deep tree costs memory in proportion to its
// depth.

func (t *treeEntry) child(name string, h hit) *treeEntry {
	c := &treeEntry{up: t, name: name, size: len(name), parts: h.parts, attr: h.attr}
	if t.up != nil {
		c.size += t.size + 1
	}
	if c.listable = t.listable; c.size <= MaxPath {
		c.listable = c
	}
	return c
}

func (t *treeEntry) path() string {
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

// paths has one node for each path that is ordered, whichever side has something there: comparing two takes the
// logarithm of their depth.
type paths map[pathKey]*pathNode

type pathKey struct {
	up   *pathNode
	name string
}

type pathNode struct {
	up    *pathNode // nil: the root
	jump  *pathNode // further up: see [paths.add]
	depth int
	name  string
}

// of gives the node of an entry's path.
func (p paths) of(t *treeEntry) *pathNode {
	var way []*treeEntry
	x := t
	for ; x != nil && x.at == nil; x = x.up {
		way = append(way, x)
	}
	var at *pathNode
	if x != nil {
		at = x.at
	}
	for i := len(way) - 1; i >= 0; i-- {
		at = p.add(at, way[i].name)
		way[i].at = at
	}
	return at
}

// add gives the node of a name. Jumps are those of the skew binary numbers: from any depth to any other in logarithmic
// steps (Myers, An applicative random-access stack, 1983).
func (p paths) add(up *pathNode, name string) *pathNode {
	k := pathKey{up, name}
	if at := p[k]; at != nil {
		return at
	}
	at := &pathNode{up: up, jump: up, name: name}
	if up != nil {
		at.depth = up.depth + 1
		if j := up.jump; j != nil && j.jump != nil && up.depth-j.depth == j.depth-j.jump.depth {
			at.jump = j.jump
		}
	}
	p[k] = at
	return at
}

// above is the node over s, or s itself, at a depth.
func (s *pathNode) above(depth int) *pathNode {
	for s.depth > depth {
		if s.jump.depth >= depth {
			s = s.jump
		} else {
			s = s.up
		}
	}
	return s
}

// comparePaths orders nodes as their paths are ordered as strings.
func comparePaths(a, b *pathNode) int {
	depth := min(a.depth, b.depth)
	x, y := a.above(depth), b.above(depth)
	if x == y {
		return a.depth - b.depth
	}
	for x.up != y.up {
		if x.jump != y.jump {
			x, y = x.jump, y.jump
		} else {
			x, y = x.up, y.up
		}
	}
	for k := 0; ; k++ {
		p, q := after(x.name, k, x != a), after(y.name, k, y != b)
		if p != q {
			return p - q
		}
	}
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

// finding is a change: what became of x, which is now y; either may be nil.
type finding struct {
	kind Kind
	x, y *treeEntry
}

// at is the entry whose path the change is told under.
func (s *finding) at() *treeEntry {
	if s.y != nil {
		return s.y
	}
	return s.x
}

func (d *differ) change(s finding) Change {
	c := Change{Kind: s.kind, Path: s.at().path()}
	if x := s.x; x != nil {
		c.Mode, c.OldMode, c.OldSize = x.attr.Mode, x.attr.Mode, x.attr.contentSize()
	}
	if y := s.y; y != nil {
		if s.x != nil && d.paths.of(s.x) != d.paths.of(y) {
			c.OldPath = s.x.path()
		}
		c.Mode, c.Size = y.attr.Mode, y.attr.contentSize()
	}
	return c
}

// add notes what became of x, which is now y; either may be nil.
func (d *differ) add(kind Kind, x, y *treeEntry) {
	s := finding{kind, x, y}
	if s.at().size <= MaxPath && (x == nil || x.size <= MaxPath) {
		d.out = append(d.out, s)
		return
	}
	if t := s.at().listable; !t.deep {
		t.deep = true
		d.deep = append(d.deep, t)
	}
}

// emit gives the changes in order.
func (d *differ) emit(fn func(Change) error) error {
	at := d.paths.of
	slices.SortStableFunc(d.out, func(a, b finding) int { return comparePaths(at(a.at()), at(b.at())) })
	slices.SortFunc(d.deep, func(a, b *treeEntry) int { return comparePaths(at(a), at(b)) })
	var last *pathNode
	next := func(s finding) error {
		if err := d.ctx.Err(); err != nil {
			return err
		}
		last = at(s.at())
		return fn(d.change(s))
	}
	for _, s := range d.out {
		for len(d.deep) > 0 && comparePaths(at(d.deep[0]), at(s.at())) <= 0 {
			t := d.deep[0]
			d.deep = d.deep[1:]
			if at(t) != at(s.at()) && at(t) != last {
				if err := next(finding{Modified, t, t}); err != nil {
					return err
				}
			}
		}
		if err := next(s); err != nil {
			return err
		}
	}
	for _, t := range d.deep {
		if at(t) != last {
			if err := next(finding{Modified, t, t}); err != nil {
				return err
			}
		}
	}
	return nil
}
