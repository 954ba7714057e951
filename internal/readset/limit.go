package readset

// limit makes directories whole if there are too many entities. mu is held.
func (s *Set) limit() {
	if len(s.all) <= s.most {
		return
	}
	depths := map[*Entity]int{s.root: 0}
	var count []int
	for _, e := range s.all {
		d := depths[e.parent] + 1
		depths[e] = d
		for len(count) <= d {
			count = append(count, 0)
		}
		count[d]++
	}
	cut, left := 0, 0 // what is at this depth becomes whole
	for d := 1; d < len(count) && left+count[d] <= s.most/2; d++ {
		left += count[d]
		cut = d
	}
	for _, e := range s.all {
		if depths[e] <= cut {
			continue
		}
		w := e
		for depths[w] > cut {
			w = w.parent
		}
		w.whole = true
		w.kinds |= e.kinds
	}
	if s.root.whole {
		s.root.names = nil
	}
	s.settle(s.root, nil)
	kept := s.all[:0]
	for _, e := range s.all {
		if e.whole {
			e.names = nil
			e.kinds &= All
		}
		if e.within() == nil {
			kept = append(kept, e)
		}
	}
	clear(s.all[len(kept):])
	s.all = kept
	s.root.kinds &= All
}

// settle makes the places below dir true again after entities have become whole: an entity that is a part of one now is
// that one wherever it was moved, and what was moved into a whole one is whole itself, with all of it read. inside is
// the whole entity in which dir lies now, nil if there is none. mu is held.
func (s *Set) settle(dir, inside *Entity) {
	for name, c := range dir.names {
		if c.made {
			s.settle(c, inside)
			continue
		}
		home := c.within()
		if home == nil && c.whole {
			home = c
		}
		switch {
		case inside == nil && home == nil:
			s.settle(c, nil)
			continue
		case inside == nil:
			dir.names[name] = home
		case home == nil:
			c.widen()
			home = c
		case home != inside:
			home.kinds = All
		}
		s.settle(c, home)
		c.names = nil
	}
}
